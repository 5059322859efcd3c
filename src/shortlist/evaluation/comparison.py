"""Which differences between models are real."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import number, whole
from shortlist._threads import single_threaded_blas
from shortlist.errors import SettingError
from shortlist.evaluation.result import FIRST, Evaluation, is_beyond_accuracy
from shortlist.metrics import parse_metric

Values: TypeAlias = npt.NDArray[np.float64]
FEW = 10  # contexts; drawn from fewer, an interval is narrower than it should be


@dataclass(frozen=True, eq=False)
class Comparison:
    """Evaluations on the same contexts, metric by metric, with paired bootstrap intervals.

    By accuracy each is compared with the best. Metrics beyond accuracy have no best: each is compared with the first,
    and `worse` is None.
    """

    rows: list[dict[str, Any]]
    confidence: float

    def to_polars(self) -> pl.DataFrame:
        """A row for each metric and model: mean, standard error, difference and its interval.

        The interval is NaN for coverage and gini, where there is one number for all contexts and nothing to draw from,
        and where there are fewer than ten contexts.
        """
        return pl.DataFrame(self.rows, schema_overrides={"worse": pl.Boolean}, infer_schema_length=None)

    def best(self, metric: str) -> list[str]:
        """The best model by this metric and those that cannot be told from it."""
        with suppress(SettingError):
            metric = str(parse_metric(metric))  # by another of its names
        rows = [row for row in self.rows if row["metric"] == metric] if isinstance(metric, str) else []
        if not rows:
            there = ", ".join(dict.fromkeys(row["metric"] for row in self.rows))
            raise SettingError(f"{metric!r:.80} was not compared; there are {there}")
        if rows[0]["worse"] is None:
            raise SettingError(
                f"of {metric!r} more is neither better nor worse; ask for the best by an accuracy metric"
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
            lines += [f"  {row['model']:<{width}}  {_told(row, row is rows[0])}" for row in rows]
        return "\n".join(lines)


def verdict_of(row: dict[str, Any]) -> str:
    """What a row of a comparison by accuracy says about its model."""
    if row["difference"] == row["low"] == row["high"] == 0:
        return "best"
    if np.isnan(row["low"]):
        return "too few contexts to tell"
    return "worse" if row["worse"] else "no real difference"


def _told(row: dict[str, Any], first: bool) -> str:
    if np.isnan(row["mean"]):
        return "not defined for any context"
    figure = f"{row['mean']:.4f}" + ("" if np.isnan(row["stderr"]) else f" ± {row['stderr']:.4f}")
    if row["worse"] is None and first:
        return figure
    if row["worse"] is not None and row["difference"] == row["low"] == row["high"] == 0:
        return f"{figure}  best"
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:+.4f}, {row['high']:+.4f}]"
    verdict = "" if row["worse"] is None else f"  {verdict_of(row)}"
    return f"{figure}  {row['difference']:+.4f}{interval}{verdict}"


def compare(
    *results: Evaluation,
    names: list[str] | None = None,
    confidence: float = 0.95,
    samples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compare evaluations of several models on the same contexts.

    For each metric the model with the highest mean is compared with every other one: contexts are drawn with
    replacement `samples` times, the same ones for both (Efron's percentile interval on paired differences). A model is
    called worse where the interval lies below zero. Fewer than ten contexts are too few to tell.

    Metrics beyond accuracy know no better and no worse: there every model is compared with the first, in the order
    given, and the difference has an interval (but for coverage and gini) and no verdict.

    Args:
        results: from `evaluate`, on the same split. Of two stages what they are as a whole is compared; for stage one
            beside it, `compare(*result.stages())`.
        names: what to call them; the models' class names by default.
        confidence: of the intervals.
        samples: bootstrap samples.
        seed: of the samples.
    """
    if len(results) < 2:
        raise SettingError(f"compare needs at least two evaluations, got {len(results)}")
    for result in results:
        if not isinstance(result, Evaluation):
            raise SettingError(f"compare takes evaluations, got {type(result).__name__}; make them with evaluate")
    number("confidence", confidence, above=True)
    if not confidence < 1:
        raise SettingError(f"confidence is {confidence!r}; expected a share below 1")
    whole("samples", samples)
    whole("seed", seed, least=0)
    first = results[0]
    for other in results[1:]:
        if not first.contexts.equals(other.contexts):
            raise SettingError("the evaluations are of different contexts; compare models on one and the same split")
        if other.protocol != first.protocol:
            raise SettingError(
                f"the evaluations followed different protocols, so that their figures mean different things: "
                f"{first.protocol!r} and {other.protocol!r}"
            )
        if _metrics(other) != _metrics(first):
            raise SettingError(f"the evaluations have different metrics: {_metrics(first)} and {_metrics(other)}")
    labels = _distinct([result.model for result in results]) if names is None else _checked_names(names, len(results))
    rows: list[dict[str, Any]] = []
    unlike: list[tuple[dict[str, Any], Values]] = []  # rows that need an interval, and the differences it is of
    for metric in _metrics(first):
        neutral = is_beyond_accuracy(metric)
        means = [result[metric] for result in results]
        best = int(np.argmax(np.nan_to_num(means, nan=-np.inf)))  # NaN: defined for no context
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
            if k != reference and not overall and len(difference) >= FEW:
                unlike.append((row, difference))
    _add_intervals(unlike, confidence, samples, seed)
    return Comparison(rows, confidence)


def _add_intervals(unlike: list[tuple[dict[str, Any], Values]], confidence: float, samples: int, seed: int) -> None:
    """Percentiles of the mean under resampling, with the same draws for all that have as many contexts."""
    by_size: dict[int, list[tuple[dict[str, Any], Values]]] = {}
    for one in unlike:
        by_size.setdefault(len(one[1]), []).append(one)
    for n, group in by_size.items():
        values = np.array([difference for _, difference in group])
        means = np.empty((samples, len(group)))
        rng = np.random.default_rng([seed, 5])
        with single_threaded_blas():
            for s in range(samples):
                times = np.bincount(rng.integers(0, n, n), minlength=n)  # how often each context was drawn
                means[s] = values @ times / n
        lows, highs = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
        for (row, _), low, high in zip(group, lows, highs):
            row["low"], row["high"] = float(low), float(high)
            row["worse"] = None if row["worse"] is None else bool(high < 0)


def _checked_names(names: object, n: int) -> list[str]:
    listed = list(names) if isinstance(names, list | tuple) else []
    if len(listed) != n or not all(isinstance(name, str) for name in listed) or len(set(listed)) < n:
        raise SettingError(f"names is {names!r:.200}; expected a list of {n} different names")
    return listed


def _metrics(result: Evaluation) -> list[str]:
    """All but those of stage one."""
    return [name for name in result if not name.startswith(FIRST)]


def _distinct(names: list[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name} {k + 1}" for k, name in enumerate(names)]
