"""`shortlist compare`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist._phrases import count
from shortlist.cli import completion
from shortlist.cli import options as opt
from shortlist.cli.events import EventSource, LoadedEvents
from shortlist.cli.fit import check_target, fit_tuned, training_events
from shortlist.cli.next_steps import fit_commands, lines
from shortlist.cli.output import Output
from shortlist.cli.split_options import By, FoldIn, Repeated, SplitOptions, Test, show_split, split_document
from shortlist.cli.tune import in_seconds, resume_hint
from shortlist.errors import StorageError

if TYPE_CHECKING:
    from shortlist.data.splits import Split
    from shortlist.recommenders.base import Recommender
    from shortlist.recommenders.search_space import Dimension
    from shortlist.tuning.tuned_comparison import TunedComparison, TunedModel

_SEARCH = "Search"


@dataclass(frozen=True)
class SearchBudget:
    """The models to compare, and the search budget of each."""

    models: tuple[str, ...]
    trials: int | None
    seconds: float | None


_QUICK = SearchBudget(("popularity", "itemknn", "ease", "ials"), 40, 30.0)
_DEFAULT = SearchBudget(("popularity", "itemknn", "userknn", "ease", "slim", "ials"), None, 180.0)
_THOROUGH = replace(_DEFAULT, seconds=1200.0)


def compare(
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
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Model to compare: {', '.join(opt.MODELS)}; may be repeated. Default: {', '.join(_DEFAULT.models)}. "
            "Popularity is always included.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"Compare only {', '.join(_QUICK.models)}, with at most 30 seconds and 40 trials each, and ials "
            "only with dim=64.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="Search 20 minutes per model instead of 3, in larger spaces: ials up to dim=512.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of trials (settings to try) per model, including earlier runs with the same --study. "
            "Default: no "
            "limit (40 with --quick).",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Search time per model in minutes, including earlier runs with the same --study. Default: 3, or no "
            "limit with --trials.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the trials, one file per model. Run the same command again to resume.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(help="Metric to optimise, and to compare the models by.", autocompletion=completion.metric),
    ] = "ndcg@20",
    metrics: Annotated[
        str,
        typer.Option(help="Metrics to show, comma-separated.", autocompletion=completion.metrics),
    ] = "recall@20,ndcg@20",
    split: By = None,
    test: Test = None,
    repeats: Repeated = None,
    fold_in: FoldIn = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed for the search, for random splits and for the order of equal scores.")
    ] = 0,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Fit the best model to all events and save it to this directory. An existing Shortlist model there is "
            "replaced.",
            show_default=False,
        ),
    ] = None,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    r"""Find the best model: tune several models with the same budget, then compare them on held-out test events.

    Settings are tuned on a part of the training events. The test events are used only once, at the end. The
    result shows which differences are statistically significant.

    For example:

      shortlist compare online-retail --quick

      shortlist compare events.csv --context user --item product --time when \
        --model ease --model ials --minutes 5 --out models/shop
    """
    from shortlist.metrics import parse_metrics
    from shortlist.recommenders.fit_options import FitOptions
    from shortlist.recommenders.registry import recommender_class
    from shortlist.tuning.optuna_adapter import optuna
    from shortlist.tuning.tuned_comparison import compare_tuned, validation_within

    output = Output(ctx, as_json=as_json, quiet=quiet)
    source = EventSource.of(ctx.params)
    splitting = SplitOptions(split, test, repeats, fold_in, seed)
    if quick and thorough:
        raise typer.BadParameter("cannot be combined", param_hint="--quick and --thorough")
    budget = _QUICK if quick else _THOROUGH if thorough else _DEFAULT
    if trials is not None or minutes is not None:
        budget = replace(budget, trials=trials, seconds=in_seconds(minutes))
    model_classes = [recommender_class(name) for name in model or budget.models]
    FitOptions(metric=metric)  # raises an error for invalid values
    parse_metrics(metrics)
    if out is not None:
        check_target(out)
    check_folder(study)
    optuna()  # raises an error that says how to install it
    loaded = source.read(output)
    parts = splitting.split(loaded, data, output)
    validation = _published_validation(loaded, parts)
    if validation is None:
        validation = validation_within(parts, fold_in=fold_in, seed=seed)
    output.note(f"settings are tuned on the training events, split by {validation.protocol}")
    models, spaces = _models_and_spaces(model_classes, quick=quick, thorough=thorough)
    try:
        result = compare_tuned(
            parts,
            models=models,
            spaces=spaces,
            validation=validation,
            metric=metric,
            metrics=metrics,
            trials=budget.trials,
            seconds=budget.seconds,
            study=study,
            seed=seed,
            threads=threads,
            progress=not quiet,
        )
        refit_seconds = None
        if out is not None:
            best, events = result.winner, training_events(loaded, output)
            model_class = recommender_class(best.name)
            recommender, refit_seconds = fit_tuned(model_class, best.settings, best.start, events, output, threads)
            recommender.save(out)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(resume_hint(study, "FOLDER")) from None
    winner = result.winner
    target = out or f"models/{winner.name.lower()}"
    model_class = recommender_class(winner.name)
    commands = fit_commands(source, model_class, winner.settings, winner.start, winner.searched, target)
    if output.json:
        output.document(
            {
                "data": loaded.summary(),
                "split": split_document(parts),
                "validation": split_document(validation),
                **_document(result),
                "refit_seconds": refit_seconds,
                "path": out,
                "command": " && ".join(" ".join(command) for command in commands),
            }
        )
        return
    show_split(parts, output)
    output.line()
    show_comparison(result, output)
    output.line()
    output.line(result.verdict[0].upper() + result.verdict[1:] + ".")
    output.line()
    if refit_seconds is not None:
        output.line(
            f"Fitted {winner.name} to all events in {refit_seconds:.1f} s and saved it to {out}. To repeat this:"
        )
    else:
        output.line(f"To fit {winner.name} with its best settings to all events:")
    output.line()
    for command in commands:
        for line in lines(command):
            output.line(line)


def check_folder(path: str | None) -> None:
    """Raise an error if this folder cannot be written to."""
    from shortlist.storage import check_writable

    if path is None:
        return
    if os.path.lexists(path) and not os.path.isdir(path):
        raise StorageError(
            f"--study: '{path}' is not a folder", field="study", hint="choose a folder for the trials of all models"
        )
    check_writable(Path(path) / "trials")


def _models_and_spaces(
    model_classes: "Sequence[type[Recommender]]", *, quick: bool, thorough: bool
) -> "tuple[list[type[Recommender] | Recommender], dict[str, dict[str, Dimension | None]]]":
    """Return the models to compare, and changes to their search spaces."""
    from shortlist.recommenders.alternating import Alternating
    from shortlist.recommenders.search_space import Choice, Increasing

    models: list[type[Recommender] | Recommender] = list(model_classes)
    spaces: dict[str, dict[str, Dimension | None]] = {}
    for k, model_class in enumerate(model_classes):
        if quick and issubclass(model_class, Alternating):
            models[k] = model_class(dim=64)
            spaces[model_class.__name__] = {"dim": None}
        elif thorough and issubclass(model_class, Alternating):
            spaces[model_class.__name__] = {"dim": Increasing(64, 128, 256, 512)}
        elif thorough and model_class.__name__ == "SLIM":
            spaces[model_class.__name__] = {"positive": Choice(True, False)}
    return models, spaces


def _published_validation(loaded: LoadedEvents, split: "Split") -> "Split | None":
    """Return the published validation split if the test split is the published one."""
    return loaded.validation if split is loaded.split else None


# --- output ----------------------------------------------------------------------------------------------------------


def show_comparison(result: "TunedComparison", output: Output) -> None:
    """Print the metrics of all models, their differences to the best one, and their fit times."""
    from shortlist.tuning.tuned_comparison import interval

    rows = [(row, row.result) for row in result.rows if row.result is not None]
    first = rows[0][1]
    metrics = [*first.accuracy, *first.beyond_accuracy]
    output.title(f"Means over {count(first.contexts.height, 'context')} ± standard error (without ±: descriptive only)")
    output.table(
        ["model", *metrics],
        [
            [
                row.name,
                *map(scores.text, scores.accuracy),
                *(f"{scores[name]:.4f}" for name in scores.beyond_accuracy),
            ]
            for row, scores in rows
        ],
        right=metrics,
    )
    output.line()
    confidence = "" if result.comparison is None else f", {result.comparison.confidence:.0%} interval"
    output.title(
        f"Differences to the best in {result.metric}{confidence}; * the fastest of the models that are as good"
    )
    output.table(
        ["model", "to best", "interval", "verdict", "trials", "fit s", ""],
        [
            [
                row.name,
                "" if row.verdict == "best" else f"{row.difference:+.4f}",
                "" if row.verdict == "best" else interval(row, "{} … {}"),
                row.verdict,
                str(row.trials) if row.trials else "–",
                f"{row.fit_seconds:.2f}",
                "*" if row.frontier else "",
            ]
            for row, _ in rows
        ],
        right=["to best", "interval", "trials", "fit s"],
    )
    for row in result.rows:
        if row.reason is not None:
            output.line(f"{row.name} was skipped: {row.reason}")


def _document(result: "TunedComparison") -> dict[str, Any]:
    return {
        "metric": result.metric,
        "models": [_row(row) for row in result.rows],
        "comparison": None if result.comparison is None else result.comparison.rows,
        "winner": result.winner.name,
        "verdict": result.verdict,
    }


def _row(row: "TunedModel") -> dict[str, Any]:
    metrics: dict[str, Any] | None = None
    if row.result is not None:
        metrics = {name: {"mean": row.result[name], "stderr": row.result.stderr[name]} for name in row.result}
    names = ("settings", "start", "difference", "low", "high", "verdict", "frontier", "validation", "trials")
    facts = {name: getattr(row, name) for name in (*names, "search_seconds", "fit_seconds", "reason")}
    return {"model": row.name, "metrics": metrics, **facts}
