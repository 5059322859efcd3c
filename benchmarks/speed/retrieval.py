"""How fast is search in a million items beside faiss, hnswlib, usearch and ScaNN, and beside the bound?

    python -m benchmarks.speed.retrieval race [--items 1000000] [--runs 5] [--only faiss-ivf-pq scann …]
    python -m benchmarks.speed.retrieval exact [--items 1000000] [--runs 5]
    python -m benchmarks.speed.retrieval spaces [--items 100000]
    python -m benchmarks.speed.retrieval few [--runs 5]

`race`: items × 128 dimensions, one thread, recall@100 of at least 0.95. Every library has its settings swept on 400
queries, the fastest that reach the recall are taken, and these are timed in turns on 400 others: one query a call, many
queries a call, and one query a call with filters (half of the catalogue denied, and 50 items that the query has had,
drawn from its best 500). Ours is asked through `Index.search`; libraries without filters fetch more and drop some.

`exact`: the best 100 of all items for 1,000 queries at once, two threads, beside the fastest bare `numpy.matmul` over a
grid of block sizes; and one query a call, with the copies in float16 and int8.

`few`: the best 10 for one query and for three, at catalogues of several sizes, by NumPy, as a few queries are answered,
and by the kernels, which must be compiled first.

`spaces`: what the inner product itself, or one more coordinate and Euclidean distances, do for each kind of index.

The embeddings are made, since no public data set of this size comes with any: items around 3,000 centres, with as much
noise as there is centre, of log-normal lengths (σ = 0.25); a query is a blend of four centres, weights drawn from the
simplex, and noise: someone with several interests.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import shortlist as sl
from benchmarks.lib.machine import describe, interleaved, quotients, record, table
from benchmarks.lib.markdown import provenance
from benchmarks.lib.markdown import table as page_table
from benchmarks.lib.paths import ROOT
from benchmarks.lib.results import RETRIEVAL, store, stored
from shortlist.retrieval import DotProductScorer, top_n
from shortlist.retrieval.indexes import ExactIndex
from shortlist.retrieval.indexes.index_choice import kinds, recalls

PICTURE = ROOT / "docs" / "retrieval.svg"
D, N, TARGET, SEEN, SWEPT = 128, 100, 0.95, 50, 400
Rows = np.ndarray
LIBRARIES = ("faiss-ivf-flat", "faiss-ivf-pq", "scann", "hnswlib", "usearch")
SCANN_LEAVES = (30, 60, 100, 150, 200, 300, 450, 600, 900, 1300)
PACKAGES = ("faiss-cpu", "hnswlib", "usearch", "scann", "numba")


def embeddings(n_items: int, n_queries: int, seed: int = 0) -> tuple[Rows, Rows]:
    """What the docstring above says."""
    rng = np.random.default_rng(seed)
    clusters = min(3000, n_items // 300)
    centres = rng.standard_normal((clusters, D), dtype=np.float32)
    items = centres[rng.integers(0, clusters, n_items)]
    items += rng.standard_normal((n_items, D), dtype=np.float32)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    items *= np.exp(0.25 * rng.standard_normal((n_items, 1), dtype=np.float32))
    weights = rng.dirichlet(np.ones(4), n_queries).astype(np.float32)
    queries = sum(weights[:, k, None] * centres[rng.integers(0, clusters, n_queries)] for k in range(4))
    queries *= np.sqrt(D) / np.linalg.norm(queries, axis=1, keepdims=True)
    queries += rng.standard_normal((n_queries, D), dtype=np.float32)
    return items, queries / np.linalg.norm(queries, axis=1, keepdims=True)


class Asked(NamedTuple):
    """Queries, and what is to be found for them, with filters and without."""

    queries: Rows
    best: Rows
    left: Rows  # the best that the filters leave
    seen: list[Rows]


def asked(items: Rows, queries: Rows, denied: Rows) -> Asked:
    index = ExactIndex(items)
    found = index.search(queries, 500)[0]
    rng = np.random.default_rng(7)
    seen = [np.sort(rng.choice(row, SEEN, replace=False)).astype(np.int32) for row in found]
    starts = np.arange(len(queries) + 1, dtype=np.int64) * SEEN
    filters = sl.retrieval.Filters(exclude=(starts, np.concatenate(seen)), deny=denied)
    return Asked(queries, found[:, :N], index.search(queries, N, filters)[0], seen)


# --- contestants -----------------------------------------------------------------------------------------------------


class Contestant:
    """A library with an index, asked directly; `knobs` are settings, tried in this order."""

    name: str
    knobs: Sequence[Any]

    def __init__(self, items: Rows, allowed: Rows) -> None:
        self.items, self.allowed = items, allowed
        began = time.perf_counter()
        self.build()
        self.seconds = time.perf_counter() - began

    def build(self) -> None:
        """Make the index; two threads."""
        raise NotImplementedError

    def many(self, queries: Rows, k: int, knob: Any) -> Rows:
        """The items found for each query; one thread."""
        raise NotImplementedError

    def one(self, query: Rows, k: int, knob: Any) -> Rows:
        """Those found for one query."""
        return self.many(query[None], k, knob)[0]

    def filtered(self, query: Rows, seen: Rows, knob: Any) -> Rows:
        """More than wanted, of which what is not allowed is dropped; on average half is left."""
        found = self.one(query, 2 * (N + SEEN) + 100, knob)
        return found[self.allowed[found] & ~np.isin(found, seen)][:N]


class FaissFlat(Contestant):
    name = "faiss-ivf-flat"
    knobs = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
    factory = "IVF{},Flat"

    def build(self) -> None:
        import faiss

        self.faiss = faiss
        lists = 2 ** round(np.log2(4 * len(self.items) ** 0.5))
        faiss.omp_set_num_threads(2)
        self.index = faiss.index_factory(D, self.factory.format(lists), faiss.METRIC_INNER_PRODUCT)
        self.index.train(self.items[: lists * 64])
        self.index.add(self.items)
        faiss.omp_set_num_threads(1)

    def many(self, queries: Rows, k: int, knob: Any) -> Rows:
        return self.index.search(queries, k, params=self.faiss.SearchParametersIVF(nprobe=knob))[1]

    def filtered(self, query: Rows, seen: Rows, knob: Any) -> Rows:
        """A bitmap says what is denied; what the query has had is fetched and dropped."""
        if not hasattr(self, "selector"):
            self.bits = np.packbits(self.allowed, bitorder="little")
            self.selector = self.faiss.IDSelectorBitmap(self.bits)
        params = self.faiss.SearchParametersIVF(nprobe=knob, sel=self.selector)
        found = self.index.search(query[None], N + SEEN, params=params)[1][0]
        return found[(found >= 0) & ~np.isin(found, seen)][:N]


class FaissPQ(FaissFlat):
    name = "faiss-ivf-pq"
    factory = "IVF{},PQ64x4fs"
    knobs = tuple((probes, refine) for refine in (3, 5, 8, 16) for probes in (32, 64, 128, 256, 384, 512, 768, 1024))

    def build(self) -> None:
        super().build()
        self.refined = self.faiss.IndexRefineFlat(self.index, self.faiss.swig_ptr(self.items))

    def many(self, queries: Rows, k: int, knob: Any) -> Rows:
        probes, refine = knob
        params = self.faiss.IndexRefineSearchParameters(
            k_factor=refine * N / k, base_index_params=self.faiss.SearchParametersIVF(nprobe=probes)
        )
        return self.refined.search(queries, k, params=params)[1]

    def filtered(self, query: Rows, seen: Rows, knob: Any) -> Rows:
        return Contestant.filtered(self, query, seen, (knob[0], 2 * knob[1]))


class ScaNN(Contestant):
    name = "scann"
    knobs = tuple((leaves, reorder) for reorder in (250, 500, 800, 1500) for leaves in SCANN_LEAVES)

    def build(self) -> None:
        import scann

        lists = 2000 if len(self.items) > 500_000 else 1000
        builder = scann.scann_ops_pybind.builder(self.items, N, "dot_product")
        builder = builder.tree(lists, lists // 10, training_sample_size=250_000, spherical=True)
        builder = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(500).set_n_training_threads(2)
        self.index = builder.build()

    def one(self, query: Rows, k: int, knob: Any) -> Rows:
        return self.index.search(query, k, pre_reorder_num_neighbors=max(k, knob[1]), leaves_to_search=knob[0])[0]

    def many(self, queries: Rows, k: int, knob: Any) -> Rows:
        reorder = max(k, knob[1])
        return self.index.search_batched(queries, k, pre_reorder_num_neighbors=reorder, leaves_to_search=knob[0])[0]

    def filtered(self, query: Rows, seen: Rows, knob: Any) -> Rows:
        return super().filtered(query, seen, (knob[0], 2 * knob[1]))


class HNSWLib(Contestant):
    name = "hnswlib"
    knobs = (150, 300, 600, 1200, 2400)

    def build(self) -> None:
        import hnswlib

        self.index = hnswlib.Index("ip", D)
        self.index.init_index(len(self.items), M=16, ef_construction=100)
        self.index.set_num_threads(2)
        self.index.add_items(self.items)
        self.index.set_num_threads(1)

    def many(self, queries: Rows, k: int, knob: Any) -> Rows:
        self.index.set_ef(max(k, knob))
        return self.index.knn_query(queries, k, num_threads=1)[0].astype(np.int64)


class USearch(Contestant):
    name = "usearch"
    knobs = (150, 300, 600, 1200, 2400)

    def build(self) -> None:
        from usearch.index import Index

        self.index = Index(ndim=D, metric="ip", dtype="f32", connectivity=16, expansion_add=64)
        self.index.add(np.arange(len(self.items)), self.items, threads=2)

    def many(self, queries: Rows, k: int, knob: Any) -> Rows:
        self.index.expansion_search = max(k, knob)
        found = self.index.search(queries, k, threads=1).keys
        return np.atleast_2d(np.asarray(found)).astype(np.int64)


class Ours(Contestant):
    """`model.index("quantized")`, asked through `Index.search`."""

    name = "shortlist"

    def build(self) -> None:
        # A model that has these embeddings: what it was fitted on does not matter here.
        n_items = len(self.items)
        events = {"context": np.arange(n_items) % 4096, "item": np.arange(n_items)}
        model = sl.IALS(dim=1, epochs=1).fit(sl.Interactions.from_frame(events, context="context", item="item"))
        model.item_embeddings_, model.context_embeddings_ = self.items, embeddings(n_items, 4096, seed=0)[1]
        self.index = model.index("quantized", target_recall=TARGET, n=N, progress=False)
        print(self.index, flush=True)
        self.denied = model.items_.ids(np.flatnonzero(~self.allowed))
        rungs = self.index.vectors.ladder(N)
        self.knobs = tuple((rung["probes"], rung["refine"]) for rung in rungs)
        self._kept: dict[Any, tuple[sl.Index, sl.Index]] = {}

    def _with(self, knob: Any) -> tuple[sl.Index, sl.Index]:
        if knob not in self._kept:
            vectors = self.index.vectors.with_settings(probes=knob[0], refine=knob[1])
            index = sl.Index(self.index.model, vectors, "")
            self._kept[knob] = index, index.only(deny=self.denied)
        return self._kept[knob]

    def many(self, queries: Rows, k: int, knob: Any) -> Rows:
        return self._with(knob)[0].search(queries, k, threads=1)._codes

    def filtered(self, query: Rows, seen: Rows, knob: Any) -> Rows:
        return self._with(knob)[1].search(query[None], N, deny=[seen.tolist()], threads=1)._codes[0]


CONTESTANTS = {one.name: one for one in (Ours, FaissFlat, FaissPQ, ScaNN, HNSWLib, USearch)}


# --- race ------------------------------------------------------------------------------------------------------------


def race(n_items: int, runs: int, only: Sequence[str], keep: bool) -> None:
    items, queries = embeddings(n_items, 4096 + 2 * SWEPT)
    queries = queries[4096:]  # those before are what ours chooses its settings by
    rng = np.random.default_rng(3)
    allowed = rng.random(n_items) < 0.5
    denied = np.flatnonzero(~allowed).astype(np.int32)
    swept, timed = (asked(items, queries[part], denied) for part in (slice(0, SWEPT), slice(SWEPT, 2 * SWEPT)))
    made, curves, chosen = {}, {}, {}
    for name in ("shortlist", *only):
        made[name] = CONTESTANTS[name](items, allowed)
        print(f"{name}: built in {made[name].seconds:.0f} s", flush=True)
        curves[name] = {what: sweep(made[name], swept, what) for what in ("one", "filtered")}
        chosen[name] = {what: best_of(points) for what, points in curves[name].items()}
        told = "; ".join(
            f"{what}: {point['knob']} recall {point['recall']:.4f}, {1 / point['seconds']:.0f}/s"
            for what, point in chosen[name].items()
        )
        print(f"  {told}", flush=True)
    rows = []
    for what in ("one", "many", "filtered"):
        reaching = {
            name: one for name in made if (one := chosen[name]["filtered" if what == "filtered" else "one"])["reaches"]
        }
        calls = {name: call(made[name], timed, what, point["knob"]) for name, point in reaching.items()}
        seconds = interleaved(runs, **{name: run for name, (run, _) in calls.items()})
        print(f"\n{what}: {SWEPT} queries, recall@{N} ≥ {TARGET}")
        table(seconds, "shortlist")
        for name, values in seconds.items():
            found = calls[name][1]()
            truth = timed.left if what == "filtered" else timed.best
            rows.append(
                {
                    "what": what,
                    "name": name,
                    "knob": reaching[name]["knob"],
                    "recall": float(recalls(found, truth).mean()),
                    "queries_per_second": SWEPT / statistics.median(values),
                    "ratios": quotients(values, seconds["shortlist"]),
                }
            )
    for row in rows:
        told = f"{row['recall']:.4f}  {row['queries_per_second']:.0f}/s"
        print(f"{row['what']:<10}{row['name']:<16}{row['knob']!s:<14}{told}")
    if not keep:
        return
    content = {
        "items": n_items,
        "curves": curves,
        "rows": rows,
        "build_seconds": {name: one.seconds for name, one in made.items()},
        "stopped": {
            name: max((point["recall"] for point in curves[name]["one"]), default=0.0)
            for name in made
            if not chosen[name]["one"]["reaches"]
        },
    }
    store("race", content, RETRIEVAL, PACKAGES)
    words = {"one": "one query a call", "many": f"{SWEPT} queries a call", "filtered": "one query a call, filtered"}
    for what, said in words.items():
        others = [row for row in rows if row["what"] == what and row["name"] != "shortlist"]
        fastest = min(others, key=lambda row: statistics.median(row["ratios"]))
        record(
            f"retrieval-{what}",
            question=f"the best {N} of {n_items:,} items × {D}, {said}, one thread, recall ≥ {TARGET}",
            ours="`Index.search`, quantized",
            against=f"{fastest['name']}, the fastest of {len(only)}",
            what="peer's time / ours",
            ratios=fastest["ratios"],
            packages=PACKAGES,
        )


def sweep(one: Contestant, asked_: Asked, what: str) -> list[dict[str, Any]]:
    """Recall and seconds a query at each knob; slower ones are left out once the recall is well reached."""
    points: list[dict[str, Any]] = []
    done: set[Any] = set()
    for knob in one.knobs:
        group = knob[1] if isinstance(knob, tuple) else None
        if group in done:
            continue
        run, found = call(one, asked_, what, knob)
        run()
        began = time.perf_counter()
        run()
        seconds = (time.perf_counter() - began) / len(asked_.queries)
        recall = float(recalls(found(), asked_.left if what == "filtered" else asked_.best).mean())
        points.append({"knob": knob, "recall": recall, "seconds": seconds})
        if recall > 0.985 or seconds > 0.02:
            done.add(group)
    return points


def call(one: Contestant, asked_: Asked, what: str, knob: Any) -> tuple[Callable[[], object], Callable[[], Any]]:
    """What is timed, and the items it last found."""
    kept: list[Any] = []

    def run() -> None:
        kept.clear()
        if what == "many":
            kept.extend(one.many(asked_.queries, N, knob))
        elif what == "one":
            kept.extend(one.one(query, N, knob) for query in asked_.queries)
        else:
            kept.extend(one.filtered(query, seen, knob) for query, seen in zip(asked_.queries, asked_.seen))

    return run, lambda: list(kept)


def best_of(points: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest that reaches the recall, else the one with the highest."""
    reaching = [point for point in points if point["recall"] >= TARGET]
    if reaching:
        return min(reaching, key=lambda point: point["seconds"]) | {"reaches": True}
    return max(points, key=lambda point: point["recall"]) | {"reaches": False}


