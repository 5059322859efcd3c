"""The outcome of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._phrases import count
from shortlist.errors import SettingError, UnknownIdError
from shortlist.metrics import parse_metric

Values = npt.NDArray[np.float64]
FIRST = "first:"  # before the metrics of stage one


class Evaluation(Mapping[str, float]):
    """Means over contexts, by metric: `result["recall@20"]`; with their standard errors and every context's value.

    A value of NaN in `values_by_metric` marks a context for which the metric is not defined (AUC where every ranked
    item is relevant, distance where a list has fewer than two items); means and standard errors are over the others.
    Coverage and gini are one number for all contexts: an array without dimensions there, with a standard error of NaN.
    """

    def __init__(self, model: str, protocol: str, contexts: pl.DataFrame, values: dict[str, Values]) -> None:
        self.model = model
        self.protocol = protocol
        self.contexts = contexts
        self.values_by_metric = values

    @property
    def stderr(self) -> dict[str, float]:
        """The standard error of each mean: deviation over contexts by the root of their number.

        NaN for coverage and gini, which are one number for all contexts, and where there is only one context.
        """
        return {name: _stderr(values) for name, values in self.values_by_metric.items()}

    @property
    def accuracy(self) -> list[str]:
        """The metrics of how well the truth is found, in the order they were asked for."""
        return [name for name in self if not is_beyond_accuracy(name)]

    @property
    def beyond_accuracy(self) -> list[str]:
        """The metrics of what the lists are like, in the order they were asked for."""
        return [name for name in self if is_beyond_accuracy(name)]

    def of(self, metric: str) -> Values:
        """The value of every context, in the order of `contexts`."""
        values = self._values(metric)
        if not values.ndim:
            raise SettingError(f"{metric!r} is one number for all contexts together: result[{metric!r}]")
        return values

    def _values(self, metric: str) -> Values:
        if isinstance(metric, str) and metric not in self.values_by_metric:
            with suppress(SettingError):
                metric = str(parse_metric(metric))  # by another of its names
        if not isinstance(metric, str) or metric not in self.values_by_metric:
            raise UnknownIdError(f"{metric!r:.80} was not evaluated; there are {', '.join(self.values_by_metric)}")
        return self.values_by_metric[metric]

    def to_polars(self) -> pl.DataFrame:
        """A row a metric: mean, standard error, number of contexts."""
        everyone = self.contexts.height
        counted = [int(np.isfinite(one).sum()) if one.ndim else everyone for one in self.values_by_metric.values()]
        return pl.DataFrame(
            {
                "metric": list(self.values_by_metric),
                "mean": list(self.values()),
                "stderr": list(self.stderr.values()),
                "contexts": counted,
            }
        )

    def per_context(self) -> pl.DataFrame:
        """A row a context: its id and its value of each metric that has one."""
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
        lines = [f"{self.model}: {count(self.contexts.height, 'context')}, {self._told}", *self._lines(self.accuracy)]
        if self.beyond_accuracy:
            lines += ["beyond accuracy (more is neither better nor worse)", *self._lines(self.beyond_accuracy)]
        return "\n".join(lines)

    @property
    def _told(self) -> str:
        """The protocol, and what else was done."""
        return self.protocol

    def _lines(self, metrics: list[str]) -> list[str]:
        width = max(map(len, self.values_by_metric))
        return [f"  {name:<{width}}  {self.figure(name)}" for name in metrics]

    def figure(self, metric: str) -> str:
        """A metric as text: the mean ± its standard error, or the one number.

        >>> result = Evaluation("Mine", "test", pl.DataFrame({"u": [1, 2]}), {"hit@5": np.array([0.0, 1.0])})
        >>> result.figure("hit@5")
        '0.5000 ± 0.5000'
        """
        stderr = _stderr(self._values(metric))
        return f"{self[metric]:.4f}" + ("" if np.isnan(stderr) else f" ± {stderr:.4f}")


class TwoStageEvaluation(Evaluation):
    """The evaluation of two stages: `result["ndcg@20"]` is of the whole, `result["first:ndcg@20"]` of stage one.

    `first:recall@k`, k being how many candidates are reranked, says how much the second stage can find at all.
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
        named = {f"{FIRST}{name}": one for name, one in values_of_first.items()}
        super().__init__(model, protocol, contexts, values | named)
        self._first, self._reranked = first, reranked

    def stages(self) -> tuple[Evaluation, Evaluation]:
        """The whole and stage one by the metrics that both have, for `compare(*result.stages())`."""
        both = [name for name in self.values_by_metric if f"{FIRST}{name}" in self.values_by_metric]
        if not both:
            raise SettingError("no metric of accuracy was evaluated, so there is nothing to compare the stages by")
        whole, first = ({name: self.values_by_metric[prefix + name] for name in both} for prefix in ("", FIRST))
        return (
            Evaluation(self.model, self.protocol, self.contexts, whole),
            Evaluation(self._first, self.protocol, self.contexts, first),
        )

    @property
    def _told(self) -> str:
        return f"{self.protocol}, {self._reranked}"


def is_beyond_accuracy(metric: str) -> bool:
    """Whether a metric describes lists, and not how well the truth is found."""
    with suppress(SettingError):
        return parse_metric(metric).beyond_accuracy
    return False


def _stderr(values: Values) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.std(ddof=1) / np.sqrt(len(defined))) if values.ndim and len(defined) > 1 else float("nan")
