"""Which settings of BPR, AdaptiveBPR, WARP and LambdaMF are best on validation, in a search on a GPU?

    python -m benchmarks.studies.sgd prepare gowalla --data FOLDER --out gowalla.npz       (with Shortlist installed)
    python -m benchmarks.studies.sgd search BPR gowalla.npz --study gowalla-bpr.csv --seconds 200
    python -m benchmarks.studies.sgd search WARP gowalla.npz --study … --seconds 200 --fix normalize=True dim=256

All but `prepare` need NumPy, PyTorch, CUDA's compiler and a GPU, on which an epoch of gowalla takes some milliseconds:
`gpu/sgd_steps.cu` takes the steps of `shortlist.solvers.sgd_kernels`, some thousand at a time. Each trial fits on the
training part and is judged on the validation part (what a context has in training is left out). Learning rates fall to
0 over the epochs of a trial. `search` draws the settings of its first trials from wide ranges, and the others around
the best so far; trials that the study has already count, so that a search can be done in parts. Every trial is a line
of the study. The test split is not read.
"""

from __future__ import annotations

import argparse
import ast
import csv
import ctypes
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.paths import ROOT
from benchmarks.lib.torch_helpers import by_context, singular_vectors

CUT = 20
METRICS = (f"recall@{CUT}", f"ndcg@{CUT}")
BLOCKS = 264  # of 8 warps
UNIFORM, ADAPTIVE, REJECTION = 0, 1, 2
SAMPLERS = {"BPR": UNIFORM, "AdaptiveBPR": ADAPTIVE, "WARP": REJECTION}
WEIGHERS = {"BPR": 0, "AdaptiveBPR": 0, "WARP": 1, "LambdaMF": 2}
Range = tuple[float, float, bool] | list[Any]  # low, high, whether by its logarithm; or values
COMMON: dict[str, Range] = {
    "dim": [128, 256],
    "epochs": (50, 600, True),
    "learning_rate": (0.02, 0.5, True),
    "regularization": (1e-5, 0.01, True),
    "n_negatives": [1, 2, 4, 8],
    "positive_context_exponent": (-0.6, 0.0, False),
    "positive_item_exponent": (-0.4, 0.2, False),
    "init_scale": [0.1, 1.0, 3.0],
    "init": ["random", "svd"],
    "optimizer": ["sgd"],
    "normalize": [False],
    "temperature": [1.0],
    "schedule": ["linear"],
}
SPACES: dict[str, dict[str, Range]] = {
    "BPR": COMMON,
    "AdaptiveBPR": COMMON
    | {
        "epochs": (30, 300, True),
        "regularization": (1e-4, 0.05, True),
        "n_negatives": [2, 4, 8, 16],
        "gamma": (100.0, 20_000.0, True),
    },
    "WARP": {name: one for name, one in COMMON.items() if name != "temperature"}
    | {
        "epochs": (10, 150, True),
        "learning_rate": (0.003, 0.3, True),
        "n_negatives": [1, 2, 4],
        "positive_item_exponent": (-0.4, 0.6, False),
        "optimizer": ["adagrad"],
        "normalize": [False, True],
        "margin": (0.1, 2.0, True),
        "rounds": (20, 300, True),
        "penalty": ["Reciprocal()", "TopN(n=20)", "TopN(n=100)"],
    },
    "LambdaMF": COMMON
    | {
        "epochs": (30, 300, True),
        "learning_rate": (3.0, 100.0, True),
        "regularization": (1e-7, 1e-3, True),
        "n_negatives": [4, 8, 16],
        "positive_context_exponent": (-0.3, 1.0, False),  # 1/ideal, in |ΔNDCG|, is about the exponent −0.8
        "sampler": ["Uniform()", *(f"AdaptiveRank(gamma={gamma})" for gamma in (300, 700, 1500, 4000, 10000))],
        "metric": ["ndcg", "ndcg@20"],
        "candidates": [16, 32, 64],
    },
}
WHOLE = ("epochs", "rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("set")
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one = commands.add_parser("search")
    one.add_argument("model", choices=SPACES)
    one.add_argument("file", type=Path)
    one.add_argument("--study", type=Path, required=True)
    one.add_argument("--seconds", type=float, required=True)
    one.add_argument("--explore", type=int, default=20, help="so many trials from wide ranges")
    one.add_argument("--fix", nargs="+", default=[], metavar="SETTING=VALUE", help="or SETTING=(LOW,HIGH,LOG)")
    one.add_argument("--seed", type=int, default=0, help="of the settings that are drawn, not of the fits")
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.set, args.data, args.out)
        return
    fixed = {name: value_of(text) for name, _, text in (one.partition("=") for one in args.fix)}
    search(Problem(args.file), args.model, args.study, args.seconds, args.explore, fixed, args.seed)


