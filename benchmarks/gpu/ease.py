"""Which settings of EASE are best on gowalla, and how good are they?

The 40,981 items of gowalla need more memory than a small machine has; so this runs on a GPU.

    python -m benchmarks.gpu.ease prepare --data ../shared/data --out ease.npz       (with Shortlist installed)
    python -m benchmarks.gpu.ease check ease.npz
    python -m benchmarks.gpu.ease search ease.npz --study benchmarks/studies/trials/gowalla-ease.csv
    python -m benchmarks.gpu.ease test ease.npz --study benchmarks/studies/trials/gowalla-ease.csv
        --out benchmarks/results/quality/gowalla-ease.json

All but `prepare` need NumPy, PyTorch and a GPU only. `search` fits on train without its validation subset and looks at
that subset: first a grid of regularizations from 10 to 3000, then between the best and its neighbours, a line a trial.
XᵀX is computed once for all of them, and their seconds are without it. It does not read the test split. `test` does,
once: it fits on the whole train with the regularization that had the best ndcg@20, and writes the values by context
beside the figures. Both leave out what a context has seen.

XᵀX and its inverse are float64, the item weights and scores float32, as in `shortlist.EASE`. That they are the same is
what `check` says: on ml-1m-strong, item weights and per-context NDCG@100 against those that `prepare` took from
`shortlist.EASE`.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.coded_splits import Rows, coded, parts
from benchmarks.lib.torch_helpers import by_context

CHECKED, CHECKED_REGULARIZATION, EVERY = "ml-1m-strong", 400.0, 50  # and of the item weights one row in so many
GRID = (10.0, 20.0, 41.0, 84.0, 170.0, 350.0, 720.0, 1500.0, 3000.0)
TRIALS = 16
CUT = 20
METRICS = (f"recall@{CUT}", f"ndcg@{CUT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare_ = commands.add_parser("prepare")
    prepare_.add_argument("--data", type=Path, required=True)
    prepare_.add_argument("--out", type=Path, required=True)
    for name in ("check", "search", "test"):
        command = commands.add_parser(name)
        command.add_argument("file", type=Path)
        command.add_argument("--device", default="cuda")
        if name != "check":
            command.add_argument("--study", type=Path, required=True)
        if name == "test":
            command.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
        return
    loaded = np.load(args.file)
    if args.command == "check":
        check(loaded, args.device)
    elif args.command == "search":
        search(loaded, args.study, args.device)
    else:
        test(loaded, args.study, args.out, args.device)


def prepare(data: Path, out: Path) -> None:
    """Both splits of gowalla, and the set of the check with what `shortlist.EASE` says of it."""
    import shortlist as sl
    from benchmarks.lib.published import gowalla, strong

    split = strong(data / CHECKED)
    model = sl.EASE(regularization=CHECKED_REGULARIZATION).fit(split.train)
    result = sl.evaluate(model, split, ["ndcg@100"])
    assert result.contexts["user"].to_list() == split.truth.contexts.ids()
    arrays = coded("valid", gowalla(data, validation=True)) | coded("test", gowalla(data)) | coded("check", split)
    arrays |= {"check ndcg@100": result.of("ndcg@100"), "check weights": model.item_weights_[::EVERY]}
    np.savez_compressed(out, **arrays)


# --- the model -------------------------------------------------------------------------------------------------------


class Ease:
    """EASE of one training set, for many regularizations: XᵀX is computed once."""

    def __init__(self, train: Rows, device: str) -> None:
        import torch

        n, self.device = train.n_columns, device
        self.gramian = torch.zeros((n, n), dtype=torch.float64, device=device)
        for start in range(0, train.n_rows, 4096):
            block = pattern(train, start, min(train.n_rows, start + 4096), torch.float64, device).to_dense()
            self.gramian.addmm_(block.T, block)

    def weights(self, regularization: float) -> Any:
        """B = I − P·diag(1/diag(P)) with P = (XᵀX + λI)⁻¹, some columns of P at a time."""
        import torch

        n, size = len(self.gramian), 4096
        ridge = self.gramian.clone()
        ridge.diagonal().add_(regularization)
        factor = torch.linalg.cholesky(ridge)
        del ridge
        B = torch.empty((n, n), dtype=torch.float32, device=self.device)
        for start in range(0, n, size):
            stop = min(n, start + size)
            unit = torch.zeros((n, stop - start), dtype=torch.float64, device=self.device)
            unit[start:stop].diagonal().fill_(1)
            P = torch.cholesky_solve(unit, factor)
            B[:, start:stop] = P / -P[start:stop].diagonal()
        B.diagonal().zero_()
        return B


def pattern(rows: Rows, start: int, stop: int, dtype: Any, device: str) -> Any:
    """Some rows as a sparse tensor of ones."""
    import torch

    begin, end = int(rows.indptr[start]), int(rows.indptr[stop])
    return torch.sparse_csr_tensor(
        torch.as_tensor((rows.indptr[start : stop + 1] - begin).astype(np.int64), device=device),
        torch.as_tensor(rows.indices[begin:end].astype(np.int64), device=device),
        torch.ones(end - begin, dtype=dtype, device=device),
        (stop - start, rows.n_columns),
    )


def measured(B: Any, history: Rows, truth: Rows, cut: int) -> tuple[np.ndarray, np.ndarray]:
    """Recall and NDCG of every context."""
    import torch

    device = B.device

    def put(rows: Rows) -> tuple[Any, Any]:
        indptr, indices = (torch.as_tensor(one.astype(np.int64), device=device) for one in rows[:2])
        return indptr, indices

    def scores(start: int, stop: int) -> Any:
        return pattern(history, start, stop, torch.float32, device) @ B

    recall, ndcg = by_context(scores, put(history), put(truth), cut)
    return recall.cpu().numpy(), ndcg.cpu().numpy()


# --- what is asked ---------------------------------------------------------------------------------------------------


def check(loaded: Any, device: str) -> None:
    train, history, truth = parts("check", loaded)
    B = Ease(train, device).weights(CHECKED_REGULARIZATION)
    apart = float(np.abs(B[::EVERY].cpu().numpy() - loaded["check weights"]).max())
    ndcg, expected = measured(B, history, truth, 100)[1], loaded["check ndcg@100"]
    print(f"{CHECKED}, λ = {CHECKED_REGULARIZATION:g}, ndcg@100: {ndcg.mean():.6f}, of shortlist {expected.mean():.6f}")
    print(f"largest difference of an item weight {apart:.1e}, of a context's ndcg {np.abs(ndcg - expected).max():.1e}")
    assert apart < 1e-5
    assert abs(ndcg.mean() - expected.mean()) < 1e-5


def search(loaded: Any, study: Path, device: str) -> None:
    train, history, truth = parts("valid", loaded)
    ease = Ease(train, device)
    done: dict[float, float] = {}

    def trial(regularization: float) -> None:
        began = time.perf_counter()
        B = ease.weights(regularization)
        _wait(device)
        seconds = time.perf_counter() - began
        recall, ndcg = (float(one.mean()) for one in measured(B, history, truth, CUT))
        done[regularization] = ndcg
        row = [regularization, f"{recall:.5f}", f"{ndcg:.5f}", f"{seconds:.1f}"]
        new = not study.exists()
        with study.open("a", newline="") as out:
            writer = csv.writer(out)
            if new:
                writer.writerow(["regularization", *METRICS, "fit_seconds"])
            writer.writerow(row)
        print(*row, flush=True)

    for regularization in GRID:
        trial(regularization)
    while len(done) < TRIALS:
        new = [one for one in between(done) if one not in done]
        if not new:
            break
        for regularization in new[: TRIALS - len(done)]:
            trial(regularization)


def between(done: dict[float, float]) -> list[float]:
    """Geometric means of the best and its neighbours; at an end of what was tried, three times beyond."""
    tried = sorted(done)
    place = tried.index(max(tried, key=lambda one: done[one]))
    best = tried[place]
    below = (best * tried[place - 1]) ** 0.5 if place else best / 3
    above = (best * tried[place + 1]) ** 0.5 if place + 1 < len(tried) else best * 3
    return [float(f"{one:.2g}") for one in (below, above)]


def test(loaded: Any, study: Path, out: Path, device: str) -> None:
    import torch

    with study.open(newline="") as file:
        trials = list(csv.DictReader(file))
    best = max(trials, key=lambda row: float(row[METRICS[1]]))
    train, history, truth = parts("test", loaded)
    _wait(device)
    began = time.perf_counter()
    B = Ease(train, device).weights(float(best["regularization"]))
    _wait(device)
    seconds = time.perf_counter() - began
    metrics = {}
    for metric, values in zip(METRICS, measured(B, history, truth, CUT)):
        mean = float(values.mean())
        metrics[metric] = {"seeds": [mean], "mean": mean, "stderr": float(values.std(ddof=1) / len(values) ** 0.5)}
    device_name = torch.cuda.get_device_name() if device == "cuda" else device
    result = {
        "set": "gowalla",
        "model": "EASE",
        "label": "EASE",
        "settings": {"regularization": float(best["regularization"])},
        "metrics": metrics,
        "contexts": len(values),
        "fit_seconds": [round(seconds, 1)],
        "seeds": [],
        "when": datetime.date.today().isoformat(),
        "machine": f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}",
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "command": f"python -m benchmarks.gpu.ease test ease.npz --study {study.name} --out {out.name}",
        "device": f"{device_name}, torch {torch.__version__}",
        "study": {
            "file": study.name, "trials": len(trials), "metric": METRICS[1], "value": float(best[METRICS[1]])
        },
    }  # fmt: skip
    np.savez_compressed(out.with_suffix(".npz"), values=values.astype(np.float32))  # ndcg by context
    out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
