"""Evaluation results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._phrases import count
from shortlist._renamed import attribute_of
from shortlist.errors import SettingError, UnknownIdError
from shortlist.metrics import parse_metric

Values = npt.NDArray[np.float64]
FIRST = "first:"  # prefix of stage one's metrics


class Evaluation(Mapping[str, float]):
    """The result of `evaluate`: a mapping from metric to its mean over contexts, as in `result["recall@20"]`.

    `stderr` has the standard errors, `of(metric)` the value of each context. `print(result)` shows a table,
    `to_polars()` returns it as a frame, and `compare(result, other)` tests which differences are real.

    A metric can be undefined for a context: AUC if every ranked item is relevant, distance if a list has fewer than two
    items. The value of such a context is NaN, and means and standard errors omit it. Coverage and gini are one number
    for all contexts together, so they have no per-context values, and their standard error is NaN.

    Attributes:
        model: the name of the model.
        protocol: a sentence that says how the model was evaluated.
        contexts: the ids of the contexts.
        values_by_metric: for each metric an array with one value per context; for coverage and gini a 0-d array.
    """

    def __init__(self, model: str, protocol: str, contexts: pl.DataFrame, values: dict[str, Values]) -> None:
        self.model = model
        self.protocol = protocol
        self.contexts = contexts
        self.values_by_metric = values

    @property
    def stderr(self) -> dict[str, float]:
        """The standard error of each mean: the standard deviation over contexts divided by √(number of contexts).

        NaN for coverage and gini, which are one number for all contexts, and for fewer than two contexts.
        """
        return {name: _stderr(values) for name, values in self.values_by_metric.items()}

    @property
    def accuracy(self) -> list[str]:
        """The accuracy metrics, in the order requested."""
        return [name for name in self if not is_beyond_accuracy(name)]

    @property
    def beyond_accuracy(self) -> list[str]:
        """The metrics beyond accuracy, such as coverage and popularity, in the order requested."""
        return [name for name in self if is_beyond_accuracy(name)]

    def of(self, metric: str) -> Values:
        """Return the value of each context, in the order of `contexts`."""
        values = self._values(metric)
        if not values.ndim:
            raise SettingError(
                f"{metric!r} is one number for all contexts together and has no values per context",
                field="metric",
                hint=f"use result[{metric!r}]",
            )
        return values

    def _values(self, metric: str) -> Values:
        if isinstance(metric, str) and metric not in self.values_by_metric:
            with suppress(SettingError):
                metric = str(parse_metric(metric))  # a metric may have several names
        if not isinstance(metric, str) or metric not in self.values_by_metric:
            raise UnknownIdError(
                f"{metric!r:.80} was not evaluated; this result has {', '.join(self.values_by_metric)}",
                code="unknown-metric",
                field="metric",
            )
        return self.values_by_metric[metric]

    def to_polars(self) -> pl.DataFrame:
        """Return a frame with one row per metric: mean, standard error, number of contexts."""
        n_contexts = self.contexts.height
        counted = [
            int(np.isfinite(values).sum()) if values.ndim else n_contexts for values in self.values_by_metric.values()
        ]
        return pl.DataFrame(
            {
                "metric": list(self.values_by_metric),
                "mean": list(self.values()),
                "stderr": list(self.stderr.values()),
                "contexts": counted,
            }
        )

    def per_context(self) -> pl.DataFrame:
        """Return a frame with one row per context: its id and its value of each metric, except coverage and gini."""
        columns = [pl.Series(name, values) for name, values in self.values_by_metric.items() if values.ndim]
        return pl.DataFrame([*self.contexts.get_columns(), *columns])

    def __getitem__(self, metric: str) -> float:
        values = self._values(metric)
        defined = values[np.isfinite(values)]
        return float(defined.mean()) if len(defined) else float("nan")

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_metric)

    def __len__(self) -> int:
        return len(self.values_by_metric)

    def __repr__(self) -> str:
        head = f"{self.model}: {count(self.contexts.height, 'context')}, {self._description}"
        lines = [head, *self._lines(self.accuracy)]
        if self.beyond_accuracy:
            lines += ["beyond accuracy (higher is neither better nor worse)", *self._lines(self.beyond_accuracy)]
        return "\n".join(lines)

    @property
    def _description(self) -> str:
        """The protocol, and for two stages what was reranked."""
        return self.protocol

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            return getattr(self, attribute_of(type(self), name))

    def _lines(self, metrics: list[str]) -> list[str]:
        width = max(map(len, self.values_by_metric))
        return [f"  {name:<{width}}  {self.text(name)}" for name in metrics]

    def text(self, metric: str) -> str:
        """Format a metric as text: the mean ± its standard error, or just the number if it has no standard error.

        >>> result = Evaluation("Mine", "test", pl.DataFrame({"u": [1, 2]}), {"hit@5": np.array([0.0, 1.0])})
        >>> result.text("hit@5")
        '0.5000 ± 0.5000'
        """
        stderr = _stderr(self._values(metric))
        return f"{self[metric]:.4f}" + ("" if np.isnan(stderr) else f" ± {stderr:.4f}")


class TwoStageEvaluation(Evaluation):
    """The result of `evaluate` for a `TwoStage`, with the metrics of both stages together and of stage one alone.

    `result["ndcg@20"]` is for both stages together, `result["first:ndcg@20"]` for stage one. `first:recall@k`, where k
    is the number of candidates, is an upper bound: stage two can only reorder what stage one finds.
    """

    def __init__(
        self,
        model: str,
        first: str,
        protocol: str,
        reranked: str,
        contexts: pl.DataFrame,
        values: dict[str, Values],
        values_of_first: dict[str, Values],
    ) -> None:
        named = {f"{FIRST}{name}": array for name, array in values_of_first.items()}
        super().__init__(model, protocol, contexts, values | named)
        self._first, self._reranked = first, reranked

    def stages(self) -> tuple[Evaluation, Evaluation]:
        """Return the results of both stages together and of stage one alone, for `compare(*result.stages())`.

        Both have the accuracy metrics only.
        """
        both = [name for name in self.values_by_metric if f"{FIRST}{name}" in self.values_by_metric]
        if not both:
            raise SettingError(
                "no accuracy metric was evaluated to compare the stages by",
                hint="add one, such as 'ndcg@20'",
                field="metrics",
            )
        whole, first = ({name: self.values_by_metric[prefix + name] for name in both} for prefix in ("", FIRST))
        return (
            Evaluation(self.model, self.protocol, self.contexts, whole),
            Evaluation(self._first, self.protocol, self.contexts, first),
        )

    @property
    def _description(self) -> str:
        return f"{self.protocol}, {self._reranked}"


def is_beyond_accuracy(metric: str) -> bool:
    """Return whether a metric describes the lists themselves rather than how well they match the held-out items."""
    with suppress(SettingError):
        return parse_metric(metric).beyond_accuracy
    return False


def _stderr(values: Values) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.std(ddof=1) / np.sqrt(len(defined))) if values.ndim and len(defined) > 1 else float("nan")
