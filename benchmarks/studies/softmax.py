"""Which settings of SoftmaxMF are best on gowalla's validation part, in a search on a GPU?

    python -m benchmarks.studies.softmax prepare --data ../shared/data --out study.npz       (with Shortlist installed)
    python -m benchmarks.studies.softmax search study.npz --dims 64 64 128 --seconds 120
    python -m benchmarks.studies.softmax search study.npz --dims 256 512 --explore 0 --trials 40
    python -m benchmarks.studies.softmax around study.npz --dims 128

All of it but `prepare` needs NumPy and PyTorch only; a CPU will do (`--device cpu`), but takes minutes for a trial.
Trials fit on train without its published validation subset, look at that subset (what a context has in train is left
out), and write a line each to benchmarks/studies/trials/gowalla-softmaxmf.csv; trials that are there already count, so
that a search can be done in parts. With a constant learning rate the line is of the best epoch among those that were
looked at; with one that falls, of the last, since the rate depends on their number. `search` draws the settings of its
first part (`--explore`) from wide ranges, and the others around the best so far of the same dim. `around` changes one
setting at a time of the best of a dim, which says what each of them does. The test split is not read.

What is fitted, as `shortlist.SoftmaxMF` does it with normalize=True:

    Σ_(c,i)∈S α(c,i) [ln Σ_j exp(cos(w_c,h_j)/τ) − cos(w_c,h_i)/τ]        α(c,i) = ω_c·ω_i, ω = n^ρ of mean 1

in batches of contexts with all their positives, shuffled anew each epoch; a gradient is divided by the weight Σα of its
batch. With exclude="history" the sum over j has, of the items of c, only i itself.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.paths import TRIALS
from benchmarks.lib.torch_helpers import by_context, singular_vectors

STUDY = TRIALS / "gowalla-softmaxmf.csv"
CUT = 20
# epochs after which the validation is looked at
LOOKS = (*range(2, 20, 2), 20, 23, 26, 30, 35, 40, 50, 60, 80, 100)
METRICS = (f"recall@{CUT}", f"ndcg@{CUT}")
NAMES = (
    "dim", "temperature", "learning_rate", "schedule", "batch", "init_scale", "positive_context_exponent",
    "positive_item_exponent", "exclude", "regularization", "optimizer", "init", "epochs",
)  # fmt: skip
WORDS = ("schedule", "exclude", "optimizer", "init")
WHOLE = ("dim", "batch", "epochs")
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
GRIDS: dict[str, list[Any]] = {  # of `around`; numbers in (…,) are factors
    "temperature": [(0.6,), (0.8,), (1.25,), (1.6,)],
    "learning_rate": [(0.5,), (2.0,)],
    "schedule": ["constant", "linear", "cosine"],
    "batch": [256, 512, 1024, 2048, 4096],
    "init_scale": [(0.3,), (3.0,)],
    "positive_context_exponent": [-1.0, -0.5, -0.25, 0.0, 0.25],
    "positive_item_exponent": [-0.3, -0.15, 0.0, 0.15, 0.3],
    "exclude": ["positive", "history"],
    "regularization": [0.0, 1e-6, 1e-5],
    "optimizer": ["adam", "adagrad"],
    "init": ["random", "svd"],
    "epochs": [8, 15, 30],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare_ = commands.add_parser("prepare")
    prepare_.add_argument("--data", type=Path, required=True)
    prepare_.add_argument("--out", type=Path, required=True)
    search_, around_ = commands.add_parser("search"), commands.add_parser("around")
    for one in (search_, around_):
        one.add_argument("file", type=Path)
        one.add_argument("--dims", nargs="+", type=int, default=[64], help="in a search, named twice, drawn twice")
        one.add_argument("--study", type=Path, default=STUDY)
        one.add_argument("--device", default="cuda")
        one.add_argument("--seed", type=int, default=0, help="of the settings that are drawn, not of the fits")
        one.add_argument("--epochs", type=int, default=30, help="at most so many")
    budget = search_.add_mutually_exclusive_group(required=True)
    budget.add_argument("--seconds", type=float)
    budget.add_argument("--trials", type=int)
    search_.add_argument("--explore", type=float, default=0.4, help="share of the trials from wide ranges")
    search_.add_argument("--fix", nargs="+", default=[], metavar="SETTING=VALUE", help="settings that are not searched")
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
    elif args.command == "search":
        search(Problem(args.file, args.device), Study(args.study), args)
    else:
        around(Problem(args.file, args.device), Study(args.study), args)


# --- data ------------------------------------------------------------------------------------------------------------


def prepare(data: Path, out: Path) -> None:
    """The pairs to fit on and, of the contexts with a truth, what they have in train and what is asked for."""
    from benchmarks.lib.published import gowalla

    split = gowalla(data, validation=True)
    train, truth = split.train, split.truth
    contexts = {one: code for code, one in enumerate(train.contexts.ids())}
    items = {one: code for code, one in enumerate(train.items.ids())}
    asked = truth.by_context
    np.savez_compressed(
        out,
        shape=np.array([train.n_contexts, train.n_items]),
        indptr=train.by_context.indptr,
        indices=train.by_context.indices,
        contexts=np.array([contexts[one] for one in truth.contexts.ids()]),
        truth_indptr=asked.indptr,
        truth_indices=np.array([items[one] for one in truth.items.ids()])[asked.indices],
    )


class Problem:
    """The data on the device."""

    def __init__(self, file: Path, device: str) -> None:
        import torch

        loaded = np.load(file)
        put = lambda name: torch.as_tensor(loaded[name].astype(np.int64), device=device)  # noqa: E731
        self.device = torch.device(device)
        self.n_contexts, self.n_items = (int(n) for n in loaded["shape"])
        self.indptr, self.indices = put("indptr"), put("indices")
        self.lengths = self.indptr.diff()
        self.counts = torch.bincount(self.indices, minlength=self.n_items)
        self.asked, self.truth = put("contexts"), (put("truth_indptr"), put("truth_indices"))
        columns, size = self.rows(self.asked)
        self.seen = (torch.cat([size.new_zeros(1), size.cumsum(0)]), columns)

    def rows(self, contexts: Any) -> tuple[Any, Any]:
        """The items of the contexts, one context after the other, and how many each has."""
        import torch

        size = self.lengths[contexts]
        begin = torch.repeat_interleave(self.indptr[contexts] - (size.cumsum(0) - size), size)
        return self.indices[begin + torch.arange(len(begin), device=self.device)], size

    def measure(self, W: Any, H: Any) -> dict[str, float]:
        """Mean recall and NDCG at the cut over the contexts with a truth, by scores of full precision."""
        import torch

        torch.set_float32_matmul_precision("highest")
        W, H = torch.nn.functional.normalize(W[self.asked]), torch.nn.functional.normalize(H)
        found = by_context(lambda start, stop: W[start:stop] @ H.T, self.seen, self.truth, CUT)
        return {name: float(values.mean()) for name, values in zip(METRICS, found)}


# --- fits ------------------------------------------------------------------------------------------------------------


class Fit:
    """W and H as they are learnt."""

    def __init__(self, problem: Problem, settings: dict[str, Any], seed: int = 0) -> None:
        import torch

        self.problem, self.settings = problem, settings
        self.random = torch.Generator(problem.device).manual_seed(seed)
        dim, of_batch = settings["dim"], settings["batch"]
        self.W, self.H = (
            torch.randn((n, dim), generator=self.random, device=problem.device) * settings["init_scale"] / dim**0.5
            for n in (problem.n_contexts, problem.n_items)
        )
        if settings["init"] == "svd":
            own = torch.repeat_interleave(problem.lengths)
            U, s, V = singular_vectors(own, problem.indices, problem.n_contexts, problem.n_items, dim)
            for side, vectors in ((self.W, U), (self.H, V)):
                side.copy_(normalized(vectors * s.sqrt())[0] * settings["init_scale"])
        self.of_contexts = Optimizer(settings["optimizer"], self.W)
        self.of_items = Optimizer(settings["optimizer"], self.H)
        self.weight_of_contexts = omega(problem.lengths, settings["positive_context_exponent"])
        self.weight_of_items = omega(problem.counts, settings["positive_item_exponent"])
        self.epochs, self.steps = 0, 0
        self.planned = -(-problem.n_contexts // of_batch) * settings["epochs"]

    def rate(self) -> float:
        """The learning rate of the next step: it is there, or falls to 0 over the planned epochs."""
        share = self.steps / self.planned
        falls = {"constant": 1.0, "linear": 1 - share, "cosine": (1 + np.cos(np.pi * share)) / 2}
        return float(self.settings["learning_rate"] * falls[self.settings["schedule"]])

    def epoch(self) -> None:
        """A step for every batch of contexts."""
        import torch

        torch.set_float32_matmul_precision("high")
        self.epochs += 1
        order = torch.randperm(self.problem.n_contexts, generator=self.random, device=self.problem.device)
        columns, size = self.problem.rows(order)
        ends = np.concatenate([[0], size.cumsum(0).cpu().numpy()])
        of_batch = self.settings["batch"]
        for start in range(0, len(order), of_batch):
            stop = min(len(order), start + of_batch)
            row = torch.repeat_interleave(size[start:stop], output_size=int(ends[stop] - ends[start]))
            self.step(order[start:stop], row, columns[ends[start] : ends[stop]])

    def step(self, contexts: Any, row: Any, column: Any) -> None:
        """One batch: its contexts, and the row among them and the item of every positive."""
        tau, rate, ridge = self.settings["temperature"], self.rate(), self.settings["regularization"]
        W = self.W[contexts]
        w, w_norm = normalized(W)
        h, h_norm = normalized(self.H)
        alpha = self.weight_of_contexts[contexts][row] * self.weight_of_items[column]
        G = (w / tau) @ h.T
        self.slopes(G, row, column, alpha, shift=1 / tau)
        scale = tau * alpha.sum()
        of_w, of_h = through(G @ h, w, w_norm * scale), through(G.T @ w, h, h_norm * scale)
        self.steps += 1
        self.of_contexts.move(contexts, of_w.add_(W, alpha=ridge), rate, self.epochs)
        self.of_items.move(slice(None), of_h.add_(self.H, alpha=ridge), rate, self.steps)

    def slopes(self, G: Any, row: Any, column: Any, alpha: Any, shift: float) -> None:
        """From scores to the slopes of the loss by them, in place; `shift` is an upper bound of the scores."""
        sums = lambda values: G.new_zeros(len(G)).index_add_(0, row, values)  # noqa: E731
        G.sub_(shift).exp_()
        if self.settings["exclude"] == "positive":
            G.mul_((sums(alpha) / G.sum(1))[:, None])
            G[row, column] -= alpha
        else:
            own = G[row, column]
            G[row, column] = 0.0
            others = G.sum(1)
            share = alpha / (others[row] + own)
            G.mul_(sums(share)[:, None])
            G[row, column] = -share * others[row]


def omega(counts: Any, exponent: float) -> Any:
    """Weights n^ρ of mean 1."""
    powers = counts.clamp(min=1).double() ** exponent
    return (powers / powers.mean()).float()


def normalized(rows: Any) -> tuple[Any, Any]:
    """Rows of length 1, and their lengths."""
    norm = rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return rows / norm, norm


def through(gradient: Any, unit: Any, norm: Any) -> Any:
    """The gradient by θ from that by θ/‖θ‖: without its part along θ, over ‖θ‖; in place."""
    gradient.addcmul_((gradient * unit).sum(1, keepdim=True), unit, value=-1)
    return gradient.div_(norm)


class Optimizer:
    """As `shortlist.solvers.optimizers`: rows that are not named stay, and Adam counts the steps of a row."""

    def __init__(self, kind: str, theta: Any) -> None:
        self.kind, self.theta = kind, theta
        self.first, self.second = theta.new_zeros(theta.shape), theta.new_zeros(theta.shape)

    def move(self, rows: Any, gradient: Any, rate: float, count: int) -> None:
        """θ ← θ − rate·direction, for some rows; it is their step number `count`."""
        if self.kind == "sgd":
            self.theta[rows] -= rate * gradient
            return
        if self.kind == "adagrad":
            self.first[rows] += gradient**2
            self.theta[rows] -= rate * gradient / (self.first[rows].sqrt() + EPSILON)
            return
        mean = self.first[rows].mul_(BETA_1).add_(gradient, alpha=1 - BETA_1)
        square = self.second[rows].mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        self.first[rows], self.second[rows] = mean, square
        size = square.sqrt().div_((1 - BETA_2**count) ** 0.5).add_(EPSILON)
        self.theta[rows] = self.theta[rows].addcdiv_(mean, size, value=-rate / (1 - BETA_1**count))


def trial(problem: Problem, settings: dict[str, Any], best: float = 0.0) -> dict[str, Any]:
    """A line of the study; a fit with a constant rate ends when it no longer gains, or is far from the best so far."""
    began = time.perf_counter()
    fit, looks, since = Fit(problem, settings), [], 0
    planned, constant = settings["epochs"], settings["schedule"] == "constant"
    for epoch in range(1, planned + 1):
        fit.epoch()
        if epoch != planned and not (constant and epoch in LOOKS):
            continue
        looks.append(problem.measure(fit.W, fit.H) | {"epochs": epoch})
        top = max(looks, key=value)
        since = 0 if top is looks[-1] else since + 1
        if constant and (since == 2 or (epoch >= 10 and value(top) < 0.8 * best)):
            break
    top = max(looks, key=value)
    return settings | top | {"seconds": time.perf_counter() - began}


def value(line: dict[str, Any]) -> float:
    """By what trials are compared; one that went to pieces is the worst."""
    return float(np.nan_to_num(line[METRICS[1]]))


# --- search ----------------------------------------------------------------------------------------------------------


class Study:
    """The trials so far, and their file."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, []
        if path.exists():
            with path.open(newline="") as file:
                self.lines = [typed(line) for line in csv.DictReader(file)]

    def add(self, line: dict[str, Any]) -> None:
        """Keep a trial."""
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, [*NAMES, *METRICS, "seconds"], lineterminator="\n")
            if new:
                writer.writeheader()
            told = {name: f"{line[name]:.5f}" for name in METRICS} | {"seconds": f"{line['seconds']:.1f}"}
            writer.writerow(line | told)
        self.lines.append(line)

    def best(self, dim: int | None = None, n: int = 1) -> list[dict[str, Any]]:
        """The best trials, of a dim or of all, the best first."""
        of_dim = [line for line in self.lines if dim in (None, line["dim"])]
        return sorted(of_dim, key=value, reverse=True)[:n]


