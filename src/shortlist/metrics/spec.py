"""Metrics by name: "recall@20" as a user writes it, and what it stands for."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shortlist.errors import SettingError
from shortlist.metrics import measures
from shortlist.metrics.ranks import Ranks, check_n

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_AT_N: dict[str, Callable[[Ranks, int], npt.NDArray[np.float64]]] = {
    "precision": measures.precision,
    "recall": measures.recall,
    "capped_recall": measures.capped_recall,
    "ap": measures.average_precision,
    "ndcg": measures.ndcg,
    "hit": measures.hit_rate,
    "mrr": measures.reciprocal_rank,
}
_WHOLE: dict[str, Callable[[Ranks], npt.NDArray[np.float64]]] = {
    "mrr": measures.reciprocal_rank,
    "auc": measures.auc,
}
_ALIASES = {"map": "ap", "average_precision": "ap", "hr": "hit", "hit_rate": "hit", "rr": "mrr"}
_NAMES = [*_AT_N, "auc"]


@dataclass(frozen=True)
class Metric:
    """A metric and its n: name@n, or the name alone where the whole ranking counts (article, "Evaluation").

    Names and formulas are listed in `shortlist.metrics`; aliases become the canonical name.

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
            raise SettingError(f"metric {self.name!r} lacks its n; write how many top items count, as in '{name}@10'")
        if self.n is not None and name not in _AT_N:
            raise SettingError(f"metric {self.name!r} looks at the whole ranking and takes no n; write '{name}'")
        if self.n is not None:
            object.__setattr__(self, "n", check_n(self.n, f"the n of metric {name!r}"))

    def __str__(self) -> str:
        """As `parse_metric` reads it."""
        return self.name if self.n is None else f"{self.name}@{self.n}"

    @property
    def needs_full_ranks(self) -> bool:
        """Whether ranks that were cut off are of no use.

        >>> parse_metric("mrr").needs_full_ranks, parse_metric("mrr@10").needs_full_ranks
        (True, False)
        """
        return self.n is None

    def compute(self, ranks: Ranks) -> npt.NDArray[np.float64]:
        """The metric of every context; refuses ranks that are cut off too early, and contexts that are not `defined`.

        >>> Metric("recall", 2).compute(Ranks.from_lists([[1, 3], [2]], n_items=5))
        array([0.5, 1. ])
        """
        return _WHOLE[self.name](ranks) if self.n is None else _AT_N[self.name](ranks, self.n)

    def defined(self, ranks: Ranks) -> npt.NDArray[np.bool_]:
        """For which contexts the metric has a value: all, but for AUC where every ranked item is relevant.

        >>> ranks = Ranks.from_lists([[1, 3], [1, 2]], n_items=[3, 2])
        >>> defined = Metric("auc").defined(ranks)
        >>> defined, Metric("auc").compute(ranks.select(defined))
        (array([ True, False]), array([0.5]))
        """
        return ranks.n_relevant < ranks.n_ranked if self.name == "auc" else np.ones(len(ranks), dtype=np.bool_)


def parse_metric(text: str) -> Metric:
    """Read one metric, "name@n" or "name"; case and blanks around do not matter.

    >>> parse_metric("recall@20")
    Metric(name='recall', n=20)
    """
    if not isinstance(text, str):
        raise SettingError(f"a metric is {text!r}; expected text such as 'recall@20'")
    name, at, digits = text.strip().lower().partition("@")
    name = _canonical(name)
    if not at:
        return Metric(name)
    if name not in _AT_N:
        return Metric(name, 1)  # which says that it takes no n, whatever n is
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) > 0):
        raise SettingError(f"metric {text!r} has {digits!r} after the @; expected a whole number, as in '{name}@10'")
    return Metric(name, int(digits))


def parse_metrics(texts: str | Sequence[str | Metric]) -> list[Metric]:
    """Read several metrics: a sequence, or one text with commas. What is named twice comes once, at its first place.

    >>> [str(metric) for metric in parse_metrics("recall@20, map@10, ap@10")]
    ['recall@20', 'ap@10']
    """
    parts = [part for part in texts.split(",") if part.strip()] if isinstance(texts, str) else texts
    metrics = [part if isinstance(part, Metric) else parse_metric(part) for part in parts]
    if not metrics:
        raise SettingError("no metric was given; name at least one, such as 'recall@20'")
    return list(dict.fromkeys(metrics))


def _canonical(name: str) -> str:
    name = _ALIASES.get(name, name)
    if name in _NAMES:
        return name
    close = difflib.get_close_matches(str(name), [*_NAMES, *_ALIASES], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise SettingError(f"unknown metric {name!r}{hint} (known: {', '.join(_NAMES)}; with n as in 'ndcg@10')")
