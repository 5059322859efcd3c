"""Make an index of a given kind, or the fastest one that reaches a target recall, and measure it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import integer, number, one_of
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
SAMPLE = 300  # queries to choose settings with, and as many others to measure the chosen index
TIMED = 50  # queries, one per call
_NOT_SETTINGS = ("vectors", "priority", "threads", "advance")  # constructor arguments that are not settings
WORTH = 1.5  # choose an approximate index if it is this many times as fast as exact search


def kinds() -> dict[str, type[VectorIndex]]:
    """Return the index classes by kind."""
    from shortlist.retrieval.indexes.faiss_indexes import HNSWIndex, IVFFlatIndex, IVFPQIndex

    return {cls.kind: cls for cls in (ExactIndex, QuantizedIndex, IVFFlatIndex, IVFPQIndex, HNSWIndex)}


AS_REQUESTED = "as requested"  # the reason for an index whose kind and settings are all given
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
    """Make an index over item vectors and measure it. Return the index and the reason for its kind and settings.

    Search settings (probes, refine, ef_search) that are not given are chosen: the fastest that reach the target recall.

    Args:
        kind: one of `KINDS`, or "auto" to choose the fastest kind.
        vectors: the item vectors, items × dimensions.
        queries: the query vectors for the measurements. Half of them choose the settings, the others measure the index.
        target_recall: the fraction of the n best items to find.
        n: the number of items per query.
        priority: one integer per item; among items with equal scores, the lowest comes first.
        seed: of the choice of queries, and of the index.
        threads: the number of threads.
        advance: is called with the name of each phase, for progress reports.
        settings: build and search settings of the index.
    """
    one_of("kind", kind, ("auto", *KINDS))
    settings = settings or {}
    target = number("target_recall", target_recall)
    if not 0 < target <= 1:
        raise SettingError(f"target_recall is {target_recall!r}; expected a number > 0 and ≤ 1", field="target_recall")
    items = checked_vectors(vectors, "item vectors")
    n = min(integer("n", n), len(items))
    report = advance or (lambda _: None)
    report("queries for measurements")
    trial = IndexTrial(items, checked_vectors(queries, "queries"), n, target, seed, priority, threads, report)
    if kind == "auto":
        if settings:
            raise SettingError(
                f"{', '.join(settings)} cannot be set with kind 'auto', which chooses the settings",
                field=next(iter(settings)),
                hint="pass another kind",
            )
        return trial.fastest()
    return trial.of_kind(kind, settings)


class IndexTrial:
    """A trial of indexes on queries with known exact results: half choose the settings, half measure the index."""

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
        self.items, self.n, self.target, self.seed = items, n, target, integer("seed", seed, least=0)
        self.priority, self.threads, self.advance = priority, threads, advance
        useful = np.flatnonzero(queries.any(axis=1))  # queries of zeros have no best items
        drawn = np.random.default_rng([seed, 64]).permutation(useful)[: 2 * SAMPLE]
        self.chosen_by, self.measured_on = queries[drawn[0::2]], queries[drawn[1::2] if len(drawn) > 1 else drawn]
        self.exact = ExactIndex(items, priority=priority)
        self._truth: dict[int, Codes] = {}
        self.exact_ms = _milliseconds(self.exact, self.measured_on, n) if len(drawn) else float("nan")

    def fastest(self) -> tuple[VectorIndex, str]:
        """Return the fastest index that reaches the target recall, and the reason."""
        n_items = len(self.items)
        if n_items <= SMALL or not len(self.measured_on):
            why = (
                f"exact search is fast enough for {n_items:,} items"
                if len(self.measured_on)
                else "there are no queries to measure other indexes with"
            )
            return self._with_measure(self.exact, 0.0), why
        index, why = self.of_kind("quantized", {})
        assert index.measured is not None
        reached = index.measured.recall >= self.target - 3 * index.measured.stderr
        times = self.exact_ms / index.measured.milliseconds
        if reached and times >= 4 * WORTH:  # exact search of a copy in bytes is at most four times as fast
            return index, f"{why}; {times:.3g} times as fast as exact search"
        exact = self._fastest_exact()
        assert exact.measured is not None
        if not reached:
            return exact, f"the quantized index does not reach recall {self.target:g} ({why})"
        times = exact.measured.milliseconds / index.measured.milliseconds
        if times >= WORTH:
            return index, f"{why}; {times:.3g} times as fast as exact search"
        takes = f"exact search takes {exact.measured.milliseconds:.3g} ms"
        return exact, f"{takes}, and the quantized index is less than {WORTH:g} times as fast ({why})"

    def _fastest_exact(self) -> VectorIndex:
        """Return exact search, with a copy in bytes if that is faster."""
        started = working_seconds()
        copy = ExactIndex(self.items, priority=self.priority, precision="int8", threads=self.threads)
        seconds = working_seconds() - started
        if _milliseconds(copy, self.measured_on, self.n) * WORTH > self.exact_ms:
            return self._with_measure(self.exact, 0.0)
        return self._with_measure(copy, seconds)

    def of_kind(self, kind: str, settings: dict[str, Any]) -> tuple[VectorIndex, str]:
        """Return the index of a kind, and the reason for its settings. Choose search settings that are not given."""
        started = working_seconds()
        if kind == "exact":
            index: VectorIndex = _build(
                ExactIndex, kind, self.items, settings, priority=self.priority, threads=self.threads
            )
        else:
            more: dict[str, Any] = {"priority": self.priority, "threads": self.threads, "advance": self.advance}
            if kind != "hnsw" and settings.get("seed") is None:
                more["seed"] = self.seed
            settings = new_settings(kinds()[kind], settings)
            index = _build(kinds()[kind], kind, self.items, settings, **more)
        seconds = working_seconds() - started
        given = {name for name in index.settings if settings.get(name) is not None}
        why = AS_REQUESTED
        if len(self.measured_on) and given != index.settings.keys():
            index, why = self._tuned(index, {name: index.settings[name] for name in given})
        return self._with_measure(index, seconds), why

    def _tuned(self, index: VectorIndex, given: dict[str, Any]) -> tuple[VectorIndex, str]:
        """Return the index with the fastest search settings that reach the target on one half of the queries."""
        best: tuple[float, VectorIndex] | None = None
        nearest: tuple[float, VectorIndex] | None = None
        rungs = [rung for rung in index.ladder(self.n) if all(rung[name] == value for name, value in given.items())]
        if not rungs:  # a given value is not on the ladder: use it with all the other settings
            rungs = [rung | given for rung in index.ladder(self.n)]
        reached: set[tuple[Any, ...]] = set()
        for rung in rungs:
            except_probes = tuple(value for name, value in rung.items() if name != "probes")
            if except_probes in reached:  # more probes would only be slower
                continue
            trial = index.with_settings(**rung)
            self.advance("settings: " + ", ".join(f"{name} {value}" for name, value in rung.items()))
            started = working_seconds()
            items, _ = trial.search(self.chosen_by, self.n, threads=1)
            spent = working_seconds() - started
            by_query = recalls(items, self._exact_items(self.chosen_by))
            recall = float(by_query.mean())
            if nearest is None or recall > nearest[0]:
                nearest = (recall, trial)
            if recall - by_query.std() / len(by_query) ** 0.5 >= self.target:
                if "probes" in rung:
                    reached.add(except_probes)
                if best is None or spent < best[0]:
                    best = (spent, trial)
                if "probes" not in rung:
                    break
            elif best is not None and spent > 2 * best[0]:
                reached.add(except_probes)
        if best is not None:
            chosen = best[1]
            return chosen, f"{described(chosen)}: the fastest settings that reach recall@{self.n} {self.target:g}"
        assert nearest is not None
        return nearest[1], (
            f"{described(nearest[1])}: the settings with the highest recall@{self.n}; none reached {self.target:g}"
        )

    def _exact_items(self, queries: Vectors) -> Codes:
        key = id(queries)
        if key not in self._truth:
            scorer = DotProductScorer(queries, self.items)
            items, _ = top_n(scorer, self.n, priority=self.priority, threads=self.threads, in_numpy=True)
            self._truth[key] = items
        return self._truth[key]

    def _with_measure(self, index: VectorIndex, seconds: float) -> VectorIndex:
        """Measure the index on the other half of the queries."""
        if not len(self.measured_on):
            return index
        self.advance("measuring")
        queries = self.measured_on
        items, _ = index.search(queries, self.n, threads=self.threads)
        by_query = recalls(items, self._exact_items(queries))
        index.measured = IndexMeasurements(
            n=self.n,
            queries=len(queries),
            recall=float(by_query.mean()),
            stderr=float(by_query.std() / len(by_query) ** 0.5),
            milliseconds=_milliseconds(index, queries, self.n) if index is not self.exact else self.exact_ms,
            exact_milliseconds=self.exact_ms,
            build_seconds=seconds,
            nbytes=index.nbytes,
        )
        return index


def _build(
    make: Callable[..., VectorIndex], kind: str, items: Vectors, settings: dict[str, Any], **more: Any
) -> VectorIndex:
    known = [name for name in signature(make).parameters if name not in _NOT_SETTINGS]
    if unknown := sorted(settings.keys() - set(known)):
        raise SettingError(
            f"the {kind} index has no setting {unknown[0]!r}; it has {', '.join(known)}",
            code="unknown-setting",
            field=unknown[0],
        )
    return make(items, **{name: value for name, value in settings.items() if value is not None}, **more)


def _milliseconds(index: VectorIndex, queries: Vectors, n: int) -> float:
    """Return the median time of a query, with one query per call and one thread."""
    spent = []
    for k in range(min(len(queries), TIMED) + 2):
        query = queries[k % len(queries)][None]
        started = working_seconds()
        index.search(query, n, threads=1)
        spent.append(working_seconds() - started)
        if sum(spent) > 3:
            break
    return 1e3 * float(np.median(spent[min(2, len(spent) - 1) :]))


def recalls(items: Codes, truth: Codes) -> npt.NDArray[np.float64]:
    """Return for each query the fraction of the true items among `items`."""
    by_query = [len(np.intersect1d(a, b[b >= 0])) / max(1, int((b >= 0).sum())) for a, b in zip(items, truth)]
    return np.array(by_query, np.float64)


def described(index: VectorIndex) -> str:
    """Return the kind and search settings as text."""
    return " ".join([index.kind, *(f"{name}={value}" for name, value in index.settings.items())])