def typed(line: dict[str, str]) -> dict[str, Any]:
    """A line of text as settings and figures."""
    kind = lambda name: str if name in WORDS else int if name in WHOLE else float  # noqa: E731
    return {name: kind(name)(text) for name, text in line.items()}


def search(problem: Problem, study: Study, args: argparse.Namespace) -> None:
    """Draw settings, fit, keep; then say which were best of each dim."""
    rng, began, n = np.random.default_rng([args.seed, len(study.lines)]), time.perf_counter(), 0
    fixed = typed(dict(one.split("=") for one in args.fix))
    while (share := n / args.trials if args.trials else (time.perf_counter() - began) / args.seconds) < 1:
        dim = int(rng.choice(args.dims))
        known = study.best(dim, 5) if len(study.best(dim, 5)) == 5 else study.best(n=5)
        if share < args.explore or not known:
            settings = drawn(rng, dim, args.epochs)
        else:
            settings = nearby(rng, known[int(rng.integers(len(known)))], dim, args.epochs, reach=1.3 - share)
        best = max([0.0, *map(value, study.best(dim))])
        study.add(trial(problem, settings | fixed, best))
        n += 1
    print(f"{n} trials, {time.perf_counter() - began:.0f} s")
    for dim in sorted(set(args.dims)):
        for line in study.best(dim, 4):
            print({name: text for name, text in line.items() if name != "optimizer"}, flush=True)