def value_of(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def prepare(name: str, data: Path, out: Path) -> None:
    """Write the training and the validation pairs as codes."""
    from benchmarks.quality.rows import data_set
    from benchmarks.studies.tune import validation

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
    np.savez_compressed(
        out, shape=shape, indptr=train.indptr, indices=train.indices, contexts=contexts[known], items=wanted[known]
    )


class Rules(ctypes.Structure):
    """As in sgd_steps.cu."""

    _fields_ = [(name, ctypes.c_int) for name in (
        "n_pairs", "n_items", "words", "n_negatives", "sampler", "weigher", "rounds", "candidates", "cosine",
        "adagrad", "hinge",
    )] + [(name, ctypes.c_float) for name in (
        "context_rate", "item_rate", "context_ridge", "item_ridge", "margin", "sharpness", "gamma",
    )] + [("seed", ctypes.c_ulonglong)]  # fmt: skip


class Tables(ctypes.Structure):
    """As in sgd_steps.cu."""

    _fields_ = [(name, ctypes.c_void_p) for name in (
        "order", "contexts", "items", "bits", "context_weights", "item_weights", "lists", "sigma", "penalties",
        "changes", "norms", "lengths", "W", "H", "W_squares", "H_squares",
    )]  # fmt: skip


class Problem:
    """The data on the device, and the kernel."""

    def __init__(self, file: Path) -> None:
        import torch

        loaded = np.load(file)
        put = lambda array, kind=torch.int64: torch.as_tensor(array, device="cuda", dtype=kind)  # noqa: E731
        self.n_contexts, self.n_items = (int(n) for n in loaded["shape"])
        indptr, indices = loaded["indptr"], loaded["indices"]
        lengths = np.diff(indptr)
        row_of = np.repeat(np.arange(self.n_contexts), lengths)
        self.contexts, self.items = put(row_of, torch.int32), put(indices, torch.int32)
        self.lengths, self.counts = put(lengths, torch.int32), np.bincount(indices, minlength=self.n_items)
        self.context_lengths = lengths
        self.words = -(-self.n_items // 32)
        bits = torch.zeros(self.n_contexts * self.words, dtype=torch.int64, device="cuda")
        at = put(row_of) * self.words + (put(indices) >> 5)
        bits.index_add_(0, at, 1 << (put(indices) & 31))  # each pair is there once
        self.bits = torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32)
        order = np.argsort(loaded["contexts"], kind="stable")
        asked, size = np.unique(loaded["contexts"], return_counts=True)
        self.asked = put(asked)
        self.truth = (put(np.concatenate([[0], np.cumsum(size)])), put(loaded["items"][order]))
        history = [indices[indptr[c] : indptr[c + 1]] for c in asked]
        self.seen = (put(np.concatenate([[0], np.cumsum(lengths[asked])])), put(np.concatenate(history)))
        self.epoch = compiled()
        self.vectors: dict[int, tuple[Any, Any, Any]] = {}

    def start(self, dim: int) -> tuple[Any, Any, Any]:
        """The leading singular vectors and values."""
        if dim not in self.vectors:
            self.vectors[dim] = singular_vectors(self.contexts, self.items, self.n_contexts, self.n_items, dim)
        return self.vectors[dim]

    def measure(self, W: Any, H: Any) -> tuple[float, float]:
        """Recall and NDCG of a model."""
        own = W[self.asked]
        found = by_context(lambda start, stop: own[start:stop] @ H.T, self.seen, self.truth, CUT)
        return float(found[0].mean()), float(found[1].mean())


def compiled() -> Any:
    """The kernel of sgd_steps.cu."""
    out = Path(tempfile.mkdtemp()) / "sgd_steps.so"
    source = ROOT / "benchmarks" / "gpu" / "sgd_steps.cu"
    command = ["nvcc", "-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC", str(source), "-o", str(out)]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(out)).epoch
    function.argtypes = [ctypes.c_int, Rules, Tables, ctypes.c_int, ctypes.c_void_p]
    return function


