"""Metrics by name: parse and compute metrics such as "recall@20"."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shortlist._renamed import new_metric
from shortlist.errors import SettingError
from shortlist.metrics import accuracy, beyond_accuracy
from shortlist.metrics.lists import Lists
from shortlist.metrics.ranks import Ranks, check_n

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_AT_N: dict[str, Callable[[Ranks, int], npt.NDArray[np.float64]]] = {
    "precision": accuracy.precision,
    "recall": accuracy.recall,
    "capped_recall": accuracy.capped_recall,
    "ap": accuracy.average_precision,
    "ndcg": accuracy.ndcg,
    "hit": accuracy.hit_rate,
    "mrr": accuracy.reciprocal_rank,
}
_WHOLE: dict[str, Callable[[Ranks], npt.NDArray[np.float64]]] = {
    "mrr": accuracy.reciprocal_rank,
    "auc": accuracy.auc,
}
_BEYOND: dict[str, Callable[[Lists, int], npt.NDArray[np.float64] | float]] = {
    "coverage": beyond_accuracy.coverage,
    "gini": beyond_accuracy.gini,
    "popularity": beyond_accuracy.popularity,
    "novelty": beyond_accuracy.novelty,
    "distance": beyond_accuracy.distance,
    "cold_share": beyond_accuracy.cold_share,
    "miscalibration": beyond_accuracy.miscalibration,
}
_OF_ALL = {"coverage", "gini"}  # one number for all contexts together
_ALIASES = {"map": "ap", "average_precision": "ap", "hr": "hit", "hit_rate": "hit", "rr": "mrr", "ild": "distance"}
_NAMES = [*_AT_N, "auc", *_BEYOND]


@dataclass(frozen=True)
class Metric:
    """A metric and its n: name@n, or only the name for metrics of the whole ranking (article, "Evaluation").

    `shortlist.metrics` lists names and formulas. Aliases are replaced by the canonical name.

    >>> Metric("map", 10)
    Metric(name='ap', n=10)
    >>> str(Metric("auc"))
    'auc'
    """

    name: str
    n: int | None = None

    def __post_init__(self) -> None:
        name = _canonical(self.name)
        object.__setattr__(self, "name", name)
        if self.n is None and name not in _WHOLE:
            raise SettingError(
                f"metric {self.name!r} has no n",
                field="metrics",
                hint=f"add the number of top items, as in '{name}@10'",
            )
        if self.n is not None and name not in _AT_N and name not in _BEYOND:
            raise SettingError(
                f"metric {self.name!r} uses the whole ranking and takes no n", field="metrics", hint=f"write '{name}'"
            )
        if self.n is not None:
            object.__setattr__(self, "n", check_n(self.n, f"the n of metric {name!r}"))

    def __str__(self) -> str:
        """Format as `parse_metric` reads it."""
        return self.name if self.n is None else f"{self.name}@{self.n}"

    @property
    def needs_full_ranks(self) -> bool:
        """Whether the metric needs all ranks, without a cutoff.

        >>> parse_metric("mrr").needs_full_ranks, parse_metric("mrr@10").needs_full_ranks
        (True, False)
        """
        return self.n is None

    @property
    def beyond_accuracy(self) -> bool:
        """Whether the metric describes `Lists` instead of the `Ranks` of relevant items.

        Higher values of such a metric are neither better nor worse.

        >>> parse_metric("recall@10").beyond_accuracy, parse_metric("coverage@10").beyond_accuracy
        (False, True)
        """
        return self.name in _BEYOND

    @property
    def per_context(self) -> bool:
        """Whether every context has a value; coverage and gini are one number for all contexts.

        >>> parse_metric("popularity@10").per_context, parse_metric("coverage@10").per_context
        (True, False)
        """
        return self.name not in _OF_ALL

    def compute(self, of: Ranks | Lists, *, threads: int | None = None) -> npt.NDArray[np.float64]:
        """Return the metric of every context; for coverage and gini, one number as an array without dimensions.

        It is an error if ranks or lists are cut off too early, or if the metric is not `defined` for a context's ranks.
        If it is not defined for a list, the value is NaN.

        Args:
            of: `Ranks`, or `Lists` for metrics beyond accuracy.
            threads: number of threads for slow metrics (distance); the result does not depend on it.

        >>> Metric("recall", 2).compute(Ranks.from_lists([[1, 3], [2]], n_items=5))
        array([0.5, 1. ])
        >>> Metric("coverage", 1).compute(Lists.from_lists([[0], [1]], trained=[[0]], n_items=5))
        array(0.4)
        """
        if not isinstance(of, Lists if self.beyond_accuracy else Ranks):
            expected = "Lists" if self.beyond_accuracy else "Ranks"
            raise SettingError(f"metric {str(self)!r} is computed from {expected}, got {type(of).__name__}", field="of")
        if isinstance(of, Ranks):
            return _WHOLE[self.name](of) if self.n is None else _AT_N[self.name](of, self.n)
        assert self.n is not None
        if self.name == "distance":
            return beyond_accuracy.distance(of, self.n, threads=threads)
        return np.asarray(_BEYOND[self.name](of, self.n))

    def defined(self, ranks: Ranks) -> npt.NDArray[np.bool_]:
        """Return a mask of the contexts with a value: all, except for AUC those whose ranked items are all relevant.

        >>> ranks = Ranks.from_lists([[1, 3], [1, 2]], n_items=[3, 2])
        >>> defined = Metric("auc").defined(ranks)
        >>> defined, Metric("auc").compute(ranks.select(defined))
        (array([ True, False]), array([0.5]))
        """
        return ranks.n_relevant < ranks.n_ranked if self.name == "auc" else np.ones(len(ranks), dtype=np.bool_)


def parse_metric(text: str) -> Metric:
    """Parse one metric, "name@n" or "name"; case and surrounding blanks are ignored.

    >>> parse_metric("recall@20")
    Metric(name='recall', n=20)
    """
    if not isinstance(text, str):
        raise SettingError(f"a metric is {text!r}; expected text such as 'recall@20'", field="metrics")
    name, at, digits = text.strip().lower().partition("@")
    name = _canonical(name)
    if not at:
        return Metric(name)
    if name not in _AT_N and name not in _BEYOND:
        return Metric(name, 1)  # raises the error that it takes no n
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) > 0):
        raise SettingError(
            f"metric {text!r} has {digits!r} after the @; expected an integer ≥ 1, as in '{name}@10'", field="metrics"
        )
    return Metric(name, int(digits))


def parse_metrics(texts: str | Sequence[str | Metric]) -> list[Metric]:
    """Parse several metrics: a sequence, or one text with commas. Repeated metrics are dropped.

    >>> [str(metric) for metric in parse_metrics("recall@20, map@10, ap@10")]
    ['recall@20', 'ap@10']
    """
    try:
        parts = [part for part in texts.split(",") if part.strip()] if isinstance(texts, str) else list(texts)
    except TypeError:
        raise SettingError(
            f"metrics is {texts!r:.80}; expected text such as 'recall@20', or a list of such texts", field="metrics"
        ) from None
    metrics = [part if isinstance(part, Metric) else parse_metric(part) for part in parts]
    if not metrics:
        raise SettingError("metrics is empty", field="metrics", hint="pass at least one, such as 'recall@20'")
    return list(dict.fromkeys(metrics))


def _canonical(name: str) -> str:
    if not isinstance(name, str):
        raise SettingError(f"the name of a metric is {name!r:.80}; expected text such as 'recall'", field="metrics")
    name = new_metric(_ALIASES.get(name, name))
    if name in _NAMES:
        return name
    close = difflib.get_close_matches(str(name), [*_NAMES, *_ALIASES], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise SettingError(
        f"unknown metric {name!r}{hint} (known: {', '.join(_NAMES)}; with n as in 'ndcg@10')",
        code="unknown-metric",
        field="metrics",
    )