# --- exact -----------------------------------------------------------------------------------------------------------


def few(runs: int) -> None:
    for n_items in (300, 3_600, 20_000, 100_000):
        items, queries = embeddings(n_items, 3)
        for count in (1, 3):
            scorer = DotProductScorer(queries[:count], items)

            def each(in_numpy: bool, scorer: DotProductScorer = scorer) -> Callable[[], object]:
                return lambda: [top_n(scorer, 10, threads=1, in_numpy=in_numpy) for _ in range(1000)]

            print(f"\n{n_items:,} items, {count} at a time; seconds of a thousand calls are milliseconds of one")
            table(interleaved(runs, kernels=each(False), numpy=each(True)), "kernels")


def exact(n_items: int, runs: int, keep: bool) -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(2, "blas")
    items, queries = embeddings(n_items, 1000)
    index = ExactIndex(items)
    grid = [(rows, width) for rows in (250, 500, 1000) for width in (512, 1024, 2048, 4096, 8192)]

    def product(rows: int, width: int) -> float:
        """Seconds for all scores, by blocks of this shape."""
        out = np.empty((rows, width), np.float32)
        began = time.perf_counter()
        for q in range(0, len(queries), rows):
            for i in range(0, n_items - width + 1, width):
                np.matmul(queries[q : q + rows], items[i : i + width].T, out=out)
        return (time.perf_counter() - began) * n_items / (n_items // width * width)

    shape = min(grid, key=lambda one: product(*one))
    print(f"the fastest product: {shape[0]} queries × {shape[1]} items")
    contestants: dict[str, Callable[[], object]] = {
        "bound": lambda: product(*shape),
        "shortlist": lambda: index.search(queries, N, threads=2),
    }
    try:
        import scann

        brute = scann.scann_ops_pybind.builder(items, N, "dot_product").score_brute_force().build()
        brute.set_num_threads(2)
        contestants["scann brute force"] = lambda: brute.search_batched_parallel(queries)
    except (ImportError, AttributeError):
        print("ScaNN's exact mode is not there")
    seconds = interleaved(runs, **contestants)
    table(seconds, "bound")
    one = queries[:20]
    copies = {name: ExactIndex(items, precision=name) for name in ("float32", "float16", "int8")}

    def each(index: ExactIndex) -> Callable[[], object]:
        return lambda: [index.search(query[None], N, threads=1) for query in one]

    alone = interleaved(runs, **{name: each(index) for name, index in copies.items()})
    print("\none query a call, one thread, 20 queries")
    table(alone, "float32")
    if keep:
        question = f"the exact best {N} of {n_items:,} items × {D}"
        record(
            "retrieval-exact-batch",
            question=f"{question} for 1,000 queries at once, two threads",
            ours="`ExactIndex`",
            against="the fastest bare product",
            what="bound's time / ours",
            ratios=quotients(seconds["bound"], seconds["shortlist"]),
            packages=("numba", "scipy"),
        )
        if "scann brute force" in seconds:
            record(
                "retrieval-exact-scann",
                question=f"{question} for 1,000 queries at once, two threads",
                ours="`ExactIndex`",
                against="ScaNN, brute force",
                what="peer's time / ours",
                ratios=quotients(seconds["scann brute force"], seconds["shortlist"]),
                packages=("numba", "scann"),
            )
        for name in ("float16", "int8"):
            record(
                f"retrieval-exact-{name}",
                question=f"{question}, one query a call, one thread",
                ours=f"`ExactIndex`, precision {name}",
                against="`ExactIndex`, float32",
                what="float32's time / ours",
                ratios=quotients(alone["float32"], alone[name]),
                packages=("numba",),
            )


# --- spaces ----------------------------------------------------------------------------------------------------------


def spaces(n_items: int, keep: bool) -> None:
    items, queries = embeddings(n_items, 400)
    best = ExactIndex(items).search(queries, N)[0]
    rows = []
    for kind in ("ivf-flat", "ivf-pq", "hnsw"):
        for space in ("inner product", "l2"):
            index = kinds()[kind](items, space=space)
            for rung in index.ladder(N):
                if rung.get("refine", 10) != 10:
                    continue
                trial = index.with_settings(**rung)
                trial.search(queries, N, threads=1)
                began = time.perf_counter()
                found = trial.search(queries, N, threads=1)[0]
                seconds = (time.perf_counter() - began) / len(queries)
                recall = float(recalls(found, best).mean())
                rows.append({"kind": kind, "space": space, "knob": rung, "recall": recall, "seconds": seconds})
                print(f"{kind:<10}{space:<16}{rung!s:<34}{recall:.4f}  {1e6 * seconds:.0f} µs", flush=True)
                if recall > 0.99:
                    break
    if keep:
        store("spaces", {"items": n_items, "rows": rows}, RETRIEVAL, PACKAGES)


# --- the page ---------------------------------------------------------------------------------------------------------


def board() -> str:
    """The region of docs/benchmarks.md."""
    raced, spaced = stored("race", RETRIEVAL), stored("spaces", RETRIEVAL)
    words = {"one": "one query a call", "many": "400 a call", "filtered": "one a call, filtered"}
    lines = [
        [
            words[row["what"]] if row["name"] == "shortlist" else "",
            row["name"],
            _knob(row["name"], row["knob"]),
            f"{row['recall']:.4f}".lstrip("0"),
            f"{row['queries_per_second']:,.0f}",
            "" if row["name"] == "shortlist" else f"{statistics.median(row['ratios']):.3g}",
        ]
        for row in raced["rows"]
    ]
    head = ["", "library", "settings", "recall@100", "queries a second", "its time / ours"]
    parts = [page_table(head, lines)]
    if raced["stopped"]:
        told = ", ".join(f"{name} ({recall:.3f})".replace("0.", ".") for name, recall in raced["stopped"].items())
        parts.append(f"Recall .95 was not reached by {told}: the highest of their settings is in brackets.")
    built = ", ".join(f"{name} {seconds:.0f}" for name, seconds in raced["build_seconds"].items())
    parts.append(f"Seconds to build, two threads (Shortlist's includes choosing and measuring settings): {built}.")
    lines = []
    for kind in ("ivf-flat", "ivf-pq", "hnsw"):
        for space in ("inner product", "l2"):
            points = [row for row in spaced["rows"] if (row["kind"], row["space"]) == (kind, space)]
            reaching = [row for row in points if row["recall"] >= TARGET]
            highest = max(row["recall"] for row in points)
            told = f"{1e6 * min(row['seconds'] for row in reaching):.0f}" if reaching else "–"
            lines.append([kind, space, f"{highest:.4f}".lstrip("0"), told])
    head = ["kind", "space", "highest recall@100", "µs a query at recall .95"]
    parts += [f"**Spaces**, {spaced['items']:,} items:", page_table(head, lines)]
    parts.append(provenance([("race", raced), ("spaces", spaced)]))
    return "\n\n".join(parts)


def _knob(name: str, knob: Any) -> str:
    words = {
        "shortlist": ("probes", "refine"),
        "faiss-ivf-pq": ("nprobe", "k_factor"),
        "scann": ("leaves", "reorder"),
        "faiss-ivf-flat": ("nprobe",),
        "hnswlib": ("ef",),
        "usearch": ("expansion",),
    }[name]
    values = knob if isinstance(knob, list | tuple) else [knob]
    return ", ".join(f"{word} {value}" for word, value in zip(words, values))


def draw() -> None:
    """The picture of docs/theory.md: recall against time."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "shortlist"
    import matplotlib.pyplot as plt

    raced = stored("race", RETRIEVAL)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axis, what, title in zip(axes, ("one", "filtered"), ("all items", "half denied, 50 seen")):
        for name, curves in raced["curves"].items():
            front: list[dict[str, Any]] = []
            for point in sorted(curves[what], key=lambda one: one["seconds"]):
                if not front or point["recall"] > front[-1]["recall"]:
                    front.append(point)
            x, y = [one["recall"] for one in front], [1e3 * one["seconds"] for one in front]
            axis.plot(x, y, marker=".", label=name, linewidth=2 if name == "shortlist" else 1)
        axis.set(xlabel="recall@100", title=title, yscale="log", xlim=(0.8, 1.0))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("milliseconds a query")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("race", "exact", "spaces", "few", "draw"))
    parser.add_argument("--items", type=int)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--record", action="store_true", help="keep what is measured for the board")
    args = parser.parse_args()
    if args.what == "draw":
        draw()
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the libraries are imported later
    describe("numba", "scipy")
    if args.what == "race":
        race(args.items or 1_000_000, args.runs, args.only, args.record)
        if args.record:
            draw()
    elif args.what == "exact":
        exact(args.items or 1_000_000, args.runs, args.record)
    elif args.what == "few":
        few(args.runs)
    else:
        spaces(args.items or 100_000, args.record)


if __name__ == "__main__":
    main()
