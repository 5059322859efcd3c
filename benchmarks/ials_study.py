"""Which settings of IALS are best on validation? A search on a GPU; every trial is kept.

    python benchmarks/ials_study.py prepare --data ../shared/data --out study.npz       (with Shortlist installed)
    PYTHONPATH=src python benchmarks/ials_study.py search study.npz --out folder --seconds gowalla=240 ml-1m-strong=60
    PYTHONPATH=src python benchmarks/ials_study.py search study.npz --out folder --suffix 256 --dims 128 256 256 256
        --trials gowalla=100 ml-1m-strong=100 goodbooks-strong=100 anime-strong=100

`search` needs NumPy, PyTorch and a GPU only. It fits on the train part (for gowalla, train without its validation
subset), folds the validation contexts in exactly after some of the epochs, and writes the best of these to
<set>-ials.csv (with `--suffix 256`, <set>-ials-256.csv), a line a trial, with the epoch; they are kept in
benchmarks/studies. Settings of the first 40 % of the trials are drawn at random from wide ranges, or taken from an
earlier study (`--first`), the others around the best so far. Test splits are not read.

Settings are drawn and moved with λ₁, the regularization that weighs as much in all as the exponent 1 would give it,
Σ λ·size^ν = Σ λ₁·size over all rows of both sides (Rendle et al. 2022): so ν can move without λ going astray.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SETS = ("gowalla", "ml-1m-strong", "goodbooks-strong", "anime-strong")
CUTS = {"gowalla": 20}  # ndcg is looked at here; at 100 for the others
LOOKS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)  # epochs after which the validation is looked at
NAMES = (
    "dim", "regularization", "unobserved_weight", "regularization_exponent",
    "unobserved_item_exponent", "unobserved_context_exponent", "epochs",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare_ = commands.add_parser("prepare")
    prepare_.add_argument("--data", type=Path, required=True)
    prepare_.add_argument("--out", type=Path, required=True)
    search_ = commands.add_parser("search")
    search_.add_argument("file", type=Path)
    search_.add_argument("--out", type=Path, required=True)
    budget = search_.add_mutually_exclusive_group(required=True)
    budget.add_argument("--seconds", nargs="+", default=[], metavar="SET=SECONDS")
    budget.add_argument("--trials", nargs="+", default=[], metavar="SET=TRIALS")
    search_.add_argument("--first", type=Path, help="a folder of studies whose best settings are tried first")
    search_.add_argument("--dims", nargs="+", type=int, default=[256, 512, 1024, 2048], help="named twice, drawn twice")
    search_.add_argument("--fix", nargs="+", default=[], metavar="SETTING=VALUE", help="settings that are not searched")
    search_.add_argument("--suffix", default="", help="of the names of the files")
    search_.add_argument("--device", default="cuda")
    search_.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
        return
    loaded = np.load(args.file)
    for one in args.seconds or args.trials:
        name, budget = one.split("=")
        search(name, loaded, float(budget), args)


# --- data ------------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """As `shortlist.data.rows.Rows`, which needs Numba."""

    indptr: np.ndarray
    indices: np.ndarray
    n_columns: int

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> np.ndarray:
        """How many entries each row has."""
        return np.diff(self.indptr)

    def __len__(self) -> int:
        return len(self.indices)

    def transpose(self) -> Rows:
        """The same entries by columns."""
        row = np.repeat(np.arange(self.n_rows, dtype=np.int32), self.lengths)
        counts = np.bincount(self.indices, minlength=self.n_columns)
        order = np.argsort(self.indices, kind="stable")
        return Rows(np.concatenate([[0], np.cumsum(counts)]), row[order], self.n_rows)


class Terms(NamedTuple):
    """As `shortlist.objectives.Terms`."""

    excess: np.ndarray
    target: np.ndarray
    ridge: np.ndarray
    dense: np.ndarray
    omega: np.ndarray


def prepare(data: Path, out: Path) -> None:
    """Train, history and truth of each validation, by the codes of the training items."""
    from published import gowalla, strong

    arrays: dict[str, np.ndarray] = {}
    for name in SETS:
        split = gowalla(data, validation=True) if name == "gowalla" else strong(data / name, "valid")
        arrays |= coded(name, split)
    np.savez_compressed(out, **arrays)


def coded(name: str, split: Any) -> dict[str, np.ndarray]:
    """The parts of a split by the codes of the training items, a row a context of the truth."""
    train, wanted = split.train, split.truth.contexts.ids()
    codes = {one: code for code, one in enumerate(train.items.ids())}
    arrays = {f"{name} n": np.array([train.n_contexts, train.n_items])}
    for part, events in (("train", train), ("history", split.history), ("truth", split.truth)):
        rows, ids = events.by_context, events.items.ids()
        place = np.array([codes.get(one, -1) for one in ids], np.int32)
        if part != "train":
            known = {one: code for code, one in enumerate(events.contexts.ids())}
            rows = rows.take(np.array([known[one] for one in wanted]))
        assert (place[rows.indices] >= 0).all()
        arrays[f"{name} {part} indptr"], arrays[f"{name} {part} indices"] = rows.indptr, place[rows.indices]
    return arrays


def parts(name: str, loaded: Any) -> tuple[Rows, Rows, Rows]:
    """Train, history and truth of what `coded` made."""
    n_items = int(loaded[f"{name} n"][1])
    names = [(f"{name} {part} indptr", f"{name} {part} indices") for part in ("train", "history", "truth")]
    train, history, truth = (Rows(loaded[indptr], loaded[indices], n_items) for indptr, indices in names)
    return train, history, truth


# --- search ----------------------------------------------------------------------------------------------------------


def search(name: str, loaded: Any, budget: float, args: argparse.Namespace) -> None:
    import torch

    train, history, truth = parts(name, loaded)
    problem = Problem(name, train, history, truth, args.device)
    rng = np.random.default_rng(args.seed)
    fixed = {key: float(value) for key, value in (one.split("=") for one in args.fix)}
    done: list[tuple[float, dict[str, Any]]] = []
    file = args.out / ("-".join(filter(None, (name, "ials", args.suffix))) + ".csv")
    first: list[dict[str, Any]] = []
    if args.first is not None:
        with (args.first / file.name).open(newline="") as earlier:
            rows = sorted(csv.DictReader(earlier), key=lambda row: -float(row[f"ndcg@{problem.cut}"]))
        named = [key for key in NAMES if key != "epochs"]
        first = [{key: (int if key == "dim" else float)(row[key]) for key in named} for row in rows[:12]]
    explore = 0.0 if first else 0.4
    began = time.perf_counter()
    while (share := (len(done) if args.trials else time.perf_counter() - began) / budget) < 1:
        if first:
            settings = first.pop(0) | fixed
        elif share < explore:
            settings = drawn(rng, problem, int(rng.choice(args.dims)), fixed)
        else:
            settings = nearby(rng, problem, done, args.dims, fixed, reach=1.5 - share)
        clock = time.perf_counter()
        best = max(problem.trial(settings), key=lambda look: look[f"ndcg@{problem.cut}"])
        torch.cuda.synchronize() if args.device == "cuda" else None
        done.append((best[f"ndcg@{problem.cut}"], settings))
        row = settings | {k: f"{v:.5f}" if k != "epochs" else v for k, v in best.items()}
        row["fit_seconds"] = f"{time.perf_counter() - clock:.1f}"
        new = not file.exists()
        with file.open("a", newline="") as out:
            writer = csv.DictWriter(out, [*NAMES, f"recall@{problem.cut}", f"ndcg@{problem.cut}", "fit_seconds"])
            if new:
                writer.writeheader()
            writer.writerow(row)
    top = sorted(done, key=lambda one: -one[0])[:5]
    print(f"{file.stem}: {len(done)} trials, {time.perf_counter() - began:.0f} s")
    for value, settings in top:
        print(f"  {value:.5f} {settings}", flush=True)


def drawn(rng: np.random.Generator, problem: Problem, dim: int, fixed: dict[str, float]) -> dict[str, Any]:
    """Settings at random from wide ranges."""
    settings = {
        "dim": dim,
        "regularization": 10 ** rng.uniform(-5, -1),
        "unobserved_weight": round_(10 ** rng.uniform(-3, 0.3)),
        "regularization_exponent": float(rng.choice([1.0, round_(rng.uniform(0.3, 1.2))])),
        "unobserved_item_exponent": float(rng.choice([0.0, round_(rng.uniform(-0.5, 0.75))])),
        "unobserved_context_exponent": float(rng.choice([0.0, 0.0, round_(rng.uniform(-0.75, 0.5))])),
    } | fixed
    settings["regularization"] = round_(settings["regularization"] * problem.exchange(settings))
    return settings


def nearby(
    rng: np.random.Generator,
    problem: Problem,
    done: list[tuple[float, dict[str, Any]]],
    dims: list[int],
    fixed: dict[str, float],
    reach: float,
) -> dict[str, Any]:
    """One of the five best so far, moved a little."""
    top = sorted(done, key=lambda one: -one[0])[:5]
    settings = dict(top[int(rng.integers(len(top)))][1])
    settings["regularization"] *= np.exp(rng.normal(0, 0.35 * reach)) / problem.exchange(settings)
    settings["unobserved_weight"] = round_(settings["unobserved_weight"] * np.exp(rng.normal(0, 0.35 * reach)))
    for key in ("regularization_exponent", "unobserved_item_exponent", "unobserved_context_exponent"):
        if rng.random() < 0.4:
            settings[key] = round_(settings[key] + rng.normal(0, 0.12 * reach))
    if rng.random() < 0.25:
        settings["dim"] = int(rng.choice(dims))
    settings |= fixed
    settings["regularization"] = round_(settings["regularization"] * problem.exchange(settings))
    return settings


def round_(value: float) -> float:
    return float(f"{value:.2g}")


class Problem:
    """One data set on the device."""

    def __init__(self, name: str, train: Rows, history: Rows, truth: Rows, device: str) -> None:
        import torch

        self.cut, self.device = CUTS.get(name, 100), device
        self.train, self.by_item, self.history = train, train.transpose(), history
        put = lambda rows: tuple(torch.as_tensor(one.astype(np.int64), device=device) for one in rows[:2])  # noqa: E731
        self.seen, self.truth = put(history), put(truth)
        self.best = 0.0

    def omega(self, counts: np.ndarray, exponent: float) -> tuple[np.ndarray, float]:
        """Weights n^ρ of mean 1, and the mean they were divided by."""
        powers = np.maximum(1, counts).astype(np.float64) ** exponent
        return (powers / powers.mean()).astype(np.float32), float(powers.mean())

    def exchange(self, settings: dict[str, Any]) -> float:
        """λ/λ₁, how much larger the regularization has to be for the exponent to weigh as much as 1 would."""
        alpha0 = settings["unobserved_weight"]
        size = np.concatenate([rows.lengths + alpha0 * rows.n_columns for rows in (self.train, self.by_item)])
        return float(size.sum() / (size ** settings["regularization_exponent"]).sum())

    def trial(self, settings: dict[str, Any]) -> Iterator[dict[str, float]]:
        """Fit, and what validation says after some of the epochs."""
        import torch

        from shortlist.solvers.limits import TO_THE_END
        from shortlist.solvers.on_device import DeviceSolver, _Side

        alpha0, rng = settings["unobserved_weight"], np.random.default_rng(0)
        of_items, _ = self.omega(self.by_item.lengths, settings["unobserved_item_exponent"])
        of_contexts, mean = self.omega(self.train.lengths, settings["unobserved_context_exponent"])

        def terms(rows: Rows, own: np.ndarray, other: np.ndarray) -> Terms:
            size = rows.lengths + alpha0 * rows.n_columns
            ridge = settings["regularization"] * size ** settings["regularization_exponent"]
            one = np.ones(1, np.float32)
            return Terms(one, one, ridge.astype(np.float32), (alpha0 * own).astype(np.float32), other)

        dim = settings["dim"]
        items = rng.standard_normal((self.train.n_columns, dim), dtype=np.float32) * np.float32(0.1 / dim**0.5)
        solver = DeviceSolver(
            self.train, self.by_item, terms(self.train, of_contexts, of_items),
            terms(self.by_item, of_items, of_contexts), items, device=self.device, fused=False,
        )  # fmt: skip
        new = np.maximum(1, self.history.lengths) ** settings["unobserved_context_exponent"] / mean
        side = _Side(self.history, terms(self.history, new, of_items), dim, solver.device, False)
        best, since = 0.0, 0
        for epoch in range(1, max(LOOKS) + 1):
            solver.epoch()
            if epoch not in LOOKS:
                continue
            H = solver._items.clone()
            W = torch.zeros((self.history.n_rows, dim), device=self.device)
            solver._half_step(side, H, W, TO_THE_END)
            look = self.measure(W, H) | {"epochs": epoch}
            yield look
            value = look[f"ndcg@{self.cut}"]
            best, since = (value, 0) if value > best else (best, since + 1)
            if since == 3 or (epoch >= 5 and best < 0.93 * self.best):
                break
        self.best = max(self.best, best)

    def measure(self, W: Any, H: Any) -> dict[str, float]:
        """Mean recall and NDCG at the cut over the contexts with a truth."""
        recall, ndcg = by_context(lambda start, stop: W[start:stop] @ H.T, self.seen, self.truth, self.cut)
        return {f"recall@{self.cut}": float(recall.mean()), f"ndcg@{self.cut}": float(ndcg.mean())}


def singular_vectors(contexts: Any, items: Any, n_contexts: int, n_items: int, dim: int) -> tuple[Any, Any, Any]:
    """As `shortlist.solvers.spectral`, on a GPU: U, s and V of the pairs that these columns name."""
    import torch

    of_context, of_item = torch.bincount(contexts).float() ** -0.5, torch.bincount(items).float() ** -0.5
    where = torch.stack([contexts, items]).long()
    values = of_context[where[0]] * of_item[where[1]]
    matrix = torch.sparse_coo_tensor(where, values, (n_contexts, n_items)).coalesce()
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    U, s, V = torch.svd_lowrank(matrix, q=dim + 16, niter=4)
    return U[:, :dim], s[:dim], V[:, :dim]


def by_context(scores: Callable[[int, int], Any], seen: Any, truth: Any, cut: int) -> tuple[Any, Any]:
    """Recall and NDCG at the cut of every context with a truth; what was seen is left out.

    Args:
        scores: from the first and last row of a block to its scores, a new tensor each time.
        seen: indptr and indices of the histories, on the device.
        truth: the same of what is asked for.
        cut: how long the lists are.
    """
    import torch

    device, block = truth[0].device, 4096
    discount = 1 / torch.log2(torch.arange(2, cut + 2, device=device, dtype=torch.float64))
    ideal = discount.cumsum(0)

    def entries(rows: Any, start: int, stop: int) -> tuple[Any, Any, Any]:
        """The size of each row, and the row and column of each entry."""
        indptr, indices = rows
        size = indptr[start + 1 : stop + 1] - indptr[start:stop]
        row = torch.repeat_interleave(torch.arange(stop - start, device=device), size)
        return size, row, indices[int(indptr[start]) : int(indptr[stop])]

    recalls, ndcgs = [], []
    n = len(truth[0]) - 1
    for start in range(0, n, block):
        stop = min(n, start + block)
        values = scores(start, stop)
        _, row, column = entries(seen, start, stop)
        values[row, column] = -torch.inf
        top = values.topk(cut, dim=1).indices
        size, row, column = entries(truth, start, stop)
        relevant = torch.zeros_like(values, dtype=torch.bool)
        relevant[row, column] = True
        hits = relevant.gather(1, top).double()
        some = size > 0
        recalls.append(hits.sum(1)[some] / size[some])
        ndcgs.append((hits @ discount)[some] / ideal[size[some].clamp(max=cut) - 1])
    return torch.cat(recalls), torch.cat(ndcgs)


if __name__ == "__main__":
    main()
