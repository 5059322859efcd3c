"""`shortlist tune`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist.cli import completion
from shortlist.cli import options as opt
from shortlist.cli.events import EventSource
from shortlist.cli.fit import check_target, fit_tuned, to_learn_from
from shortlist.cli.model_settings import settings_of
from shortlist.cli.next_steps import fit_commands, fit_toml, lines, start_place, worth_telling
from shortlist.cli.output import Output
from shortlist.cli.space_options import described, read_spaces
from shortlist.cli.split_options import FoldIn, Repeated, SplitOptions, Test, ValidationBy, show_split, split_document
from shortlist.errors import SettingError, StorageError

if TYPE_CHECKING:
    from shortlist.recommenders.search_space import Space
    from shortlist.tuning import Trial, Tuned

_SEARCH = "Search"
_SHOWN = 3  # of the best trials
_TABLES = (".csv", ".parquet")
_INTERRUPTED = "the result is the best so far; with --study FILE the same command would go on from here"

Trials = Annotated[
    int | None,
    typer.Option(min=1, help="How many settings to try, those of earlier calls included.", rich_help_panel=_SEARCH),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="How long to search, earlier calls included.",
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
        typer.Option(metavar="NAME", help=f"One of {', '.join(opt.MODELS)}.", autocompletion=completion.models),
    ] = "ials",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting that is not searched but has this value; may be repeated.",
            show_default=False,
            autocompletion=completion.settings,
        ),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="Where to search a setting, instead of where the model would: a range, regularization=0.001..1, with "
            ":log behind it on a log scale, or values, dim=64,128,256; may be repeated.",
            rich_help_panel=_SEARCH,
            show_default=False,
            autocompletion=completion.settings,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(help="By which settings are good.", rich_help_panel=_SEARCH, autocompletion=completion.metric),
    ] = "ndcg@20",
    trials: Trials = None,
    minutes: Minutes = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Every trial is kept in this file, and the same command goes on from there after a break. By default "
            "DIR.study where --out names DIR, until the model is saved.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="How many trials run at a time; they share the threads.", rich_help_panel=_SEARCH)
    ] = 1,
    sample: Annotated[
        int,
        typer.Option(
            min=0,
            help="How many contexts of the validation are asked for after each epoch; 0 for all of them.",
            rich_help_panel=_SEARCH,
        ),
    ] = 5000,
    patience: Annotated[
        int,
        typer.Option(
            min=1, help="After how many evaluations without a better one a trial stops.", rich_help_panel=_SEARCH
        ),
    ] = 3,
    cold: Annotated[
        bool,
        typer.Option(
            "--cold",
            help="Begin every trial from nothing, also where a smaller model is there to begin from.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    trials_out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A table of all trials, .csv or .parquet.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Of the search and of random splits. A model's own seed is --set seed=1.",
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
            help="Fit the best settings to all events and save the model to this directory; a Shortlist model that is "
            "there is replaced.",
            show_default=False,
        ),
    ] = None,
    no_refit: Annotated[
        bool, typer.Option("--no-refit", help="Search only: fit and save nothing, also where --out names a place.")
    ] = False,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    r"""Search good settings of a model on a validation part of the events; fit the best to all of them.

    For example:

      shortlist tune events.csv --context user --item product --time when \
        --model ials --minutes 10 --out models/shop

      shortlist tune online-retail --model ease --space regularization=10..3000 --trials 12
    """
    from shortlist.recommenders.fit_options import FitOptions
    from shortlist.tuning.optuna_adapter import optuna
    from shortlist.tuning.problem import searched
    from shortlist.tuning.tune import tune as search

    say = Output(ctx, as_json=as_json, quiet=quiet)
    source = EventSource.of(ctx.params)
    splitting = SplitOptions(split, test, repeats, fold_in, seed)
    ((kind, fixed),) = settings_of([model], settings or [], ctx.obj.stored)
    own = read_spaces(kind, space or [])
    if both := [name for name in own if name in fixed]:
        raise SettingError(f"{both[0]} has a value by --set and is searched by --space; leave one of the two out")
    FitOptions(metric=metric, patience=patience)  # refuses what makes no sense
    seconds = in_seconds(minutes)
    saving = out is not None and not no_refit
    kept = study or (None if out is None else f"{out.rstrip(os.sep)}.study")
    if saving and out is not None:
        check_target(out)
    check_file(kept, "--study")
    check_table(trials_out)
    if kept is not None and trials_out is not None and os.path.realpath(kept) == os.path.realpath(trials_out):
        raise StorageError(f"--trials-out: '{trials_out}' is the study itself; name another file")
    optuna()  # or an error that says how to get it
    template = kind(**fixed)
    found = source.read(say)
    parts = splitting.validation(found, data, say)
    weighted = parts.train.by_context.values is not None
    chosen = searched(template, {**own, **dict.fromkeys(fixed)}, weighted)
    if not chosen:
        raise SettingError(f"{kind.__name__} has nothing to search; use shortlist fit")
    if kept is None:
        say.note("the trials are not kept: after a break the search begins anew, unless --study names a file for them")
    elif os.path.exists(kept):
        say.note(f"going on from {kept}")
    try:
        tuned = search(
            template,
            parts,
            metric=metric,
            trials=trials,
            seconds=seconds,
            space={**own, **dict.fromkeys(fixed)},
            study=kept,
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
            events = to_learn_from(found, say)
            recommender, refit_seconds = fit_tuned(kind, tuned.settings, tuned.start, events, say, threads)
            recommender.save(out)
            if study is None and kept is not None:
                remove_study(kept)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(how_to_go_on(kept)) from None
    told = worth_telling(kind, tuned.settings, tuned.best.settings)
    place = out or f"models/{model.lower()}"
    commands = fit_commands(source, kind, tuned.settings, tuned.start, tuned.best.settings, place)
    toml = fit_toml(source, model.lower(), told, place, None if tuned.start is None else start_place(place))
    if say.json:
        say.document(
            {
                "data": found.summary(),
                "split": split_document(parts),
                **_document(tuned, chosen),
                "refit_seconds": refit_seconds,
                "path": out if saving else None,
                "study": kept if kept is not None and os.path.exists(kept) else None,
                "command": " && ".join(" ".join(command) for command in commands),
                "toml": "\n".join(toml) + "\n",
            }
        )
        if tuned.interrupted:
            raise KeyboardInterrupt(_INTERRUPTED)
        return
    show_split(parts, say)
    say.line()
    _show(tuned, chosen, say)
    say.line()
    if refit_seconds is not None:
        say.line(f"Fitted to all events in {refit_seconds:.1f} s and saved to {out}. The same again:")
    else:
        say.line("To fit a model with the best settings to all events:")
    say.line()
    for command in commands:
        for one in lines(command):
            say.line(one)
    say.line()
    say.line("# or in a file for --config" if tuned.start is None else "# or, for the last one, in a file for --config")
    for one in toml:
        say.line(one)
    if tuned.interrupted:
        raise KeyboardInterrupt(_INTERRUPTED)


def in_seconds(minutes: float | None) -> float | None:
    """The same in seconds, where it is any time at all."""
    if minutes is not None and not 0 < minutes < float("inf"):
        raise typer.BadParameter(f"{minutes:g} is no time; expected more than 0", param_hint="--minutes")
    return None if minutes is None else 60 * minutes


def check_file(path: str | None, option: str) -> None:
    """Refuse, before any work is done, a place where no file can be."""
    from shortlist.storage import check_writable

    if path is None:
        return
    place = Path(os.path.abspath(path))
    if place.is_dir():
        raise StorageError(f"{option}: '{path}' is a directory; name a file")
    if place.exists() and not os.access(place, os.R_OK | os.W_OK):
        raise StorageError(f"{option}: '{path}' cannot be written to; name another file")
    if not place.exists():
        check_writable(place.parent)


def check_table(path: str | None) -> None:
    """The same for a table of trials."""
    if path is not None and Path(path).suffix.lower() not in _TABLES:
        raise typer.BadParameter(f"{path}: expected a name that ends in .csv or .parquet", param_hint="--trials-out")
    check_file(path, "--trials-out")


def write_table(tuned: "Tuned", path: str) -> None:
    """All trials, a row each."""
    place = Path(path)
    table = tuned.to_polars()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix.lower() == ".csv":
            table.write_csv(place)
        else:
            table.write_parquet(place)
    except OSError as error:
        raise StorageError(f"cannot write '{path}': {error.strerror or error}; name another file") from error


def remove_study(path: str) -> None:
    """A study that is of no more use, with the checkpoints of trials that were cut off."""
    import glob
    import shutil

    for one in glob.glob(f"{glob.escape(path)}.trial-*"):
        shutil.rmtree(one, ignore_errors=True)
    Path(path).unlink(missing_ok=True)


def how_to_go_on(study: str | None, place: str = "FILE") -> str:
    """What becomes of a search that is interrupted."""
    if study is None:
        return f"nothing was kept; with --study {place} the same command would go on from here"
    return f"every trial so far is in {study}; the same command goes on from there"


# --- what is said ----------------------------------------------------------------------------------------------------


def best_trials(tuned: "Tuned", most: int) -> "list[Trial]":
    """Of those that can be the best, the best first."""
    return sorted((one for one in tuned.trials if one.counts), key=lambda one: one.place, reverse=True)[:most]


def _show(tuned: "Tuned", space: "Space", say: Output) -> None:
    """The best trials, where was searched, what mattered, what failed."""
    best = best_trials(tuned, _SHOWN)
    heads = [f"trial {one.number}" + ("" if one.start is None else f" from {one.start}") for one in best]
    share = "matters" if tuned.importance else ""
    rows: list[list[str]] = [[tuned.metric, "", "", *(f"{one.value:.4f}" for one in best)]]
    for name, dimension in space.items():
        weight = f"{tuned.importance[name]:.0%}" if name in tuned.importance else ""
        rows.append([name, described(dimension), weight, *(_figure(one.settings.get(name)) for one in best)])
    if any(one.epoch is not None for one in best):
        rows.append(["epochs", "the best one", "", *(_figure(one.epoch) for one in best)])
    rows.append(["seconds", "", "", *(f"{one.seconds:.1f}" for one in best)])
    columns = ["", "searched", *([share] if share else []), *heads]
    told = f"{tuned.recommender}: {_counts(tuned)} in {tuned.seconds:.0f} s"
    say.title(f"{told}; the best complete trials by {tuned.metric}")
    say.table(columns, rows if share else [[*row[:2], *row[3:]] for row in rows], right=columns[2:])
    if tuned.start is not None:
        say.line(f"Trial {tuned.best.number} began from a model with the settings of trial {tuned.best.start}.")
    for reason, count in _failures(tuned).items():
        say.line(f"{count} failed: {reason}")


def _document(tuned: "Tuned", space: "Space") -> dict[str, Any]:
    return {
        "model": tuned.recommender,
        "metric": tuned.metric,
        "value": tuned.value,
        "settings": tuned.settings,
        "start": tuned.start,
        "interrupted": tuned.interrupted,
        "searched": {name: described(one) for name, one in space.items()},
        "best": _trial(tuned.best),
        "states": tuned.states(),
        "importance": tuned.importance,
        "seconds": tuned.seconds,
        "trials": [_trial(one) for one in tuned.trials],
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
    told = ", ".join(f"{count} {state}" for state, count in states.items() if state != "complete")
    return f"{len(tuned.trials)} trial{'s' if len(tuned.trials) > 1 else ''}" + (f" ({told})" if told else "")


def _failures(tuned: "Tuned") -> dict[str, int]:
    """Why trials failed, and how often."""
    reasons = [one.reason or "for no known reason" for one in tuned.trials if one.state == "failed"]
    return {one: reasons.count(one) for one in dict.fromkeys(reasons)}


def _figure(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
