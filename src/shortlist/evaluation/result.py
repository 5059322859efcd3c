"""The outcome of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.errors import SettingError, UnknownIdError
from shortlist.metrics import parse_metric

Values = npt.NDArray[np.float64]


class Evaluation(Mapping[str, float]):
    """Means over contexts, by metric: `result["recall@20"]`; with their standard errors and every context's value.

    A value of NaN in `values` marks a context for which the metric is not defined (AUC where every ranked item is
    relevant); means and standard errors are over the others.
    """

    def __init__(self, model: str, protocol: str, contexts: pl.DataFrame, values: dict[str, Values]) -> None:
        self.model = model
        self.protocol = protocol
        self.contexts = contexts
        self.values_by_metric = values

    @property
    def stderr(self) -> dict[str, float]:
        """The standard error of each mean: deviation over contexts by the root of their number."""
        return {name: _stderr(values) for name, values in self.values_by_metric.items()}

    def of(self, metric: str) -> Values:
        """The value of every context, in the order of `contexts`."""
        if metric not in self.values_by_metric:
            with suppress(SettingError):
                metric = str(parse_metric(metric))  # by another of its names
        if metric not in self.values_by_metric:
            raise UnknownIdError(f"{metric!r} was not evaluated; there are {', '.join(self.values_by_metric)}")
        return self.values_by_metric[metric]

    def to_polars(self) -> pl.DataFrame:
        """A row a metric: mean, standard error, number of contexts."""
        counted = [int(np.isfinite(values).sum()) for values in self.values_by_metric.values()]
        return pl.DataFrame(
            {
                "metric": list(self.values_by_metric),
                "mean": list(self.values()),
                "stderr": list(self.stderr.values()),
                "contexts": counted,
            }
        )

    def per_context(self) -> pl.DataFrame:
        """A row a context: its id and its value of each metric."""
        return self.contexts.with_columns(pl.Series(name, values) for name, values in self.values_by_metric.items())

    def __getitem__(self, metric: str) -> float:
        values = self.of(metric)
        defined = values[np.isfinite(values)]
        return float(defined.mean()) if len(defined) else float("nan")

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_metric)

    def __len__(self) -> int:
        return len(self.values_by_metric)

    def __repr__(self) -> str:
        width = max(map(len, self.values_by_metric))
        lines = [f"{self.model}: {self.contexts.height:,} contexts, {self.protocol}"]
        stderr = self.stderr
        lines += [f"  {name:<{width}}  {self[name]:.4f} ± {stderr[name]:.4f}" for name in self.values_by_metric]
        return "\n".join(lines)


def _stderr(values: Values) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.std(ddof=1) / np.sqrt(len(defined))) if len(defined) > 1 else float("nan")
