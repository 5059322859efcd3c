"""`shortlist tune`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist._phrases import count
from shortlist.cli import completion
from shortlist.cli import options as opt
from shortlist.cli.events import EventSource
from shortlist.cli.fit import check_target, fit_tuned, training_events
from shortlist.cli.model_settings import settings_of
from shortlist.cli.next_steps import fit_commands, fit_toml, lines, relevant_settings, start_path
from shortlist.cli.output import Output
from shortlist.cli.space_options import described, read_spaces
from shortlist.cli.split_options import FoldIn, Repeated, SplitOptions, Test, ValidationBy, show_split, split_document
from shortlist.errors import SettingError, StorageError

if TYPE_CHECKING:
    from shortlist.recommenders.search_space import Space
    from shortlist.tuning import Trial, Tuned

_SEARCH = "Search"
_SHOWN = 3  # number of best trials in the table
_TABLES = (".csv", ".parquet")
_INTERRUPTED = "the result is the best so far; pass --study FILE to be able to resume a search"

Trials = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of trials (settings to try), including earlier runs with the same --study. "
        "Default: 40, or no limit with "
        "--minutes.",
        rich_help_panel=_SEARCH,
        show_default=False,
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="Search time in minutes, including earlier runs with the same --study. Default: no limit.",
        rich_help_panel=_SEARCH,
        show_default=False,
    ),
]


def tune(
    ctx: typer.Context,
    data: opt.Data,
    context: opt.Context = None,
    item: opt.Item = None,
    weight: opt.Weight = None,
    time: opt.Time = None,
    aggregate: opt.Aggregated = None,
    on_bad: opt.Bad = opt.OnBad.RAISE,
    file_format: opt.FileFormat = None,
    separator: opt.Separator = None,
    layout: opt.Layout = None,
    min_rating: opt.MinRating = None,
    model: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"Model to tune: {', '.join(opt.MODELS)}.", autocompletion=completion.models),
    ] = "ials",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Fix a setting to this value instead of searching it; may be repeated.",
            show_default=False,
            autocompletion=completion.settings,
        ),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="Values to try for a setting, instead of the model's defaults: a range such as "
            "regularization=0.001..1 (end it with :log for a log scale), or a list such as dim=64,128,256; may be "
            "repeated.",
            rich_help_panel=_SEARCH,
            show_default=False,
            autocompletion=completion.settings,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(help="Metric to optimise.", rich_help_panel=_SEARCH, autocompletion=completion.metric),
    ] = "ndcg@20",
    trials: Trials = None,
    minutes: Minutes = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File for the trials. Run the same command again to resume. Default with --out DIR: DIR.study, which "
            "is deleted once the model is saved.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=1, help="Number of trials to run in parallel; they share the threads.", rich_help_panel=_SEARCH
        ),
    ] = 1,
    sample: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of validation contexts (users) to evaluate after each epoch; 0 for all.",
            rich_help_panel=_SEARCH,
        ),
    ] = 5000,
    patience: Annotated[
        int,
        typer.Option(
            min=1, help="Stop a trial after this many evaluations without improvement.", rich_help_panel=_SEARCH
        ),
    ] = 3,
    cold: Annotated[
        bool,
        typer.Option(
            "--cold",
            help="Disable warm starts: never start a trial from a smaller fitted model.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    trials_out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a table of all trials to this .csv or .parquet file.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seed for the search and for random splits. The model has its own seed: --set seed=1.",
            rich_help_panel=_SEARCH,
        ),
    ] = 0,
    split: ValidationBy = None,
    test: Test = None,
    repeats: Repeated = None,
    fold_in: FoldIn = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Fit the model with the best settings to all events and save it to this directory. An existing "
            "Shortlist model there is replaced.",
            show_default=False,
        ),
    ] = None,
    no_refit: Annotated[
        bool, typer.Option("--no-refit", help="Only search: do not fit or save a model, even with --out.")
    ] = False,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    r"""Find the best settings of a model on held-out validation events.

    With --out, also fit the model to all events with these settings, and save it.

    For example:

      shortlist tune events.csv --context user --item product --time when \
        --model ials --minutes 10 --out models/shop

      shortlist tune online-retail --model ease --space regularization=10..3000 --trials 12
    """
    from shortlist.recommenders.fit_options import FitOptions
    from shortlist.tuning.optuna_adapter import optuna
    from shortlist.tuning.problem import effective_space
    from shortlist.tuning.tune import tune as search

    output = Output(ctx, as_json=as_json, quiet=quiet)
    source = EventSource.of(ctx.params)
    splitting = SplitOptions(split, test, repeats, fold_in, seed)
    ((model_class, fixed),) = settings_of([model], settings or [], ctx.obj.stored)
    dimensions = read_spaces(model_class, space or [])
    if both := [name for name in dimensions if name in fixed]:
        raise SettingError(f"{both[0]} is given by both --set and --space", field=both[0], hint="drop one of them")
    FitOptions(metric=metric, patience=patience)  # raises an error for invalid values
    seconds = in_seconds(minutes)
    saving = out is not None and not no_refit
    study_path = study or (None if out is None else f"{out.rstrip(os.sep)}.study")
    if saving and out is not None:
        check_target(out)
    check_file(study_path, "--study")
    check_table(trials_out)
    if (
        study_path is not None
        and trials_out is not None
        and os.path.realpath(study_path) == os.path.realpath(trials_out)
    ):
        raise StorageError(
            f"--trials-out: '{trials_out}' is also the study", field="trials_out", hint="choose another file"
        )
    optuna()  # raises an error that says how to install it
    template = model_class(**fixed)
    loaded = source.read(output)
    parts = splitting.validation(loaded, data, output)
    weighted = parts.train.by_context.values is not None
    search_space = effective_space(template, {**dimensions, **dict.fromkeys(fixed)}, weighted)
    if not search_space:
        raise SettingError(f"{model_class.__name__} has no settings to search", hint="use shortlist fit", field="model")
    if study_path is None:
        output.note("the trials are not saved; pass --study FILE to be able to resume the search")
    elif os.path.exists(study_path):
        output.note(f"resuming from {study_path}")
    try:
        tuned = search(
            template,
            parts,
            metric=metric,
            trials=trials,
            seconds=seconds,
            space={**dimensions, **dict.fromkeys(fixed)},
            study=study_path,
            seed=seed,
            workers=workers,
            threads=threads,
            sample=sample or None,
            patience=patience,
            warm_start=not cold,
            refit=False,
            progress=not quiet,
        )
        if trials_out is not None:
            write_table(tuned, trials_out)
        refit_seconds = None
        if saving and out is not None:
            events = training_events(loaded, output)
            recommender, refit_seconds = fit_tuned(model_class, tuned.settings, tuned.start, events, output, threads)
            recommender.save(out)
            if study is None and study_path is not None:
                remove_study(study_path)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(resume_hint(study_path)) from None
    chosen = relevant_settings(model_class, tuned.settings, tuned.best.settings)
    target = out or f"models/{model.lower()}"
    commands = fit_commands(source, model_class, tuned.settings, tuned.start, tuned.best.settings, target)
    toml = fit_toml(source, model.lower(), chosen, target, None if tuned.start is None else start_path(target))
    if output.json:
        output.document(
            {
                "data": loaded.summary(),
                "split": split_document(parts),
                **_document(tuned, search_space),
                "refit_seconds": refit_seconds,
                "path": out if saving else None,
                "study": study_path if study_path is not None and os.path.exists(study_path) else None,
                "command": " && ".join(" ".join(command) for command in commands),
                "toml": "\n".join(toml) + "\n",
            }
        )
        if tuned.interrupted:
            raise KeyboardInterrupt(_INTERRUPTED)
        return
    show_split(parts, output)
    output.line()
    _show(tuned, search_space, output)
    output.line()
    if refit_seconds is not None:
        output.line(f"Fitted to all events in {refit_seconds:.1f} s and saved to {out}. To repeat this:")
    else:
        output.line("To fit a model with the best settings to all events:")
    output.line()
    for command in commands:
        for line in lines(command):
            output.line(line)
    output.line()
    output.line("# or, as a --config file" if tuned.start is None else "# or, for the last command, as a --config file")
    for line in toml:
        output.line(line)
    if tuned.interrupted:
        raise KeyboardInterrupt(_INTERRUPTED)


def in_seconds(minutes: float | None) -> float | None:
    """Convert minutes to seconds."""
    if minutes is not None and not 0 < minutes < float("inf"):
        raise typer.BadParameter(f"{minutes:g}; expected a number of minutes > 0", param_hint="--minutes")
    return None if minutes is None else 60 * minutes


def check_file(path: str | None, option: str) -> None:
    """Raise an error if this file cannot be written."""
    from shortlist.storage import check_writable

    if path is None:
        return
    file = Path(os.path.abspath(path))
    if file.is_dir():
        raise StorageError(f"{option}: '{path}' is a directory", code="not-writable", hint="choose a file")
    if file.exists() and not os.access(file, os.R_OK | os.W_OK):
        raise StorageError(f"{option}: '{path}' is not writable", code="not-writable", hint="choose another file")
    if not file.exists():
        check_writable(file.parent)


def check_table(path: str | None) -> None:
    """Raise an error if no table of trials can be written to this file."""
    if path is not None and Path(path).suffix.lower() not in _TABLES:
        raise typer.BadParameter(f"{path}: expected a name that ends in .csv or .parquet", param_hint="--trials-out")
    check_file(path, "--trials-out")


def write_table(tuned: "Tuned", path: str) -> None:
    """Write a table of all trials, one row each."""
    file = Path(path)
    table = tuned.to_polars()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix.lower() == ".csv":
            table.write_csv(file)
        else:
            table.write_parquet(file)
    except OSError as error:
        raise StorageError(
            f"cannot write '{path}': {error.strerror or error}", code="not-writable", hint="choose another file"
        ) from error


def remove_study(path: str) -> None:
    """Delete a study and the checkpoints of its interrupted trials."""
    import glob
    import shutil

    for checkpoint in glob.glob(f"{glob.escape(path)}.trial-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)
    Path(path).unlink(missing_ok=True)


def resume_hint(study: str | None, metavar: str = "FILE") -> str:
    """Say how to resume an interrupted search."""
    if study is None:
        return f"nothing was saved; pass --study {metavar} to be able to resume"
    return f"all trials so far are in {study}; run the same command again to resume"


# --- output ----------------------------------------------------------------------------------------------------------


def best_trials(tuned: "Tuned", most: int) -> "list[Trial]":
    """Return the best complete trials, best first."""
    return sorted((trial for trial in tuned.trials if trial.counts), key=lambda trial: trial.place, reverse=True)[:most]


def _show(tuned: "Tuned", space: "Space", output: Output) -> None:
    """Print the best trials, the search space, the importance of settings, and failures."""
    best = best_trials(tuned, _SHOWN)
    heads = [f"trial {trial.number}" + ("" if trial.start is None else f" from {trial.start}") for trial in best]
    importance = "importance" if tuned.importance else ""
    rows: list[list[str]] = [[tuned.metric, "", "", *(f"{trial.value:.4f}" for trial in best)]]
    for name, dimension in space.items():
        weight = f"{tuned.importance[name]:.0%}" if name in tuned.importance else ""
        rows.append([name, described(dimension), weight, *(_value(trial.settings.get(name)) for trial in best)])
    if any(trial.epoch is not None for trial in best):
        rows.append(["epochs", "best epoch", "", *(_value(trial.epoch) for trial in best)])
    rows.append(["seconds", "", "", *(f"{trial.seconds:.1f}" for trial in best)])
    columns = ["", "searched", *([importance] if importance else []), *heads]
    summary = f"{tuned.recommender}: {_counts(tuned)} in {tuned.seconds:.0f} s"
    output.title(f"{summary}; best complete trials by {tuned.metric}")
    output.table(columns, rows if importance else [[*row[:2], *row[3:]] for row in rows], right=columns[2:])
    if tuned.start is not None:
        output.line(f"Trial {tuned.best.number} started from a model with the settings of trial {tuned.best.start}.")
    for reason, number in _failures(tuned).items():
        output.line(f"{count(number, 'trial')} failed: {reason}")


def _document(tuned: "Tuned", space: "Space") -> dict[str, Any]:
    return {
        "model": tuned.recommender,
        "metric": tuned.metric,
        "value": tuned.value,
        "settings": tuned.settings,
        "start": tuned.start,
        "interrupted": tuned.interrupted,
        "searched": {name: described(dimension) for name, dimension in space.items()},
        "best": _trial(tuned.best),
        "states": tuned.states(),
        "importance": tuned.importance,
        "seconds": tuned.seconds,
        "trials": [_trial(trial) for trial in tuned.trials],
    }


def _trial(trial: "Trial") -> dict[str, Any]:
    settings: Mapping[str, Any] = trial.settings
    return {
        "number": trial.number,
        "start": trial.start,
        "start_epoch": trial.start_epoch,
        "settings": dict(settings),
        "state": trial.state,
        "value": trial.value,
        "epoch": trial.epoch,
        "curve": list(trial.curve),
        "seconds": trial.seconds,
        "reason": trial.reason,
    }


def _counts(tuned: "Tuned") -> str:
    states = tuned.states()
    others = ", ".join(f"{number} {state}" for state, number in states.items() if state != "complete")
    return count(len(tuned.trials), "trial") + (f" ({others})" if others else "")


def _failures(tuned: "Tuned") -> dict[str, int]:
    """Return the number of failed trials by reason."""
    reasons = [trial.reason or "unknown reason" for trial in tuned.trials if trial.state == "failed"]
    return {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}


def _value(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