class Fit:
    """A fit with these settings."""

    def __init__(self, problem: Problem, model: str, settings: dict[str, Any], seed: int = 0) -> None:
        import torch

        self.problem, self.model, self.settings, self.torch = problem, model, settings, torch
        dim, scale = settings["dim"], settings["init_scale"] / settings["dim"] ** 0.5
        generator = torch.Generator("cuda").manual_seed(seed)
        self.generator = generator
        shape = lambda n: torch.randn(n, dim, device="cuda", generator=generator) * scale  # noqa: E731
        self.W, self.H = shape(problem.n_contexts), shape(problem.n_items)
        if settings["init"] == "svd":
            U, s, V = problem.start(dim)
            for side, vectors in ((self.W, U), (self.H, V)):
                side.copy_(torch.nn.functional.normalize(vectors * s.sqrt()) * settings["init_scale"])
        self.W_squares, self.H_squares = torch.zeros_like(self.W), torch.zeros_like(self.H)
        put = lambda array: torch.as_tensor(array, device="cuda", dtype=torch.float32)  # noqa: E731
        self.context_weights = put(omega(problem.context_lengths, settings["positive_context_exponent"]))
        self.item_weights = put(omega(problem.counts, settings["positive_item_exponent"]))
        n = problem.n_items
        self.penalties = put(penalties(settings.get("penalty", "Reciprocal()"), n))
        changes, norms = lambdas(
            settings.get("metric", "ndcg"), n, int(problem.context_lengths.max()), settings.get("candidates", 1)
        )
        self.changes, self.norms = put(changes), put(norms)
        self.lists, self.sigma = torch.zeros(1, 1, dtype=torch.int32, device="cuda"), put(np.zeros(1))
        self.turn = 0
        margin = settings.get("margin", 1.0)
        name, _, gamma = settings.get("sampler", "").removesuffix(")").partition("(gamma=")
        sampler = SAMPLERS.get(model, ADAPTIVE if name == "AdaptiveRank" else UNIFORM)
        self.rules = Rules(
            n_items=n, words=problem.words, n_negatives=settings["n_negatives"], sampler=sampler,
            weigher=WEIGHERS[model], rounds=settings.get("rounds", 0), candidates=settings.get("candidates", 0),
            cosine=int(settings["normalize"]), adagrad=int(settings["optimizer"] == "adagrad"),
            hinge=int(model == "WARP"), context_ridge=settings["regularization"],
            item_ridge=settings["regularization"], margin=margin,
            sharpness=1 / (margin if model == "WARP" else settings["temperature"]),
            gamma=settings.get("gamma", float(gamma or 1)),
        )  # fmt: skip

    def directions(self) -> Any:
        """The items as they are compared."""
        return self.torch.nn.functional.normalize(self.H) if self.rules.cosine else self.H

    def refresh(self) -> None:
        """Sort the items along each coordinate."""
        columns = self.directions().T.contiguous()
        self.lists = columns.sort(dim=1, descending=True).indices.to(self.torch.int32)
        self.sigma = columns.std(dim=1, correction=0)

    def run(self, share: float) -> None:
        """A step for every pair."""
        torch, problem, rules = self.torch, self.problem, self.rules
        order = torch.randperm(len(problem.items), device="cuda", generator=self.generator, dtype=torch.int32)
        part = len(order)
        if rules.sampler == ADAPTIVE:
            part = int(self.problem.n_items * np.log2(self.problem.n_items) / rules.n_negatives)
        rules.context_rate = rules.item_rate = self.settings["learning_rate"] * share
        for start in range(0, len(order), part):
            if rules.sampler == ADAPTIVE:
                self.refresh()
            own = order[start : start + part]
            self.turn += 1
            rules.n_pairs, rules.seed = len(own), self.turn << 32
            tables = Tables(*(one.data_ptr() for one in (
                own, problem.contexts, problem.items, problem.bits, self.context_weights, self.item_weights, self.lists,
                self.sigma, self.penalties, self.changes, self.norms, problem.lengths, self.W, self.H, self.W_squares,
                self.H_squares,
            )))  # fmt: skip
            stream = torch.cuda.current_stream().cuda_stream
            if error := problem.epoch(self.settings["dim"], rules, tables, BLOCKS, stream):
                raise SystemExit(f"CUDA says {error}")


