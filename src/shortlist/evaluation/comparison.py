"""Compare evaluations: which differences between models are larger than chance."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import integer, number
from shortlist._threads import single_threaded_blas
from shortlist.errors import SettingError
from shortlist.evaluation.result import FIRST, Evaluation, is_beyond_accuracy
from shortlist.metrics import parse_metric

Values: TypeAlias = npt.NDArray[np.float64]
MIN_CONTEXTS = 10  # with fewer contexts, a bootstrap interval is too narrow


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of `compare`: differences between models for each metric, with paired bootstrap intervals.

    `print(comparison)` shows a table, `to_polars()` returns it as a frame, `best(metric)` names the best models.

    For an accuracy metric, each model is compared with the best one. Metrics beyond accuracy have no best: each model
    is compared with the first one given, and `worse` is None.
    """

    rows: list[dict[str, Any]]
    confidence: float

    def to_polars(self) -> pl.DataFrame:
        """Return a frame with one row per metric and model: mean, standard error, difference and its interval.

        The interval is NaN for coverage and gini, which are one number for all contexts, and for fewer than ten
        contexts.
        """
        return pl.DataFrame(self.rows, schema_overrides={"worse": pl.Boolean}, infer_schema_length=None)

    def best(self, metric: str) -> list[str]:
        """Return the best model by an accuracy metric, and all models that are not significantly worse."""
        with suppress(SettingError):
            metric = str(parse_metric(metric))  # a metric may have several names
        rows = [row for row in self.rows if row["metric"] == metric] if isinstance(metric, str) else []
        if not rows:
            compared = ", ".join(dict.fromkeys(row["metric"] for row in self.rows))
            raise SettingError(
                f"{metric!r:.80} was not compared; this comparison has {compared}",
                code="unknown-metric",
                field="metric",
            )
        if rows[0]["worse"] is None:
            raise SettingError(
                f"{metric!r} has no best model: a higher value is neither better nor worse",
                hint="pass an accuracy metric",
                field="metric",
            )
        return [row["model"] for row in rows if not row["worse"] and not np.isnan(row["mean"])]

    def __repr__(self) -> str:
        width = max(len(row["model"]) for row in self.rows)
        lines = []
        for metric in dict.fromkeys(row["metric"] for row in self.rows):
            rows = [row for row in self.rows if row["metric"] == metric]
            reference = "the best" if rows[0]["worse"] is not None else rows[0]["model"]
            interval = "" if np.isnan(rows[-1]["low"]) else f" with its {self.confidence:.0%} interval"
            lines.append(f"{metric} (difference to {reference}{interval})")
            lines += [f"  {row['model']:<{width}}  {_row_text(row, row is rows[0])}" for row in rows]
        return "\n".join(lines)


def verdict_of(row: dict[str, Any]) -> str:
    """Return the verdict on the model of a row, for an accuracy metric."""
    if row["difference"] == row["low"] == row["high"] == 0:
        return "best"
    if np.isnan(row["low"]):
        return "too few contexts to tell"
    return "worse" if row["worse"] else "no real difference"


def _row_text(row: dict[str, Any], first: bool) -> str:
    if np.isnan(row["mean"]):
        return "not defined for any context"
    mean = f"{row['mean']:.4f}" + ("" if np.isnan(row["stderr"]) else f" ± {row['stderr']:.4f}")
    if row["worse"] is None and first:
        return mean
    if row["worse"] is not None and row["difference"] == row["low"] == row["high"] == 0:
        return f"{mean}  best"
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:+.4f}, {row['high']:+.4f}]"
    verdict = "" if row["worse"] is None else f"  {verdict_of(row)}"
    return f"{mean}  {row['difference']:+.4f}{interval}{verdict}"