def drawn(rng: np.random.Generator, dim: int, most: int) -> dict[str, Any]:
    """Settings at random from wide ranges."""
    settings: dict[str, Any] = {
        "dim": dim,
        "temperature": round_(np.exp(rng.uniform(np.log(0.04), np.log(0.25)))),
        "learning_rate": round_(10 ** rng.uniform(-2.8, -1.2)),
        "schedule": str(rng.choice(["constant", "linear", "cosine"])),
        "batch": int(2 ** rng.integers(7, 12)),
        "init_scale": round_(10 ** rng.uniform(-1.5, 0.3)),
        "positive_context_exponent": float(rng.choice([0.0, round_(rng.uniform(-1, 0.2))])),
        "positive_item_exponent": float(rng.choice([0.0, round_(rng.uniform(-0.5, 0.2))])),
        "exclude": str(rng.choice(["positive", "history"])),
        "regularization": float(rng.choice([0.0, 0.0, 0.0, round_(10 ** rng.uniform(-7, -4))])),
        "optimizer": "adam",
        "init": str(rng.choice(["random", "svd"])),
    }
    return settings | {"epochs": most if settings["schedule"] == "constant" else int(rng.integers(most // 4, most + 1))}


def nearby(rng: np.random.Generator, line: dict[str, Any], dim: int, most: int, reach: float) -> dict[str, Any]:
    """The settings of a trial, moved a little."""
    settings = {name: line[name] for name in NAMES} | {"dim": dim}
    settings["learning_rate"] *= (line["dim"] / dim) ** 0.5  # a step of Adam is as long as this, times √dim
    for name, spread in (("temperature", 0.2), ("learning_rate", 0.4), ("init_scale", 0.6)):
        settings[name] = round_(settings[name] * np.exp(rng.normal(0, spread * reach)))
    for name, spread in (("positive_context_exponent", 0.25), ("positive_item_exponent", 0.15)):
        if rng.random() < 0.5:
            settings[name] = round_(settings[name] + rng.normal(0, spread * reach))
    if rng.random() < 0.4:
        settings["batch"] = int(np.clip(settings["batch"] * 2.0 ** rng.choice([-1, 1]), 64, 4096))
    if rng.random() < 0.15:
        settings["exclude"] = {"positive": "history", "history": "positive"}[settings["exclude"]]
    if rng.random() < 0.15:
        settings["init"] = {"random": "svd", "svd": "random"}[settings["init"]]
    if rng.random() < 0.15:
        settings["schedule"] = str(rng.choice(["constant", "linear", "cosine"]))
    if rng.random() < 0.2:
        settings["regularization"] = float(rng.choice([0.0, round_(10 ** rng.uniform(-7, -4))]))
    if settings["schedule"] == "constant":
        return settings | {"epochs": most}
    epochs = round(settings["epochs"] * np.exp(rng.normal(0, 0.3 * reach)))
    return settings | {"epochs": min(most, max(4, epochs))}


def round_(number: float) -> float:
    return float(f"{number:.2g}")


def around(problem: Problem, study: Study, args: argparse.Namespace) -> None:
    """One setting at a time of the best of each dim, and what it does."""
    for dim in args.dims:
        (centre,) = study.best(dim)
        print(f"dim {dim}: {value(centre):.5f}", {name: centre[name] for name in NAMES})
        for name, settings in changed(centre, args.epochs):
            line = trial(problem, settings)
            study.add(line)
            print(f"  {name} {line[name]}: {value(line):.5f} ({line['epochs']} epochs)", flush=True)


def changed(centre: dict[str, Any], most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Settings that differ in one from the centre, and in which."""
    for name, grid in GRIDS.items():
        for one in grid:
            new = round_(centre[name] * one[0]) if isinstance(one, tuple) else one
            settings = {key: centre[key] for key in NAMES} | {name: new}
            constant = settings["schedule"] == "constant"
            if new != centre[name] and not (constant and name == "epochs"):
                yield name, settings | ({"epochs": most} if constant else {})


if __name__ == "__main__":
    main()
