"""How fast is evaluation over the whole catalogue, beside a bare matrix product, implicit and RecTools?

    python -m benchmarks.speed.evaluation [--contexts 100000 --items 20000 --dim 128 --runs 5]

recall@20 and ndcg@20 of every context over every item, seen items left out, the same embeddings for all contestants:
`shortlist.evaluate`, implicit's `ranking_metrics_at_k`, RecTools' ranking of factors and metrics; and the bound: the
fastest bare `numpy.matmul(..., out=)` of contexts × items over a grid of block sizes, found first and then timed in
turns with the others. Peers are left out where they are not installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import shortlist as sl
from benchmarks.lib.machine import describe, interleaved, quotients, record, table

AGAINST = {
    "GEMM bound": "bare `numpy.matmul`",
    "implicit": "implicit, `ranking_metrics_at_k`",
    "rectools": "RecTools, `ImplicitRanker` and metrics",
}


def gemm_bound(contexts: np.ndarray, items: np.ndarray, sample: int = 8192) -> tuple[str, Callable[[], None]]:
    """The best block shape of a bare product on both threads, by so many contexts, and a function that runs it."""
    sample = min(len(contexts), sample)
    best: tuple[float, str, Callable[[], None]] | None = None
    n_contexts, n_items = len(contexts), len(items)
    for rows in (64, 128, 256, 512, 1024, 2048, 4096):
        for columns in (n_items, 8192, 4096, 2048):
            if columns > n_items or rows * columns * 4 > 2**30:
                continue
            out = np.empty(rows * columns, np.float32)

            def run(rows: int = rows, columns: int = columns, out: np.ndarray = out) -> None:
                for a in range(0, n_contexts, rows):
                    for b in range(0, n_items, columns):
                        left, right = contexts[a : a + rows], items[b : b + columns]
                        block = out[: len(left) * len(right)].reshape(len(left), len(right))
                        np.matmul(left, right.T, out=block)

            seconds = []
            for _ in range(3):
                began = time.perf_counter()
                for a in range(0, sample, rows):
                    for b in range(0, n_items, columns):
                        left, right = contexts[a : a + rows], items[b : b + columns]
                        block = out[: len(left) * len(right)].reshape(len(left), len(right))
                        np.matmul(left, right.T, out=block)
                seconds.append(time.perf_counter() - began)
            if best is None or min(seconds) < best[0]:
                best = (min(seconds), f"{rows} × {columns}", run)
    assert best is not None
    return best[1], best[2]


def implicit_contestant(
    model: sl.IALS, train: sp.csr_matrix, test: sp.csr_matrix
) -> Callable[[], dict[str, float]] | None:
    try:
        from implicit.cpu.als import AlternatingLeastSquares
        from implicit.evaluation import ranking_metrics_at_k
    except ImportError:
        return None
    peer = AlternatingLeastSquares(factors=model.dim, num_threads=2)
    peer.user_factors, peer.item_factors = model.context_embeddings_, model.item_embeddings_

    def run() -> dict[str, float]:
        with threadpool_limits(1, user_api="blas"):  # as its documentation asks for
            return dict(ranking_metrics_at_k(peer, train, test, K=20, show_progress=False, num_threads=2))

    return run


def rectools_contestant(
    model: sl.IALS, train: sp.csr_matrix, test: sp.csr_matrix
) -> Callable[[], dict[str, float]] | None:
    try:
        import pandas as pd
        from rectools import Columns
        from rectools.metrics import NDCG, Recall, calc_metrics
        from rectools.models.rank import Distance, ImplicitRanker
    except ImportError:
        return None
    coo = test.tocoo()
    truth = pd.DataFrame({Columns.User: coo.row, Columns.Item: coo.col, Columns.Weight: 1.0})
    metrics = {"recall": Recall(k=20), "ndcg": NDCG(k=20)}

    def run() -> dict[str, float]:
        ranker = ImplicitRanker(Distance.DOT, model.context_embeddings_, model.item_embeddings_, num_threads=2)
        with threadpool_limits(1, user_api="blas"):
            users, items, scores = ranker.rank(np.arange(train.shape[0]), k=20, filter_pairs_csr=train)
        top = pd.DataFrame({Columns.User: users, Columns.Item: items, Columns.Score: scores})
        top[Columns.Rank] = top.groupby(Columns.User, sort=False).cumcount() + 1
        return dict(calc_metrics(metrics, reco=top, interactions=truth))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--interactions", type=int, default=8_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the ratios for the board")
    arguments = parser.parse_args()

    # Some contexts get nothing to be asked for: make more of them than are wanted.
    events = sl.datasets.synthetic(
        arguments.contexts * 5 // 4, arguments.items, arguments.interactions * 5 // 4, seed=1
    )
    split = sl.splits.at_random(events, 0.1, seed=1)
    train = split.train
    split = sl.splits.given(train, split.truth.select(split.truth.context_codes < arguments.contexts))
    # The time of evaluation does not depend on how good the embeddings are: one epoch of a small model, padded.
    model = sl.IALS(dim=min(16, arguments.dim), epochs=1).fit(train)
    rng = np.random.default_rng(0)
    vars(model)["dim"] = arguments.dim  # settings of a fitted model cannot be set
    for name in ("context_embeddings_", "item_embeddings_"):
        learnt = getattr(model, name)
        noise = 0.01 * rng.standard_normal((len(learnt), arguments.dim - learnt.shape[1]), dtype=np.float32)
        setattr(model, name, np.ascontiguousarray(np.hstack([learnt, noise])))

    everyone = model.contexts_.encode(split.truth.contexts.ids())
    contexts, items = model.context_embeddings_[everyone], model.item_embeddings_
    shape, bound = gemm_bound(contexts, items)
    seen = split.history.by_context
    train_csr = sp.csr_matrix(
        (np.ones(len(seen), np.float32), seen.indices, seen.indptr), (len(everyone), train.n_items)
    )
    truth = split.truth.by_context
    test_csr = sp.csr_matrix((np.ones(len(truth), np.float32), truth.indices, truth.indptr), train_csr.shape)
    peer_model = sl.IALS(dim=arguments.dim)
    peer_model.context_embeddings_, peer_model.item_embeddings_ = contexts, items

    results: dict[str, object] = {}

    def ours() -> None:
        results["shortlist"] = sl.evaluate(model, split, ["recall@20", "ndcg@20"])

    contestants: dict[str, Callable[[], object]] = {"GEMM bound": bound, "shortlist": ours}
    for name, make in (("implicit", implicit_contestant), ("rectools", rectools_contestant)):
        peer = make(peer_model, train_csr, test_csr)
        if peer is None:
            print(f"{name} is not installed and left out")
            continue

        def run(peer: Callable[[], object] = peer, name: str = name) -> None:
            results[name] = peer()

        contestants[name] = run
    packages = ("scipy", "numba", *(name for name in ("implicit", "rectools") if name in contestants))
    describe(*packages)
    size = f"{len(everyone):,} contexts × {train.n_items:,} items, d = {arguments.dim}"
    print(f"{size}, {len(seen) / len(everyone):.0f} seen items a context left out; the bound's block is {shape}")
    seconds = interleaved(arguments.runs, **contestants)
    table(seconds, "GEMM bound")
    for name, against in AGAINST.items():
        if arguments.record and name in seconds:
            peer = name != "GEMM bound"
            slower, faster = (name, "shortlist") if peer else ("shortlist", name)
            record(
                f"evaluation-{name.split()[0].lower()}",
                question=f"recall@20 and ndcg@20, {size}",
                ours="`evaluate`",
                against=against,
                what="peer's time / ours" if peer else "time / bound",
                ratios=quotients(seconds[slower], seconds[faster]),
                packages=packages,
            )
    print("figures (implicit's precision and RecTools' ndcg have other normalisers):")
    for name, result in results.items():
        shown = dict(result) if isinstance(result, sl.Evaluation) else result
        print(f"  {name}: {shown}")


if __name__ == "__main__":
    main()
