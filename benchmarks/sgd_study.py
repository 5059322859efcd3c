"""Which settings of the factorizations by sampling are best on validation? Many trials at once, one to a core.

    python benchmarks/sgd_study.py prepare gowalla --data FOLDER --out gowalla.npz
    python benchmarks/sgd_study.py search BPR gowalla.npz --out benchmarks/studies/gowalla-bpr.csv --minutes 4

The first writes the codes of the training and the validation pairs; the second needs NumPy, Numba and PyTorch only, and
ranks on a GPU where there is one. A trial is a fit by one thread with random settings, or ones near the best so far. It
is judged after every few epochs on some of the contexts, which are folded in from their training pairs as `fit` would
end with them, and stops when it gets no better. The table has the settings, the best number of epochs, and the metrics.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing as mp
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SAMPLE = 8000  # contexts that a trial is judged on
EVERY = {"BPR": 10, "AdaptiveBPR": 5, "WARP": 5, "LambdaMF": 5, "LogisticMF": 10}  # epochs
MOST = 200  # epochs
METRIC = "ndcg@20"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("prepare")
    first.add_argument("set")
    first.add_argument("--data", type=Path, required=True)
    first.add_argument("--out", type=Path, required=True)
    second = commands.add_parser("search")
    second.add_argument("model")
    second.add_argument("problem", type=Path)
    second.add_argument("--out", type=Path, required=True)
    second.add_argument("--minutes", type=float, default=4.0)
    second.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    second.add_argument("--dims", type=int, nargs="+", default=[64, 128, 256])
    second.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.set, args.data, args.out)
    else:
        search(args)


def prepare(name: str, data: Path, out: Path) -> None:
    """Write the training and the validation pairs as codes."""
    from rows import data_set
    from study import validation

    split = validation(data_set(name), data)
    own = split.truth.contexts.encode(split.train.contexts.frame, unknown="mark")
    place = np.full(split.truth.n_contexts, -1)
    place[own[own >= 0]] = np.flatnonzero(own >= 0)
    items = split.train.items.encode(split.truth.items.frame, unknown="mark")
    asked = split.truth.by_context
    contexts = place[np.repeat(np.arange(asked.n_rows), asked.lengths)]
    wanted = items[asked.indices]
    known = (contexts >= 0) & (wanted >= 0)
    train = split.train.by_context
    shape = np.array([train.n_rows, train.n_columns])
    np.savez(
        out, shape=shape, indptr=train.indptr, indices=train.indices, contexts=contexts[known], items=wanted[known]
    )


class Problem:
    """The data of a search, and how a model is judged on it."""

    def __init__(self, path: Path) -> None:
        """Read what `prepare` wrote."""
        import torch

        from shortlist.data.rows import Rows

        loaded = np.load(path)
        self.n_contexts, self.n_items = (int(one) for one in loaded["shape"])
        self.by_context = Rows(loaded["indptr"], loaded["indices"], None, self.n_items)
        contexts, items = loaded["contexts"], loaded["items"]
        chosen = np.unique(contexts)
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:SAMPLE])
        lists = [np.empty(0, np.int32)] * self.n_contexts
        order = np.argsort(contexts, kind="stable")
        for one in np.split(order, np.flatnonzero(np.diff(contexts[order])) + 1):
            lists[contexts[one[0]]] = items[one]
        truth = Rows.from_lists([lists[c] for c in chosen], self.n_items)
        self.histories = self.by_context.take(chosen)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.seen, self.truth = (
            tuple(torch.tensor(one, device=self.device) for one in (rows.indptr, rows.indices.astype(np.int64)))
            for rows in (self.histories, truth)
        )

    def judged(self, model: Any, items: Any, basis: Any) -> tuple[float, float]:
        """Recall and NDCG at 20 of a model with these items."""
        import torch

        from ials_study import by_context

        model._set_items(items.copy(), basis)
        contexts = torch.tensor(model._fold_in(self.histories, 1), device=self.device)
        all_items = torch.tensor(model.item_embeddings_, device=self.device)
        found = by_context(lambda start, stop: contexts[start:stop] @ all_items.T, self.seen, self.truth, 20)
        return float(found[0].mean()), float(found[1].mean())


PROBLEM: Problem | None = None


def begin(path: Path) -> None:
    """Ready a worker."""
    global PROBLEM  # noqa: PLW0603
    PROBLEM = Problem(path)


def trial(given: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Fit with these settings until it gets no better."""
    from shortlist.errors import SettingError
    from shortlist.recommenders import matrix_factorization

    name, settings = given
    assert PROBLEM is not None
    began = time.perf_counter()
    planned = settings.get("schedule", "constant") != "constant"
    model = getattr(matrix_factorization, name)(**{"epochs": MOST, **settings})
    basis = model._basis(PROBLEM.by_context)
    loop = model._loop(None, basis, *model._start(PROBLEM, None, 1), 1, model.epochs)
    best: tuple[float, float, int] = (-1.0, -1.0, 0)
    late = 0
    for epoch in range(1, model.epochs + 1):
        try:
            loop.epoch()
        except SettingError:  # its steps are too long
            break
        if epoch % EVERY[name] and epoch < model.epochs:
            continue
        if planned and epoch < model.epochs:
            continue
        recall, ndcg = PROBLEM.judged(model, loop.items, basis)
        late = 0 if ndcg > best[0] else late + 1
        best = max(best, (ndcg, recall, epoch))
        if late == 3:
            break
    told = {"epochs": best[2], "recall@20": round(best[1], 6), METRIC: round(best[0], 6)}
    return settings | told | {"seconds": round(time.perf_counter() - began, 1)}