def compare(
    *results: Evaluation,
    names: list[str] | None = None,
    confidence: float = 0.95,
    samples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compare the evaluations of several models on the same contexts, and say which differences are real.

    For each accuracy metric, the model with the highest mean is compared with each other model by a paired bootstrap:
    contexts are drawn with replacement `samples` times, the same contexts for both models, and the interval is Efron's
    percentile interval of the mean difference. A model is worse if its interval lies below zero. Fewer than ten
    contexts are too few for a verdict.

    For metrics beyond accuracy, higher is neither better nor worse. There each model is compared with the first one
    given. Differences have an interval (except for coverage and gini) but no verdict.

    Args:
        results: at least two results of `evaluate` on the same split, with the same metrics. For a `TwoStage` both
            stages together are compared; to compare them with stage one alone, use `compare(*result.stages())`.
        names: names for the models; their class names by default.
        confidence: the confidence level of the intervals.
        samples: the number of bootstrap samples.
        seed: seed of the bootstrap samples.

    >>> import shortlist as sl
    >>> split = sl.splits.at_random(sl.datasets.synthetic(500, 100, 10_000, seed=0), test=0.2)
    >>> models = [model.fit(split.train) for model in (sl.IALS(dim=8), sl.Popularity())]
    >>> comparison = sl.compare(*(sl.evaluate(model, split, "ndcg@10") for model in models))
    >>> comparison.best("ndcg@10")
    ['IALS']
    """
    if len(results) < 2:
        raise SettingError(f"compare needs at least two evaluations, got {len(results)}", field="results")
    for result in results:
        if not isinstance(result, Evaluation):
            raise SettingError(f"compare takes results of evaluate, got {type(result).__name__}", field="results")
    number("confidence", confidence, above=True)
    if not confidence < 1:
        raise SettingError(f"confidence is {confidence!r}; expected a number < 1", field="confidence")
    integer("samples", samples)
    integer("seed", seed, least=0)
    first = results[0]
    for other in results[1:]:
        if not first.contexts.equals(other.contexts):
            raise SettingError(
                "the evaluations have different contexts", hint="evaluate all models on the same split", field="results"
            )
        if other.protocol != first.protocol:
            raise SettingError(
                "the evaluations have different protocols, so their scores are not comparable: "
                f"{first.protocol!r} and {other.protocol!r}",
                field="results",
            )
        if _metrics(other) != _metrics(first):
            raise SettingError(
                f"the evaluations have different metrics: {_metrics(first)} and {_metrics(other)}",
                field="results",
                hint="evaluate all models with the same metrics",
            )
    labels = _distinct([result.model for result in results]) if names is None else _checked_names(names, len(results))
    rows: list[dict[str, Any]] = []
    pending: list[tuple[dict[str, Any], Values]] = []  # rows that need an interval, and their differences per context
    for metric in _metrics(first):
        neutral = is_beyond_accuracy(metric)
        means = [result[metric] for result in results]
        best = int(np.argmax(np.nan_to_num(means, nan=-np.inf)))  # NaN: not defined for any context
        reference = 0 if neutral else best
        order = range(len(results)) if neutral else np.argsort([-mean for mean in means], kind="stable")
        for k in order:
            overall = not first.values_by_metric[metric].ndim
            if overall:
                difference = np.array([means[k] - means[reference]])
            else:
                difference = results[k].of(metric) - results[reference].of(metric)
            difference = difference[np.isfinite(difference)]
            low = high = 0.0 if k == reference else float("nan")
            row = {
                "metric": metric,
                "model": labels[k],
                "mean": means[k],
                "stderr": results[k].stderr[metric],
                "difference": float(difference.mean()) if len(difference) else float("nan"),
                "low": low,
                "high": high,
                "worse": None if neutral else False,
            }
            rows.append(row)
            if k != reference and not overall and len(difference) >= MIN_CONTEXTS:
                pending.append((row, difference))
    _add_intervals(pending, confidence, samples, seed)
    return Comparison(rows, confidence)


def _add_intervals(pending: list[tuple[dict[str, Any], Values]], confidence: float, samples: int, seed: int) -> None:
    """Add percentile intervals of the mean under resampling. Rows with as many contexts share the same draws."""
    by_size: dict[int, list[tuple[dict[str, Any], Values]]] = {}
    for row, difference in pending:
        by_size.setdefault(len(difference), []).append((row, difference))
    for n, group in by_size.items():
        values = np.array([difference for _, difference in group])
        means = np.empty((samples, len(group)))
        rng = np.random.default_rng([seed, 5])
        with single_threaded_blas():
            for s in range(samples):
                draws = np.bincount(rng.integers(0, n, n), minlength=n)  # how often each context was drawn
                means[s] = values @ draws / n
        lows, highs = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
        for (row, _), low, high in zip(group, lows, highs):
            row["low"], row["high"] = float(low), float(high)
            row["worse"] = None if row["worse"] is None else bool(high < 0)


def _checked_names(names: object, n: int) -> list[str]:
    listed = list(names) if isinstance(names, list | tuple) else []
    if len(listed) != n or not all(isinstance(name, str) for name in listed) or len(set(listed)) < n:
        raise SettingError(f"names is {names!r:.200}; expected a list of {n} different names", field="names")
    return listed


def _metrics(result: Evaluation) -> list[str]:
    """Return the metrics of a result, without those of stage one alone."""
    return [name for name in result if not name.startswith(FIRST)]


def _distinct(names: list[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name} {k + 1}" for k, name in enumerate(names)]
