"""`shortlist evaluate`."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from shortlist.cli import completing
from shortlist.cli import options as opt
from shortlist.cli.events import Source
from shortlist.cli.fit import fit_with_progress
from shortlist.cli.output import Output, Stopwatch
from shortlist.cli.settings import make_models
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data.interactions import Interactions
    from shortlist.data.splits import Split
    from shortlist.evaluation import Comparison, Evaluation
    from shortlist.recommenders.base import Recommender


class SplitBy(StrEnum):
    """How events are split."""

    TIME = "time"
    LAST = "last"
    RANDOM = "random"
    CONTEXTS = "contexts"


class Repeats(StrEnum):
    """Whether pairs of the training part count as right answers."""

    DROP = "drop"
    KEEP = "keep"


_SPLIT = "Split"


def evaluate(
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
            help=f"One of {', '.join(opt.MODELS)}; may be repeated. By default ials.",
            show_default=False,
            autocompletion=completing.models,
        ),
    ] = None,
    settings: opt.Settings = None,
    split: Annotated[
        SplitBy | None,
        typer.Option(
            help="What to ask for: what came after a moment in time, each context's last event, random events, or part "
            "of the events of contexts that are held out. By default as published, where there is such a split, else "
            "by time.",
            rich_help_panel=_SPLIT,
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="The share to ask for, 0.1 by default. By time also the moment (2011-11-01), by last how many events "
            "(1 by default), by contexts how many contexts.",
            rich_help_panel=_SPLIT,
        ),
    ] = None,
    repeats: Annotated[
        Repeats | None,
        typer.Option(help="Whether pairs of the training part count as right answers.", rich_help_panel=_SPLIT),
    ] = None,
    fold_in: Annotated[
        float | None,
        typer.Option(
            help="By contexts: the share of a held-out context's pairs that is shown, 0.8 by default.",
            rich_help_panel=_SPLIT,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            help="Of random splits and of the order of equal scores. A model's own seed is --set seed=1.",
            rich_help_panel=_SPLIT,
        ),
    ] = 0,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="With commas between: recall@20, ndcg@100, hit@10, ap@10, mrr, auc; beyond accuracy coverage@20, "
            "gini@20, popularity@20, novelty@20, distance@20, untrained@20. By default recall@20, ndcg@20 and these "
            "six.",
            show_default=False,
            autocompletion=completing.metrics,
        ),
    ] = None,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    r"""Split a file of events, fit models to one part, and measure how well they foresee the other.

    Means over contexts come with their standard errors; of several models, it is said which differences are real.

    For example:

      shortlist evaluate events.csv --context user --item product \
        --time when --model ease --model ials --set ials.dim=64

      shortlist evaluate ml-1m/ --min-rating 4 --model ease
    """
    from shortlist.evaluation.evaluate import DEFAULT_METRICS
    from shortlist.metrics import parse_metrics

    say = Output(ctx, as_json=as_json, quiet=quiet)
    source = Source.of(ctx.params)
    if split is SplitBy.CONTEXTS and repeats is not None:
        raise typer.BadParameter("a split by contexts has no repeats", param_hint="--repeats")
    if split is not SplitBy.CONTEXTS and fold_in is not None:
        raise typer.BadParameter("it is for --split contexts", param_hint="--fold-in")
    wanted = [str(metric) for metric in parse_metrics(DEFAULT_METRICS if metrics is None else metrics)]
    models = make_models(model or ["ials"], settings or [], ctx.obj.stored)
    found = source.read(say)
    if split is None and found.split is not None:
        if test is not None or repeats is not None:
            message = f"the split is {found.split.protocol}; to make another, pass --split too"
            raise typer.BadParameter(message, param_hint="--test and --repeats")
        parts = found.split
        say.note(f"split by {parts.protocol}")
        if found.candidates is not None:
            say.note("every item is ranked; figures published for its candidates only cannot be compared with these")
    else:
        if found.split is not None:
            say.note(f"the test of {found.split.protocol} stays aside: the split is made of the other events")
        by = split or SplitBy.TIME
        if found.layout is not None and found.events.times is None and by in (SplitBy.TIME, SplitBy.LAST):
            published = "leave --split out for the published one, or " if found.split is not None else ""
            raise DataError(
                f"{data}: data in the layout {found.layout} has no times, which --split {by} needs; {published}pass "
                "--split random or --split contexts"
            )
        parts = _split(found.events, by, test, repeats, fold_in, seed)
    tried = try_models(models, parts, wanted, say, seed=seed, threads=threads)
    comparison = compared(tried)
    if say.json:
        say.document({"data": found.summary(), **as_document(parts, tried, comparison)})
    else:
        show_split(parts, say)
        say.line()
        show_results(tried, comparison, say)


@dataclass(frozen=True)
class Tried:
    """A model, how long it took, and how good it was."""

    model: "Recommender"
    result: "Evaluation"
    fit_seconds: float
    evaluate_seconds: float


def try_models(
    models: "Sequence[Recommender]",
    split: "Split",
    metrics: list[str],
    say: Output,
    *,
    seed: int = 0,
    threads: int | None = None,
) -> list[Tried]:
    """Fit and evaluate each of the models."""
    from shortlist.evaluation import evaluate as measure

    tried = []
    for model in models:
        seconds = fit_with_progress(model, split.train, say, threads)
        with Stopwatch() as watch:
            result = measure(model, split, metrics, seed=seed, threads=threads)
        tried.append(Tried(model, result, seconds, watch.seconds))
    return tried


def compared(tried: list[Tried]) -> "Comparison | None":
    """Which differences are real, where there are several models."""
    from shortlist.evaluation import compare

    return compare(*(one.result for one in tried)) if len(tried) > 1 else None


def show_split(split: "Split", say: Output) -> None:
    """What is learnt from, what is asked for, what was dropped."""
    train, truth = split.train, split.truth
    say.title(f"Split by {split.protocol}, repeats {'dropped' if split.repeats == 'drop' else 'kept'}")
    strangers = ", not in train: their history is folded in" if split.fold_in else ""
    dropped = [f"{count:,} {what}" for what, count in split.dropped.items() if count]
    say.facts(
        [
            ("train", f"{len(train):,} events of {train.n_contexts:,} contexts with {train.n_items:,} items"),
            ("truth", f"{len(truth):,} pairs of {truth.n_contexts:,} contexts{strangers}"),
            ("dropped", dropped[0] if dropped else "nothing"),
            *(("", one) for one in dropped[1:]),
        ]
    )


def show_results(tried: list[Tried], comparison: "Comparison | None", say: Output) -> None:
    """The metrics of every model, which differences are real, and what the lists are like."""
    first = tried[0].result
    if first.accuracy:
        columns = [*first.accuracy, "fit s"]
        rows = [[one.result.model, *map(one.result.figure, first.accuracy), f"{one.fit_seconds:.1f}"] for one in tried]
        say.title(f"Means over {first.contexts.height:,} contexts ± standard error")
        say.table(["model", *columns], rows, right=columns)
        if comparison is not None:
            say.line()
            _show_verdicts(comparison, first.accuracy, say)
        if first.beyond_accuracy:
            say.line()
    if metrics := first.beyond_accuracy:
        # Without standard errors, which --json has: six metrics are wide enough.
        rows = [[one.result.model, *(f"{one.result[metric]:.4f}" for metric in metrics)] for one in tried]
        say.title("What the lists are like, beyond accuracy (more is neither better nor worse)")
        say.table(["model", *metrics], rows, right=metrics)


def _show_verdicts(comparison: "Comparison", metrics: list[str], say: Output) -> None:
    from shortlist.evaluation.comparison import verdict_of

    say.title(f"Which differences are real (to the best, {comparison.confidence:.0%} interval)")
    verdicts = []
    for row in (one for one in comparison.rows if one["metric"] in metrics):
        verdict = verdict_of(row)
        difference = "" if verdict == "best" else f"{row['difference']:+.4f}"
        told = verdict != "best" and not math.isnan(row["low"])
        interval = f"{row['low']:+.4f} … {row['high']:+.4f}" if told else ""
        verdicts.append([row["metric"], row["model"], difference, interval, verdict])
    say.table(["metric", "model", "difference", "interval", "verdict"], verdicts, right=["difference", "interval"])


def as_document(split: "Split", tried: list[Tried], comparison: "Comparison | None") -> dict[str, Any]:
    """Split, results and comparison for JSON."""
    return {
        "split": {
            "protocol": split.protocol,
            "repeats": split.repeats,
            "fold_in": split.fold_in,
            "train": {
                "events": len(split.train),
                "contexts": split.train.n_contexts,
                "items": split.train.n_items,
            },
            "truth": {"pairs": len(split.truth), "contexts": split.truth.n_contexts},
            "dropped": split.dropped,
        },
        "models": [
            {
                "model": one.result.model,
                "settings": one.model.settings(),
                "metrics": {
                    metric: {"mean": one.result[metric], "stderr": one.result.stderr[metric]} for metric in one.result
                },
                "fit_seconds": one.fit_seconds,
                "evaluate_seconds": one.evaluate_seconds,
            }
            for one in tried
        ],
        "comparison": None if comparison is None else comparison.rows,
    }


def _split(
    events: "Interactions",
    by: SplitBy,
    test: str | None,
    repeats: Repeats | None,
    fold_in: float | None,
    seed: int,
) -> "Split":
    from shortlist.data import splits

    part: Any = (1 if by is SplitBy.LAST else 0.1) if test is None else _number_or_text(test)
    kept: Literal["drop", "keep"] = "keep" if repeats is Repeats.KEEP else "drop"
    if by is SplitBy.TIME:
        return splits.by_time(events, part, repeats=kept)
    if by is SplitBy.LAST:
        return splits.leave_last_out(events, part, repeats=kept)
    if by is SplitBy.RANDOM:
        return splits.at_random(events, part, seed=seed, repeats=kept)
    return splits.held_out_contexts(events, part, fold_in=0.8 if fold_in is None else fold_in, seed=seed)


def _number_or_text(text: str) -> int | float | str:
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text
