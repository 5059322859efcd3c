"""Which differences between models are real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._settings import number, whole
from shortlist.errors import SettingError
from shortlist.evaluation.result import Evaluation


@dataclass(frozen=True, eq=False)
class Comparison:
    """Evaluations on the same contexts, each against the best, metric by metric, with paired bootstrap intervals."""

    rows: list[dict[str, Any]]
    confidence: float

    def to_polars(self) -> pl.DataFrame:
        """A row for each metric and model: mean, standard error, difference to the best and its interval."""
        return pl.DataFrame(self.rows)

    def best(self, metric: str) -> list[str]:
        """The best model by this metric and those that cannot be told from it."""
        rows = [row for row in self.rows if row["metric"] == metric]
        if not rows:
            raise SettingError(
                f"{metric!r} was not compared; there are {', '.join({row['metric'] for row in self.rows})}"
            )
        return [row["model"] for row in rows if not row["worse"]]

    def __repr__(self) -> str:
        width = max(len(row["model"]) for row in self.rows)
        lines = []
        for metric in dict.fromkeys(row["metric"] for row in self.rows):
            lines.append(f"{metric} (difference to the best with its {self.confidence:.0%} interval)")
            for row in (one for one in self.rows if one["metric"] == metric):
                line = f"  {row['model']:<{width}}  {row['mean']:.4f} ± {row['stderr']:.4f}"
                if np.isnan(row["mean"]):
                    line = f"  {row['model']:<{width}}  not defined for any context"
                elif row["difference"] == 0 and row["low"] == 0 and row["high"] == 0:
                    line += "  best"
                else:
                    verdict = "worse" if row["worse"] else "no real difference"
                    line += f"  {row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]  {verdict}"
                lines.append(line)
        return "\n".join(lines)


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
    called worse where the interval lies below zero.

    Args:
        results: from `evaluate`, on the same split.
        names: what to call them; the models' class names by default.
        confidence: of the intervals.
        samples: bootstrap samples.
        seed: of the samples.
    """
    if len(results) < 2:
        raise SettingError(f"compare needs at least two evaluations, got {len(results)}")
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
        if list(other) != list(first):
            raise SettingError(f"the evaluations have different metrics: {list(first)} and {list(other)}")
    labels = names or _distinct([result.model for result in results])
    if len(labels) != len(results) or len(set(labels)) != len(labels):
        raise SettingError(f"names is {labels!r}; expected {len(results)} different names")
    rows = []
    for metric in first:
        means = [result[metric] for result in results]
        best = int(np.argmax(np.nan_to_num(means, nan=-np.inf)))  # NaN: defined for no context
        for k in np.argsort([-mean for mean in means], kind="stable"):
            difference = results[k].of(metric) - results[best].of(metric)
            difference = difference[np.isfinite(difference)]
            same = k == best or not len(difference)
            low, high = (0.0, 0.0) if same else _interval(difference, confidence, samples, seed)
            rows.append(
                {
                    "metric": metric,
                    "model": labels[k],
                    "mean": means[k],
                    "stderr": results[k].stderr[metric],
                    "difference": float(difference.mean()) if len(difference) else 0.0,
                    "low": low,
                    "high": high,
                    "worse": high < 0,
                }
            )
    return Comparison(rows, confidence)


def _interval(values: npt.NDArray[np.float64], confidence: float, samples: int, seed: int) -> tuple[float, float]:
    """Percentiles of the mean under resampling."""
    rng = np.random.default_rng([seed, 5])
    n = len(values)
    means = np.empty(samples)
    for s in range(samples):
        means[s] = values[rng.integers(0, n, n)].mean()
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _distinct(names: list[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name} {k + 1}" for k, name in enumerate(names)]
