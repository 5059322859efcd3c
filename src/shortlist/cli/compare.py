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
from shortlist.cli.fit import check_target, fit_tuned, to_learn_from
from shortlist.cli.next_steps import fit_commands, lines
from shortlist.cli.output import Output
from shortlist.cli.split_options import By, FoldIn, Repeated, SplitOptions, Test, show_split, split_document
from shortlist.cli.tune import how_to_go_on, in_seconds
from shortlist.errors import StorageError

if TYPE_CHECKING:
    from shortlist.data.splits import Split
    from shortlist.recommenders.base import Recommender
    from shortlist.recommenders.search_space import Dimension
    from shortlist.tuning.tuned_comparison import TunedComparison, TunedModel

_SEARCH = "Search"


@dataclass(frozen=True)
class SearchBudget:
    """Who takes part, and what each of them may take."""

    models: tuple[str, ...]
    trials: int | None
    seconds: float | None


_QUICK = SearchBudget(("popularity", "itemknn", "ease", "ials"), 40, 30.0)
_USUAL = SearchBudget(("popularity", "itemknn", "userknn", "ease", "slim", "ials"), None, 180.0)
_THOROUGH = replace(_USUAL, seconds=1200.0)


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
            help=f"One of {', '.join(opt.MODELS)}; may be repeated. By default {', '.join(_USUAL.models)}; popularity "
            "always takes part.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help=f"Only {', '.join(_QUICK.models)}, with 30 seconds or 40 trials each, ials with dim 64.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough",
            help="20 minutes each instead of 3, and more settings: ials up to dim 512.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many settings to try for each model, those of earlier calls included.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="How long to search for each model, earlier calls included.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Every trial is kept in a file for each model, and the same command goes on from there after a break.",
            rich_help_panel=_SEARCH,
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(help="By which models are told apart, and settings found.", autocompletion=completion.metric),
    ] = "ndcg@20",
    metrics: Annotated[
        str,
        typer.Option(help="To be shown beside it, with commas between.", autocompletion=completion.metrics),
    ] = "recall@20,ndcg@20",
    split: By = None,
    test: Test = None,
    repeats: Repeated = None,
    fold_in: FoldIn = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the search, of random splits and of the order of equal scores.")
    ] = 0,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Fit the winner to all events and save it to this directory; a Shortlist model that is there is "
            "replaced.",
            show_default=False,
        ),
    ] = None,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    r"""Which model to take: tune each with the same budget, measure all on events they have not seen.

    Settings are found on a part of the training events; the test is asked for once. Differences are told from chance.

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

    say = Output(ctx, as_json=as_json, quiet=quiet)
    source = EventSource.of(ctx.params)
    splitting = SplitOptions(split, test, repeats, fold_in, seed)
    if quick and thorough:
        raise typer.BadParameter("one of the two", param_hint="--quick and --thorough")
    effort = _QUICK if quick else _THOROUGH if thorough else _USUAL
    if trials is not None or minutes is not None:
        effort = replace(effort, trials=trials, seconds=in_seconds(minutes))
    kinds = [recommender_class(name) for name in model or effort.models]
    FitOptions(metric=metric)  # refuses what makes no sense
    parse_metrics(metrics)
    if out is not None:
        check_target(out)
    check_folder(study)
    optuna()  # or an error that says how to get it
    found = source.read(say)
    parts = splitting.split(found, data, say)
    inner = _published_validation(found, parts)
    if inner is None:
        inner = validation_within(parts, fold_in=fold_in, seed=seed)
    say.note(f"settings are found on the split of the training part by {inner.protocol}")
    entrants, spaces = _entered(kinds, quick=quick, thorough=thorough)
    try:
        result = compare_tuned(
            parts,
            models=entrants,
            spaces=spaces,
            validation=inner,
            metric=metric,
            metrics=metrics,
            trials=effort.trials,
            seconds=effort.seconds,
            study=study,
            seed=seed,
            threads=threads,
            progress=not quiet,
        )
        refit_seconds = None
        if out is not None:
            best, events = result.winner, to_learn_from(found, say)
            kind = recommender_class(best.name)
            recommender, refit_seconds = fit_tuned(kind, best.settings, best.start, events, say, threads)
            recommender.save(out)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(how_to_go_on(study, "FOLDER")) from None
    winner = result.winner
    place = out or f"models/{winner.name.lower()}"
    kind = recommender_class(winner.name)
    commands = fit_commands(source, kind, winner.settings, winner.start, winner.searched, place)
    if say.json:
        say.document(
            {
                "data": found.summary(),
                "split": split_document(parts),
                "validation": split_document(inner),
                **_document(result),
                "refit_seconds": refit_seconds,
                "path": out,
                "command": " && ".join(" ".join(command) for command in commands),
            }
        )
        return
    show_split(parts, say)
    say.line()
    show_contest(result, say)
    say.line()
    say.line(result.verdict[0].upper() + result.verdict[1:] + ".")
    say.line()
    if refit_seconds is not None:
        say.line(f"{winner.name} was fitted to all events in {refit_seconds:.1f} s and saved to {out}. The same again:")
    else:
        say.line(f"To fit {winner.name} with its best settings to all events:")
    say.line()
    for command in commands:
        for one in lines(command):
            say.line(one)


def check_folder(path: str | None) -> None:
    """Refuse, before any work is done, a place where no folder with files can be."""
    from shortlist.storage import check_writable

    if path is None:
        return
    if os.path.lexists(path) and not os.path.isdir(path):
        raise StorageError(f"--study: '{path}' is no folder; name one, for a file of each model's trials")
    check_writable(Path(path) / "trials")


def _entered(
    kinds: "Sequence[type[Recommender]]", *, quick: bool, thorough: bool
) -> "tuple[list[type[Recommender] | Recommender], dict[str, dict[str, Dimension | None]]]":
    """The models as they take part, and what is searched of them otherwise than usual."""
    from shortlist.recommenders.alternating import Alternating
    from shortlist.recommenders.search_space import Choice, Increasing

    entrants: list[type[Recommender] | Recommender] = list(kinds)
    spaces: dict[str, dict[str, Dimension | None]] = {}
    for k, kind in enumerate(kinds):
        if quick and issubclass(kind, Alternating):
            entrants[k] = kind(dim=64)
            spaces[kind.__name__] = {"dim": None}
        elif thorough and issubclass(kind, Alternating):
            spaces[kind.__name__] = {"dim": Increasing(64, 128, 256, 512)}
        elif thorough and kind.__name__ == "SLIM":
            spaces[kind.__name__] = {"positive": Choice(True, False)}
    return entrants, spaces


def _published_validation(found: LoadedEvents, split: "Split") -> "Split | None":
    """The one that was published with the test, where that is what is asked for."""
    return found.validation if split is found.split else None


# --- what is said ----------------------------------------------------------------------------------------------------


def show_contest(result: "TunedComparison", say: Output) -> None:
    """How good each is and what its lists are like; which differences are real and what each costs."""
    from shortlist.tuning.tuned_comparison import interval

    rows = [(row, row.result) for row in result.rows if row.result is not None]
    first = rows[0][1]
    metrics = [*first.accuracy, *first.beyond_accuracy]
    say.title(f"Means over {count(first.contexts.height, 'context')} ± standard error, and what the lists are like")
    say.table(
        ["model", *metrics],
        [
            [row.name, *map(own.figure, own.accuracy), *(f"{own[name]:.4f}" for name in own.beyond_accuracy)]
            for row, own in rows
        ],
        right=metrics,
    )
    say.line()
    sure = "" if result.comparison is None else f", {result.comparison.confidence:.0%} interval"
    say.title(f"Differences to the best in {result.metric}{sure}; * none as good fits faster")
    say.table(
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
            say.line(f"{row.name} was left out: {row.reason}")


def _document(result: "TunedComparison") -> dict[str, Any]:
    return {
        "metric": result.metric,
        "models": [_row(row) for row in result.rows],
        "comparison": None if result.comparison is None else result.comparison.rows,
        "winner": result.winner.name,
        "verdict": result.verdict,
    }


def _row(row: "TunedModel") -> dict[str, Any]:
    figures: dict[str, Any] | None = None
    if row.result is not None:
        figures = {name: {"mean": row.result[name], "stderr": row.result.stderr[name]} for name in row.result}
    names = ("settings", "start", "difference", "low", "high", "verdict", "frontier", "validation", "trials")
    told = {name: getattr(row, name) for name in (*names, "search_seconds", "fit_seconds", "reason")}
    return {"model": row.name, "metrics": figures, **told}
