"""How long is it from `load` to the first answer, and how much memory do several processes need for one model?

    python -m benchmarks.speed.loading [--contexts 1500000] [--items 400000] [--turns 5] [--record]

A synthetic IALS model with string ids, d = 128, about 1 GB. Time: a fresh process with imports done, kernels warm and
the file in the cache; `load` and one `recommend`, beside the same `recommend` of a model that has answered before.
Limit: 100 ms. Memory: four processes load the model, read every array and table, and answer queries. The sum of their
proportional memory (PSS), less the same for a tiny model, beside the bytes of the model. Limit: 1.15.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.lib.machine import describe, record
from shortlist import IALS
from shortlist.recommenders.registry import restored
from shortlist.storage import StoredModel, read_manifest, save_model

DIM, EVENTS, PROCESSES = 128, 10, 4
CHILD = """
import json, sys, time
import numpy as np
import shortlist as sl
from shortlist.storage import load_model

path, warm, task, last = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
tiny = sl.load(warm)
for _ in range(3):
    tiny.recommend(["user-0"], n=10).ids, tiny.recommend(history=[["item-0"]], n=10).ids
if task == "time":
    context = f"user-{last // 2}"
    began = time.perf_counter()
    model = sl.load(path)
    loaded = time.perf_counter()
    ids = model.recommend([context], n=10).ids
    answered = time.perf_counter()
    bare = []
    for k in range(5):
        start = time.perf_counter()
        model.recommend([f"user-{last // 3 + k}"], n=10).ids
        bare.append(time.perf_counter() - start)
    assert len(ids[0]) == 10
    seconds = {"load": loaded - began, "answer": answered - loaded, "bare": sorted(bare)[2]}
    print(json.dumps(seconds))
else:
    model = sl.load(path)
    stored = load_model(path)
    total = sum(int(array.reshape(-1).view(np.uint8)[::64].sum()) for array in stored.arrays.values())
    for table in stored.tables.values():
        for column in (column for batch in table.batches for column in batch.columns):
            for values in vars(column).values():
                total += int(values.view(np.uint8)[::64].sum())
    for k in range(5):
        model.recommend([f"user-{last // 7 * k}"], n=10).to_polars()
    model.recommend([f"user-{k}" for k in range(100)], n=10, threads=1).ids
    print("ready", flush=True)
    sys.stdin.readline()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=1_500_000)
    parser.add_argument("--items", type=int, default=400_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="keep the ratios for the board")
    arguments = parser.parse_args()
    describe("polars")
    with tempfile.TemporaryDirectory() as folder:
        big, tiny = Path(folder) / "big", Path(folder) / "tiny"
        write(big, arguments.contexts, arguments.items)
        write(tiny, 100, 100)
        n_bytes = read_manifest(big).total_bytes
        print(f"{arguments.contexts:,} contexts × {arguments.items:,} items: {n_bytes / 1e6:,.0f} MB")
        turns = [json.loads(child(big, tiny, "time", arguments.contexts)) for _ in range(arguments.turns + 1)][1:]
        for part in ("load", "answer", "bare"):
            values = [1000 * turn[part] for turn in turns]
            print(f"{part:<8}{statistics.median(values):8.1f} ms ({min(values):.1f} to {max(values):.1f})")
        ratios = [(turn["load"] + turn["answer"]) / turn["bare"] for turn in turns]
        print(f"load and first answer / answer of a warm model: {statistics.median(ratios):.2f}")
        extra = memory(big, tiny, arguments.contexts) - memory(tiny, tiny, 100)
        print(f"{PROCESSES} processes, less the same with a tiny model: {extra / n_bytes:.3f} × the bytes of the model")
        if arguments.record:
            question = f"{arguments.contexts:,} contexts × {arguments.items:,} items, d = {DIM}, {n_bytes / 1e9:.2f} GB"
            record(
                "loading-time",
                question=f"from loading to the first answer, {question}",
                ours="`load` and `recommend`",
                against="`recommend` of a warm model",
                what="time / time",
                ratios=ratios,
                packages=("polars",),
            )
            record(
                "loading-memory",
                question=f"{PROCESSES} processes with one model, {question}",
                ours="`load`, everything read",
                against="the bytes of the model",
                what="memory / bytes",
                ratios=[extra / n_bytes],
                packages=("polars",),
            )


def write(path: Path, n_contexts: int, n_items: int) -> None:
    """Save a model with random embeddings."""
    rng = np.random.default_rng(0)
    items = np.sort(rng.integers(0, n_items // EVENTS, (n_contexts, EVENTS), dtype=np.int32), axis=1)
    items = items + np.arange(EVENTS, dtype=np.int32) * (n_items // EVENTS)
    arrays: dict[str, Any] = {
        "context_embeddings_": rng.standard_normal((n_contexts, DIM), dtype=np.float32),
        "item_embeddings_": rng.standard_normal((n_items, DIM), dtype=np.float32),
        "seen.indptr": np.arange(n_contexts + 1, dtype=np.int64) * EVENTS,
        "seen.indices": items.reshape(-1),
    }
    tables = {
        name: pl.DataFrame({column: [f"{column}-{k}" for k in range(n)]})
        for name, column, n in (("contexts", "user", n_contexts), ("items", "item", n_items))
    }
    settings = IALS(dim=DIM, regularization=0.01, unobserved_weight=0.1).settings()
    model = restored(StoredModel("IALS", settings, arrays, {**tables}), path, verify=False)
    save_model(path, model.to_stored())


def child(path: Path, warm: Path, task: str, n_contexts: int) -> str:
    """Run a fresh process and return what it prints."""
    command = [sys.executable, "-c", CHILD, str(path), str(warm), task, str(n_contexts - 1)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def memory(path: Path, warm: Path, n_contexts: int) -> int:
    """Return the proportional memory of processes that have read all of a model, in bytes."""
    command = [sys.executable, "-c", CHILD, str(path), str(warm), "memory", str(n_contexts - 1)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return sum(proportional(process.pid) for process in processes)
    finally:
        for process in processes:
            process.communicate("\n")


def proportional(pid: int) -> int:
    """Return the PSS of a process in bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


if __name__ == "__main__":
    main()