def search(args: argparse.Namespace) -> None:
    """Run trials until the time is up; every line is written as soon as it is there."""
    lines: list[dict[str, Any]] = []
    rng = np.random.default_rng(args.seed)
    end = time.perf_counter() + 60 * args.minutes
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

    def proposals() -> Iterator[tuple[str, dict[str, Any]]]:
        while time.perf_counter() < end:
            fresh = len(lines) < 3 * args.workers or rng.random() < 0.25
            yield args.model, drawn(rng, args.model, args.dims) if fresh else nearby(rng, args.model, lines, args.dims)

    with mp.get_context("spawn").Pool(args.workers, begin, (args.problem,)) as pool, args.out.open("w") as file:
        proposed = proposals()
        running = [pool.apply_async(trial, (next(proposed),)) for _ in range(args.workers)]
        names: list[str] = []
        while running:
            done = [one for one in running if one.ready()]
            running = [one for one in running if one not in done]
            for one in done:
                lines.append(one.get())
                if not names:
                    names = [*space(args.model), "dim", "epochs", "recall@20", METRIC, "seconds"]
                    print(*names, sep=",", file=file)
                writer = csv.DictWriter(file, names, lineterminator="\n")
                writer.writerow(lines[-1])
                file.flush()
                following = next(proposed, None)
                if following is not None:
                    running.append(pool.apply_async(trial, (following,)))
            time.sleep(0.05)
            if time.perf_counter() > end + 20:  # what has not ended by now is lost
                pool.terminate()
                break
    best = max(lines, key=lambda line: line[METRIC])
    print(f"{args.model}: {len(lines)} trials, the best {best}")


def space(model: str) -> dict[str, tuple[float, float, bool] | list[Any]]:
    """Ranges (low, high, log) or values of the settings."""
    common: dict[str, tuple[float, float, bool] | list[Any]] = {
        "learning_rate": (0.01, 0.3, True),
        "regularization": (3e-4, 0.05, True),
        "positive_item_exponent": (-0.5, 0.2, False),
        "positive_context_exponent": (-0.5, 0.2, False),
    }
    if model == "AdaptiveBPR":
        return common | {"gamma": (30.0, 20_000.0, True)}
    if model == "WARP":
        penalties = ["Reciprocal()", "TopN(n=20)", "TopN(n=100)"]
        changed = {
            "learning_rate": (0.003, 0.3, True),
            "regularization": (1e-5, 0.03, True),
            "margin": (0.1, 3.0, True),
        }
        return common | changed | {"optimizer": ["sgd", "adagrad"], "rounds": (5, 300, True), "penalty": penalties}
    if model == "LambdaMF":
        changed = {"learning_rate": (0.05, 3.0, True), "regularization": (3e-5, 0.01, True)}
        return common | changed | {"metric": ["ndcg", "ndcg@20"], "candidates": (8, 128, True)}
    if model == "LogisticMF":
        return common | {"n_negatives": (1, 16, True)}
    return common


def drawn(rng: np.random.Generator, model: str, dims: list[int]) -> dict[str, Any]:
    """Settings at random."""
    settings: dict[str, Any] = {"dim": int(rng.choice(dims))}
    for name, one in space(model).items():
        if isinstance(one, list):
            settings[name] = one[rng.integers(len(one))]
            continue
        low, high, log = one
        value = np.exp(rng.uniform(np.log(low), np.log(high))) if log else rng.uniform(low, high)
        settings[name] = settled(value, low)
    return settings


def nearby(rng: np.random.Generator, model: str, lines: list[dict[str, Any]], dims: list[int]) -> dict[str, Any]:
    """Settings near one of the best, some of them changed."""
    ranked = sorted(lines, key=lambda line: -line[METRIC])
    centre = ranked[min(int(rng.exponential(2)), len(ranked) - 1)]
    settings: dict[str, Any] = {"dim": int(max(dims)) if rng.random() < 0.5 else centre["dim"]}
    for name, one in space(model).items():
        settings[name] = centre[name]
        if rng.random() < 0.4:
            continue
        if isinstance(one, list):
            if rng.random() < 0.3:
                settings[name] = one[rng.integers(len(one))]
            continue
        low, high, log = one
        if log:
            value = np.exp(np.clip(np.log(centre[name]) + rng.normal(0, 0.35), np.log(low), np.log(high)))
        else:
            value = np.clip(centre[name] + rng.normal(0, 0.1 * (high - low)), low, high)
        settings[name] = settled(value, low)
    return settings


def settled(value: float, low: float) -> float | int:
    """Two digits of a number; a whole one where its range is of whole numbers."""
    return round(value) if isinstance(low, int) else float(f"{value:.2g}")


if __name__ == "__main__":
    main()
