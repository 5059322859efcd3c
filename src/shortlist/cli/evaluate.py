"""`shortlist evaluate`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shortlist._phrases import count
from shortlist.cli import completion
from shortlist.cli import options as opt
from shortlist.cli.events import EventSource
from shortlist.cli.fit import fit_with_progress
from shortlist.cli.model_settings import make_models
from shortlist.cli.output import Output, Stopwatch
from shortlist.cli.slate_options import Diversity, Pool, Slates, Strength, slate_of
from shortlist.cli.split_options import By, FoldIn, Repeated, Seed, SplitOptions, Test, show_split, split_document

if TYPE_CHECKING:
    from shortlist.data.splits import Split
    from shortlist.evaluation import Comparison, Evaluation
    from shortlist.recommenders.base import Recommender
    from shortlist.retrieval.slates import Slate


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
            help=f"Model to evaluate: {', '.join(opt.MODELS)}; may be repeated. Default: ials.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None,
    settings: opt.Settings = None,
    split: By = None,
    test: Test = None,
    repeats: Repeated = None,
    fold_in: FoldIn = None,
    seed: Seed = 0,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Metrics, comma-separated. Accuracy: recall@20, ndcg@100, hit@10, ap@10, mrr, auc. Beyond accuracy: "
            "coverage@20, gini@20, popularity@20, novelty@20, distance@20, cold_share@20, miscalibration@20. Default: "
            "recall@20, ndcg@20 and all beyond-accuracy metrics except miscalibration@20.",
            show_default=False,
            autocompletion=completion.metrics,
        ),
    ] = None,
    slate: Slates = None,
    diversity: Diversity = None,
    strength: Strength = None,
    pool: Pool = None,
    config: opt.Config = None,
    threads: opt.Threads = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    r"""Split events into training and test data, fit models, and measure how well they predict the test data.

    Prints means over contexts (users) with standard errors. With several models, also tests
    which of them differ significantly from the best one.

    For example:

      shortlist evaluate events.csv --context user --item product \
        --time when --model ease --model ials --set ials.dim=64

      shortlist evaluate ml-1m/ --min-rating 4 --model ease

      shortlist evaluate online-retail --slate mmr --diversity 0.3
    """
    from shortlist.evaluation.evaluate import DEFAULT_METRICS
    from shortlist.evaluation.slate_search import check_depths
    from shortlist.metrics import parse_metrics

    output = Output(ctx, as_json=as_json, quiet=quiet)
    source = EventSource.of(ctx.params)
    splitting = SplitOptions(split, test, repeats, fold_in, seed)
    parsed = parse_metrics(DEFAULT_METRICS if metrics is None else metrics)
    picked = slate_of(slate, diversity, strength, pool)
    if picked is not None:
        check_depths(picked, parsed)
    models = make_models(model or ["ials"], settings or [], ctx.obj.stored)
    loaded = source.read(output)
    parts = splitting.split(loaded, data, output)
    tried = try_models(
        models, parts, [str(metric) for metric in parsed], output, slate=picked, seed=seed, threads=threads
    )
    comparison = compared(tried)
    if output.json:
        output.document({"data": loaded.summary(), **as_document(parts, tried, comparison)})
    else:
        show_split(parts, output)
        output.line()
        show_results(tried, comparison, output)


@dataclass(frozen=True)
class ModelResult:
    """A fitted model, its evaluation, and the seconds of both."""

    model: "Recommender"
    result: "Evaluation"
    fit_seconds: float
    evaluate_seconds: float


def try_models(
    models: "Sequence[Recommender]",
    split: "Split",
    metrics: list[str],
    output: Output,
    *,
    slate: "Slate | None" = None,
    seed: int = 0,
    threads: int | None = None,
) -> list[ModelResult]:
    """Fit and evaluate each of the models."""
    from shortlist.evaluation import evaluate as measure

    tried = []
    for model in models:
        seconds = fit_with_progress(model, split.train, output, threads)
        with Stopwatch() as watch:
            result = measure(model, split, metrics, slate=slate, seed=seed, threads=threads)
        tried.append(ModelResult(model, result, seconds, watch.seconds))
    return tried


def compared(tried: list[ModelResult]) -> "Comparison | None":
    """Compare the results if there are several models."""
    from shortlist.evaluation import compare

    return compare(*(model.result for model in tried)) if len(tried) > 1 else None


def show_results(tried: list[ModelResult], comparison: "Comparison | None", output: Output) -> None:
    """Print the metrics of all models, and the differences to the best model."""
    first = tried[0].result
    if first.accuracy:
        columns = [*first.accuracy, "fit s"]
        rows = [
            [entry.result.model, *map(entry.result.text, first.accuracy), f"{entry.fit_seconds:.1f}"] for entry in tried
        ]
        output.title(f"Means over {count(first.contexts.height, 'context')} ± standard error")
        output.table(["model", *columns], rows, right=columns)
        if comparison is not None:
            output.line()
            _show_verdicts(comparison, first.accuracy, output)
        if first.beyond_accuracy:
            output.line()
    if metrics := first.beyond_accuracy:
        # No standard errors here: six metrics are wide enough. --json has them.
        rows = [[entry.result.model, *(f"{entry.result[metric]:.4f}" for metric in metrics)] for entry in tried]
        output.title("Beyond accuracy (descriptive only)")
        output.table(["model", *metrics], rows, right=metrics)


def _show_verdicts(comparison: "Comparison", metrics: list[str], output: Output) -> None:
    from shortlist.evaluation.comparison import verdict_of

    output.title(f"Differences to the best model ({comparison.confidence:.0%} interval)")
    verdicts = []
    for row in comparison.rows:
        if row["metric"] not in metrics:
            continue
        verdict = verdict_of(row)
        difference = "" if verdict == "best" else f"{row['difference']:+.4f}"
        has_interval = verdict != "best" and not math.isnan(row["low"])
        interval = f"{row['low']:+.4f} … {row['high']:+.4f}" if has_interval else ""
        verdicts.append([row["metric"], row["model"], difference, interval, verdict])
    output.table(["metric", "model", "difference", "interval", "verdict"], verdicts, right=["difference", "interval"])


def as_document(split: "Split", tried: list[ModelResult], comparison: "Comparison | None") -> dict[str, Any]:
    """Return split, results and comparison for JSON."""
    return {
        "split": split_document(split),
        "models": [
            {
                "model": entry.result.model,
                "settings": entry.model.settings(),
                "metrics": {
                    metric: {"mean": entry.result[metric], "stderr": entry.result.stderr[metric]}
                    for metric in entry.result
                },
                "fit_seconds": entry.fit_seconds,
                "evaluate_seconds": entry.evaluate_seconds,
            }
            for entry in tried
        ],
        "comparison": None if comparison is None else comparison.rows,
    }
