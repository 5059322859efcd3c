"""Which settings of IALS are best on validation, in a search on a GPU that keeps every trial?

    python -m benchmarks.studies.ials prepare --data ../shared/data --out study.npz       (with Shortlist installed)
    PYTHONPATH=src python -m benchmarks.studies.ials search study.npz --out folder --seconds gowalla=240 ml-1m-strong=60
    PYTHONPATH=src python -m benchmarks.studies.ials search study.npz --out folder --suffix 256 --dims 128 256 256 256
        --trials gowalla=100 ml-1m-strong=100 goodbooks-strong=100 anime-strong=100

`search` needs NumPy, PyTorch and a GPU only. It fits on the train part (for gowalla, train without its validation
subset), folds the validation contexts in exactly after some of the epochs, and writes the best of these to
<set>-ials.csv (with `--suffix 256`, <set>-ials-256.csv), a line a trial, with the epoch; they are kept in
benchmarks/studies/trials. Settings of the first 40 % of the trials are drawn at random from wide ranges, or taken from
an earlier study (`--first`), the others around the best so far. Test splits are not read.

Settings are drawn and moved with λ₁, the regularization that weighs as much in all as the exponent 1 would give it, Σ
λ·size^ν = Σ λ₁·size over all rows of both sides (Rendle et al. 2022): so ν can move without λ going astray.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.lib.coded_splits import Rows, coded, parts
from benchmarks.lib.torch_helpers import by_context

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


class Terms(NamedTuple):
    """As `shortlist.objectives.Terms`."""

    excess: np.ndarray
    target: np.ndarray
    ridge: np.ndarray
    dense: np.ndarray
    omega: np.ndarray


def prepare(data: Path, out: Path) -> None:
    """Train, history and truth of each validation, by the codes of the training items."""
    from benchmarks.lib.published import gowalla, strong

    arrays: dict[str, np.ndarray] = {}
    for name in SETS:
        split = gowalla(data, validation=True) if name == "gowalla" else strong(data / name, "valid")
        arrays |= coded(name, split)
    np.savez_compressed(out, **arrays)


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

        from shortlist.solvers.cg_limits import TO_THE_END
        from shortlist.solvers.torch_half_step import DeviceSide, DeviceSolver

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
        side = DeviceSide(self.history, terms(self.history, new, of_items), dim, solver.device, False)
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


if __name__ == "__main__":
    main()