def omega(counts: np.ndarray, exponent: float) -> np.ndarray:
    weights = np.maximum(counts, 1.0) ** exponent
    return weights / weights.mean()


def penalties(text: str, n_items: int) -> np.ndarray:
    above = np.arange(n_items)
    if text.startswith("TopN"):
        n = int(text.removeprefix("TopN(n=").removesuffix(")"))
        return np.minimum(above, n) / n
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n_items))])


def lambdas(metric: str, n_items: int, longest: int, candidates: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean change by how many candidates score higher than the two items, and the best NDCG of so many items."""
    cut = int(metric.partition("@")[2] or n_items)
    ranks = np.arange(1, n_items + 1)
    gains = (ranks <= cut) / np.log2(1 + ranks)
    x = (ranks - 0.5) / n_items
    logs = [k * np.log(x) + (candidates - k) * np.log1p(-x) for k in range(candidates + 1)]
    laws = [np.exp(one - one.max()) for one in logs]
    until = np.array([np.cumsum(one / one.sum()) for one in laws])[:, :-1]
    one_side = (until * -np.diff(gains)) @ (1 - until).T
    return one_side + one_side.T, np.cumsum(gains)[np.minimum(np.maximum(1, np.arange(longest + 1)), n_items) - 1]


def trial(problem: Problem, model: str, settings: dict[str, Any], limit: float) -> dict[str, Any]:
    """Fit and measure; one that takes too long, or runs away, is worth nothing."""
    import torch

    began = time.perf_counter()
    fit = Fit(problem, model, settings)
    state = "complete"
    epochs = settings["epochs"]
    for epoch in range(epochs):
        fit.run(1 - epoch / epochs if settings["schedule"] == "linear" else 1.0)
        if epoch % 5 == 4:
            torch.cuda.synchronize()
            if time.perf_counter() - began > limit:
                state = "pruned"
                break
            if not torch.isfinite(fit.H.sum()):
                state = "pruned"
                break
    found = problem.measure(fit.W, fit.directions())
    values = {name: round(one, 6) for name, one in zip(METRICS, found)}
    return settings | {"state": state} | values | {"seconds": round(time.perf_counter() - began, 1)}


def search(
    problem: Problem, model: str, path: Path, seconds: float, explore: int, fixed: dict[str, Any], seed: int
) -> None:
    rows: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as file:
            rows = [{name: value_of(text) for name, text in row.items()} for row in csv.DictReader(file)]
    rng = np.random.default_rng([seed, len(rows)])
    space = SPACES[model] | {name: value if isinstance(value, tuple) else [value] for name, value in fixed.items()}
    end, tried = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        good = sorted((one for one in rows if one["state"] == "complete"), key=lambda one: -one[METRICS[1]])
        wide = tried < explore or not good or rng.random() < 0.1
        centre = {} if wide else good[min(int(rng.exponential(1.5)), len(good) - 1)]
        settings = {name: drawn(rng, name, one, centre) for name, one in space.items()}
        tried += 1
        row = trial(problem, model, settings, min(60.0, end + 20 - time.perf_counter()))
        rows.append(row)
        print(model, len(rows), {k: v for k, v in row.items() if len(space.get(k, "12")) > 1}, flush=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    best = max((one for one in rows if one["state"] == "complete"), key=lambda one: one[METRICS[1]])
    print(f"{model}: {len(rows)} trials, the best {best}")


def drawn(rng: np.random.Generator, name: str, one: Range, centre: dict[str, Any]) -> Any:
    """A value of a setting: from its whole range, or near the centre's."""
    own = centre.get(name)
    if isinstance(one, list):
        return own if own in one and rng.random() < 0.7 else one[rng.integers(len(one))]
    low, high, log = one
    if own is not None and rng.random() < 0.3:
        return own
    a, b = (np.log(low), np.log(high)) if log else (low, high)
    if own is None:
        value = rng.uniform(a, b)
    else:
        value = np.clip((np.log(own) if log else own) + rng.normal(0, 0.12 * (b - a)), a, b)
    value = np.exp(value) if log else value
    return round(value) if name in WHOLE else float(f"{value:.2g}")


if __name__ == "__main__":
    sys.exit(main())
