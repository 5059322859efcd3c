"""Making an index: the kind that was named, or the fastest that finds enough, with what was measured of it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import number, one_of, whole
from shortlist._clock import working_seconds
from shortlist._renamed import new_settings
from shortlist.errors import SettingError
from shortlist.retrieval.exact_search import top_n
from shortlist.retrieval.indexes.base import Codes, VectorIndex, Vectors, checked_vectors
from shortlist.retrieval.indexes.exact_index import ExactIndex
from shortlist.retrieval.indexes.measurements import IndexMeasurements
from shortlist.retrieval.indexes.partition import Advance
from shortlist.retrieval.indexes.quantized import QuantizedIndex
from shortlist.scoring.blocks import DotProductScorer

SMALL = 20_000  # items: exact search takes about a millisecond
SAMPLE = 300  # queries to choose settings by, and as many to measure what was chosen
TIMED = 50  # queries, one a call
_OURS = ("vectors", "priority", "threads", "advance")  # arguments that are no settings
WORTH = 1.5  # times as fast as exact search an approximate index must be to be chosen


def kinds() -> dict[str, type[VectorIndex]]:
    """What an index may be, by name."""
    from shortlist.retrieval.indexes.faiss_indexes import HNSWIndex, IVFFlatIndex, IVFPQIndex

    return {one.kind: one for one in (ExactIndex, QuantizedIndex, IVFFlatIndex, IVFPQIndex, HNSWIndex)}


KINDS = ("exact", "quantized", "ivf-flat", "ivf-pq", "hnsw")


def make_index(
    kind: str,
    vectors: npt.ArrayLike,
    queries: npt.ArrayLike,
    *,
    target_recall: float = 0.95,
    n: int = 100,
    priority: npt.ArrayLike | None = None,
    seed: int = 0,
    threads: int | None = None,
    advance: Advance | None = None,
    settings: dict[str, Any] | None = None,
) -> tuple[VectorIndex, str]:
    """An index of this kind over these vectors, and why it is as it is; `queries` are what it is measured on.

    `kind` is one of `KINDS`, or "auto". What a search does (probes, refine, ef_search) is chosen as the fastest that
    reaches the recall that is aimed at, for n items, unless it is among the settings.
    """
    one_of("kind", kind, ("auto", *KINDS))
    settings = settings or {}
    target = number("target_recall", target_recall)
    if not 0 < target <= 1:
        raise SettingError(f"target_recall is {target_recall!r}; expected a number above 0 and at most 1")
    items = checked_vectors(vectors, "item vectors")
    n = min(whole("n", n), len(items))
    tell = advance or (lambda _: None)
    tell("queries to measure with")
    trial = IndexTrial(items, checked_vectors(queries, "queries"), n, target, seed, priority, threads, tell)
    if kind == "auto":
        if settings:
            raise SettingError(f"{', '.join(settings)}: with kind 'auto' settings are chosen; name a kind to give some")
        return trial.fastest()
    return trial.of_kind(kind, settings)


class IndexTrial:
    """Queries with what exact search finds for them, half to choose by and half to measure with."""

    def __init__(
        self,
        items: Vectors,
        queries: Vectors,
        n: int,
        target: float,
        seed: int,
        priority: npt.ArrayLike | None,
        threads: int | None,
        advance: Advance,
    ) -> None:
        self.items, self.n, self.target, self.seed = items, n, target, whole("seed", seed, least=0)
        self.priority, self.threads, self.advance = priority, threads, advance
        useful = np.flatnonzero(queries.any(axis=1))  # a vector of zeros asks for nothing
        drawn = np.random.default_rng([seed, 64]).permutation(useful)[: 2 * SAMPLE]
        self.chosen_by, self.measured_on = queries[drawn[0::2]], queries[drawn[1::2] if len(drawn) > 1 else drawn]
        self.exact = ExactIndex(items, priority=priority)
        self._truth: dict[int, Codes] = {}
        self.exact_ms = _milliseconds(self.exact, self.measured_on, n) if len(drawn) else float("nan")

    def fastest(self) -> tuple[VectorIndex, str]:
        """The fastest that reaches the target, and why."""
        n_items = len(self.items)
        if n_items <= SMALL or not len(self.measured_on):
            few = (
                f"{n_items:,} items are few: exact search is fast enough"
                if len(self.measured_on)
                else "there is nobody to measure with"
            )
            return self._with_measure(self.exact, 0.0), few
        index, why = self.of_kind("quantized", {})
        assert index.measured is not None
        reached = index.measured.recall >= self.target - 3 * index.measured.stderr
        times = self.exact_ms / index.measured.milliseconds
        if reached and times >= 4 * WORTH:  # a copy in bytes is a quarter to read
            return index, f"{why}; {times:.3g} times as fast as exact search"
        exact = self._fastest_exact()
        assert exact.measured is not None
        if not reached:
            return exact, f"no setting of the quantized index reached recall {self.target:g} ({why})"
        times = exact.measured.milliseconds / index.measured.milliseconds
        if times >= WORTH:
            return index, f"{why}; {times:.3g} times as fast as exact search"
        takes = f"exact search takes {exact.measured.milliseconds:.3g} ms"
        return exact, f"{takes}, hardly more than the quantized index ({why})"

    def _fastest_exact(self) -> VectorIndex:
        """The vectors themselves, or a copy in bytes where searching that first is faster."""
        started = working_seconds()
        copy = ExactIndex(self.items, priority=self.priority, precision="int8", threads=self.threads)
        seconds = working_seconds() - started
        if _milliseconds(copy, self.measured_on, self.n) * WORTH > self.exact_ms:
            return self._with_measure(self.exact, 0.0)
        return self._with_measure(copy, seconds)

    def of_kind(self, kind: str, settings: dict[str, Any]) -> tuple[VectorIndex, str]:
        """The index of a kind, its search settings chosen where they are not given."""
        started = working_seconds()
        if kind == "exact":
            index: VectorIndex = _made(
                ExactIndex, kind, self.items, settings, priority=self.priority, threads=self.threads
            )
        else:
            more: dict[str, Any] = {"priority": self.priority, "threads": self.threads, "advance": self.advance}
            if kind != "hnsw" and settings.get("seed") is None:
                more["seed"] = self.seed
            settings = new_settings(kinds()[kind], settings)
            index = _made(kinds()[kind], kind, self.items, settings, **more)
        seconds = working_seconds() - started
        given = {name for name in index.settings if settings.get(name) is not None}
        why = "as asked for"
        if len(self.measured_on) and given != index.settings.keys():
            index, why = self._tuned(index, {name: index.settings[name] for name in given})
        return self._with_measure(index, seconds), why

    def _tuned(self, index: VectorIndex, given: dict[str, Any]) -> tuple[VectorIndex, str]:
        """The fastest settings of the ladder that reach the target on one half of the queries."""
        best: tuple[float, VectorIndex] | None = None
        nearest: tuple[float, VectorIndex] | None = None
        rungs = [rung for rung in index.ladder(self.n) if all(rung[name] == value for name, value in given.items())]
        if not rungs:  # a given value that is not on the ladder: with it, whatever the others are
            rungs = [rung | given for rung in index.ladder(self.n)]
        reached: set[tuple[Any, ...]] = set()
        for rung in rungs:
            others = tuple(value for name, value in rung.items() if name != "probes")
            if others in reached:  # more probes only cost more
                continue
            trial = index.with_settings(**rung)
            self.advance("settings: " + ", ".join(f"{name} {value}" for name, value in rung.items()))
            started = working_seconds()
            found = trial.search(self.chosen_by, self.n, threads=1)[0]
            spent = working_seconds() - started
            each = recalls(found, self._exactly(self.chosen_by))
            recall = float(each.mean())
            if nearest is None or recall > nearest[0]:
                nearest = (recall, trial)
            if recall - each.std() / len(each) ** 0.5 >= self.target:
                if "probes" in rung:
                    reached.add(others)
                if best is None or spent < best[0]:
                    best = (spent, trial)
                if "probes" not in rung:
                    break
            elif best is not None and spent > 2 * best[0]:
                reached.add(others)
        if best is not None:
            chosen = best[1]
            return chosen, f"{told(chosen)}: the fastest that reaches recall@{self.n} {self.target:g}"
        assert nearest is not None
        return nearest[1], f"{told(nearest[1])}: recall@{self.n} {self.target:g} is not reached, this is nearest"

    def _exactly(self, queries: Vectors) -> Codes:
        key = id(queries)
        if key not in self._truth:
            scorer = DotProductScorer(queries, self.items)
            found = top_n(scorer, self.n, priority=self.priority, threads=self.threads, in_numpy=True)
            self._truth[key] = found[0]
        return self._truth[key]

    def _with_measure(self, index: VectorIndex, seconds: float) -> VectorIndex:
        """The index with what is measured of it on the other half."""
        if not len(self.measured_on):
            return index
        self.advance("measuring")
        queries = self.measured_on
        each = recalls(index.search(queries, self.n, threads=self.threads)[0], self._exactly(queries))
        index.measured = IndexMeasurements(
            n=self.n,
            queries=len(queries),
            recall=float(each.mean()),
            stderr=float(each.std() / len(each) ** 0.5),
            milliseconds=_milliseconds(index, queries, self.n) if index is not self.exact else self.exact_ms,
            exact_milliseconds=self.exact_ms,
            build_seconds=seconds,
            nbytes=index.nbytes,
        )
        return index


def _made(
    make: Callable[..., VectorIndex], kind: str, items: Vectors, settings: dict[str, Any], **more: Any
) -> VectorIndex:
    known = [name for name in signature(make).parameters if name not in _OURS]
    if unknown := sorted(settings.keys() - set(known)):
        raise SettingError(f"a {kind!r} index has no setting {unknown[0]!r}; it has {', '.join(known)}")
    return make(items, **{name: value for name, value in settings.items() if value is not None}, **more)


def _milliseconds(index: VectorIndex, queries: Vectors, n: int) -> float:
    """The median time of a query, one a call, one thread."""
    spent = []
    for k in range(min(len(queries), TIMED) + 2):
        one = queries[k % len(queries)][None]
        started = working_seconds()
        index.search(one, n, threads=1)
        spent.append(working_seconds() - started)
        if sum(spent) > 3:
            break
    return 1e3 * float(np.median(spent[min(2, len(spent) - 1) :]))


def recalls(found: Codes, truth: Codes) -> npt.NDArray[np.float64]:
    """For each query the share of the true items that were found."""
    each = [len(np.intersect1d(a, b[b >= 0])) / max(1, int((b >= 0).sum())) for a, b in zip(found, truth)]
    return np.array(each, np.float64)


def told(index: VectorIndex) -> str:
    """Kind and settings in words."""
    return " ".join([index.kind, *(f"{name}={value}" for name, value in index.settings.items())])
