"""How fast is fitting item neighbours beside implicit, and how much memory does it take?

    python -m benchmarks.speed.neighbours [--contexts 138000 --items 20000 --pairs 10000000 --neighbours 100 --runs 5]

The cosine of every item with every other, the k nearest kept, by `ItemKNN` and by implicit's `CosineRecommender`, both
on two threads, in turns, and by the bound: the bare additions, without norms and without a choice of neighbours. How
many neighbours they share, and how far the k-th similarities differ. Then, in a process of its own, the most memory
that `fit` takes beyond the interactions with both their sparse views, beside twice the result + the interactions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

import shortlist as sl
from benchmarks.lib.machine import describe, interleaved, quotients, record, table
from shortlist._numba import fast_kernel
from shortlist._threads import balanced_chunks, run_chunks
from shortlist.data.sparse_rows import product_work

MEMORY = """
import json, sys
import numpy as np
import shortlist as sl

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

contexts, items, pairs, k = map(int, sys.argv[1:])
sl.ItemKNN(neighbours=k).fit(sl.datasets.synthetic(200, 100, 2000))  # compiled, loaded
events = sl.datasets.synthetic(contexts, items, pairs, seed=0)
views = [events.by_context, events.by_item]
held = events.context_codes.nbytes + events.item_codes.nbytes + sum(v.indptr.nbytes + v.indices.nbytes for v in views)
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
model = sl.ItemKNN(neighbours=k).fit(events, threads=2)
result = model.weight_bounds_.nbytes + model.weight_items_.nbytes + model.weight_values_.nbytes
print(json.dumps({"fit": status("VmHWM") - before, "result": result, "interactions": held}))
"""


@fast_kernel
def add_all(item_bounds, contexts, context_bounds, items, start, stop, sums):
    """What every method has to do: add 1 for each pair of entries of a context."""
    total = 0.0
    for i in range(start, stop):
        for e in range(item_bounds[i], item_bounds[i + 1]):
            for p in range(context_bounds[contexts[e]], context_bounds[contexts[e] + 1]):
                sums[items[p]] += np.float32(1)
        total += sums[i]
        sums[:] = 0
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=138_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--neighbours", type=int, default=100)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the ratios for the board")
    args = parser.parse_args()
    packages = ("implicit", "scipy", "numba")
    describe(*packages)
    events = sl.datasets.synthetic(args.contexts, args.items, args.pairs, seed=0)
    matrix = events.to_csr()[0].astype(np.float64).tocsr()
    _ = events.by_context, events.by_item
    ours = sl.ItemKNN(neighbours=args.neighbours)
    from implicit.nearest_neighbours import CosineRecommender

    # It counts an item among its own neighbours.
    peer = CosineRecommender(K=args.neighbours + 1, num_threads=2)

    def fit_peer() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a conversion of its own
            peer.fit(matrix, show_progress=False)

    adds = float((events.by_context.lengths.astype(np.float64) ** 2).sum())
    size = f"{len(events):,} pairs, {events.n_contexts:,} × {events.n_items:,}"
    print(f"{size}, k = {args.neighbours}, {adds:.3g} additions")
    by_item, by_context = events.by_item, events.by_context
    short = by_context.indices.astype(np.uint16) if args.items <= 2**16 else by_context.indices
    chunks = balanced_chunks(product_work(by_item, by_context.lengths), 128)

    def add(start: int, stop: int) -> None:
        sums = np.zeros(args.items, np.float32)
        add_all(by_item.indptr, by_item.indices, by_context.indptr, short, start, stop, sums)

    runs = interleaved(
        args.runs,
        **{
            "bare additions": lambda: run_chunks(add, chunks, 2),
            "ItemKNN": lambda: ours.fit(events, threads=2),
            "implicit's Cosine": fit_peer,
        },
    )
    table(runs, "bare additions")
    faster = sorted(quotients(runs["implicit's Cosine"], runs["ItemKNN"]))
    print(f"implicit's to ItemKNN: {np.median(faster):.2f} ({faster[0]:.2f} to {faster[-1]:.2f})")
    theirs = peer.similarity.tocsr()
    theirs.setdiag(0)
    theirs.eliminate_zeros()
    same = sum(
        len(np.intersect1d(ours.weight_items_[a:b], theirs.indices[c:d]))
        for a, b, c, d in zip(ours.weight_bounds_, ours.weight_bounds_[1:], theirs.indptr, theirs.indptr[1:])
    )
    far = max(
        np.abs(np.sort(ours.weight_values_[a:b])[::-1] - np.sort(theirs.data[c:d])[::-1][: b - a]).max(initial=0)
        for a, b, c, d in zip(ours.weight_bounds_, ours.weight_bounds_[1:], theirs.indptr, theirs.indptr[1:])
    )
    print(f"{same / ours.n_weights:.4%} of the neighbours are the same; k-th similarities differ by at most {far:.1e}")

    sizes = [args.contexts, args.items, args.pairs, args.neighbours]
    child = subprocess.run(
        [sys.executable, "-c", MEMORY, *map(str, sizes)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    found = {name: value / 2**20 for name, value in json.loads(child.stdout).items()}
    bound = 2 * found["result"] + found["interactions"]
    print(
        f"memory of fit at its peak {found['fit']:.0f} MiB; the result {found['result']:.0f}, the interactions "
        f"{found['interactions']:.0f}; 2 × result + interactions {bound:.0f}: {found['fit'] / bound:.2f}"
    )
    if args.record:
        question = f"item neighbours, {size}, k = {args.neighbours}"
        for name, against, what, ratios in (
            ("bound", "bare additions", "time / bound", quotients(runs["ItemKNN"], runs["bare additions"])),
            ("implicit", "implicit, `CosineRecommender.fit`", "peer's time / ours", faster),
            ("memory", "2 × result + interactions", "memory / bound", [found["fit"] / bound]),
        ):
            record(
                f"neighbours-{name}", question=question, ours="`ItemKNN.fit`", against=against, what=what,
                ratios=ratios, packages=packages,
            )  # fmt: skip


if __name__ == "__main__":
    main()
