"""How long does an epoch of iALS take on a GPU, beside the bound, and does it reach the loss of the CPU?

    PYTHONPATH=src python -m benchmarks.gpu.ials_epoch [--sets small large] [--dims 64 128 256 512]
        [--epochs 5 --runs 9] [--plain]
    PYTHONPATH=src python -m benchmarks.gpu.ials_epoch --cpu [--solver eigen] [--sets small] [--dims 64 128]

On the device's machine NumPy and torch are enough. Two synthetic sets are made from a seed: few popular items
(exponent 0.8), contexts of log-normal length, every pair once. First, on a tiny set, how far the fused kernels are
from the plain form. Then a fit as by default: the time of each epoch, between two events of the device's clock, and the
loss after it. Then epochs of two steps of CG for every row: the median time, and where it goes. Such an epoch gathers a
row of the other side for each pair in three passes on both sides: these bytes over the time, beside the bandwidth of a
copy on the same device. `--cpu` runs the same data from the same start values through the CPU's solver and prints its
losses; nothing is timed.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import torch

from shortlist.solvers import torch_half_step, triton_kernels
from shortlist.solvers.cg_limits import CGLimits

SETS = {"small": (138_000, 20_000, 9_500_000), "large": (1_000_000, 100_000, 89_000_000)}
UNOBSERVED_WEIGHT, REGULARIZATION, SCALE = 0.1, 0.003, 0.1


@dataclass
class Rows:
    """Of `shortlist.data.sparse_rows`, which needs Numba."""

    indptr: np.ndarray
    indices: np.ndarray
    n_columns: int

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.indptr)

    def __len__(self) -> int:
        return len(self.indices)


@dataclass
class Terms:
    """Of `shortlist.objectives`, for its default objective."""

    excess: np.ndarray
    target: np.ndarray
    ridge: np.ndarray
    dense: np.ndarray
    omega: np.ndarray


def terms(rows: Rows) -> Terms:
    one = np.ones(1, np.float32)
    ridge = (REGULARIZATION * (rows.lengths + UNOBSERVED_WEIGHT * rows.n_columns)).astype(np.float32)
    return Terms(one, one, ridge, np.full(1, UNOBSERVED_WEIGHT, np.float32), one)


def synthetic(n_contexts: int, n_items: int, n_pairs: int, seed: int = 0) -> Rows:
    """Distinct pairs by context: more are drawn than wanted, repeats dropped, and the rest thinned out."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(0, 1, n_contexts)
    lengths = np.clip(lengths * 1.35 * n_pairs / lengths.sum(), 1, n_items / 4).astype(np.int64)
    name_of = rng.permutation(n_items)  # popular items stand anywhere
    keep = 1.0  # the share of the distinct pairs that is wanted, known after a first go at some of them

    def draw(block: int) -> np.ndarray:
        first, last = (n_contexts * k // n_blocks for k in (block, block + 1))
        own = np.random.default_rng([seed, block])
        row = np.repeat(np.arange(first, last), lengths[first:last])
        item = (1 + own.random(len(row)) * ((n_items + 1) ** 0.2 - 1)) ** 5  # density ∝ x^−0.8 on 1 to |I| + 1
        keys = row * n_items + name_of[np.minimum(item.astype(np.int64) - 1, n_items - 1)]
        keys.sort()
        keys = keys[np.r_[True, keys[1:] != keys[:-1]]]
        return keys[own.random(len(keys)) < keep]

    n_blocks = max(16, n_pairs // 500_000)
    with ThreadPoolExecutor() as pool:
        some = range(0, n_blocks, max(1, n_blocks // 8))
        found = sum(map(len, pool.map(draw, some)))
        keep = min(1.0, n_pairs * len(some) / n_blocks / found)
        keys = np.concatenate(list(pool.map(draw, range(n_blocks))))
    indptr = np.zeros(n_contexts + 1, np.int64)
    np.cumsum(np.bincount(keys // n_items, minlength=n_contexts), out=indptr[1:])
    return Rows(indptr, (keys % n_items).astype(np.int32), n_items)


def transposed(rows: Rows, device: str) -> Rows:
    """The same pairs by items."""
    row = torch.repeat_interleave(torch.arange(rows.n_rows, device=device), torch.tensor(rows.lengths, device=device))
    keys = torch.tensor(rows.indices, device=device).long() * rows.n_rows + row
    keys = keys.sort().values.cpu().numpy()
    indptr = np.zeros(rows.n_columns + 1, np.int64)
    np.cumsum(np.bincount(keys // rows.n_rows, minlength=rows.n_columns), out=indptr[1:])
    return Rows(indptr, (keys % rows.n_rows).astype(np.int32), rows.n_rows)


def start_values(n: int, dim: int, seed: int = 0) -> np.ndarray:
    """As `shortlist.solvers.als.initial_embeddings`."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    return rng.standard_normal((n, dim), dtype=np.float32) * np.float32(SCALE / np.sqrt(dim))


def milliseconds(work: Callable[[], object], runs: int, before: Callable[[], object] = lambda: None) -> float:
    """Median over runs between two events of the device's clock; what comes before each is not timed."""
    times = []
    for _ in range(runs):
        before()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def copy_bandwidth() -> float:
    """TB/s, counting bytes read and bytes written."""
    a, b = (torch.randn(1 << 30, device="cuda") for _ in range(2))
    b.copy_(a)
    return 2 * a.nbytes / milliseconds(lambda: b.copy_(a), 9) / 1e9


def parts(solver: torch_half_step.DeviceSolver, runs: int) -> dict[str, float]:
    """Where the milliseconds of an epoch go. The embeddings are left as they were."""
    W, H = solver._contexts, solver._items
    times = {}
    for name, side, other, own in (("contexts", solver._by_context, H, W), ("items", solver._by_item, W, H)):
        for key, value in half_step_parts(side, other, own, solver._limits, runs).items():
            times[f"{name}: {key}"] = value
    return times


def half_step_parts(side, other, own, limits: CGLimits, runs: int) -> dict[str, float]:
    start = own.clone()
    G = torch_half_step._gramian(other, side.omega)
    spectrum, _ = torch_half_step._eigenbasis(G)
    same = torch.eye(len(G), device=G.device)
    times = {
        "Gramian": milliseconds(lambda: torch_half_step._gramian(other, side.omega), runs),
        "eigh": milliseconds(lambda: torch_half_step._eigenbasis(G), runs),
        "rotations": milliseconds(lambda: [torch_half_step._rotate(x, same) for x in (other, own)], runs),
        "CG": milliseconds(
            lambda: side.solve(other, own, spectrum, limits), runs, own.zero_
        ),  # from nothing: all rows move
    }
    own.copy_(start)
    return times


def on_the_device(args: argparse.Namespace) -> None:
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {bandwidth:.2f} TB/s")
    for dim in (1, 5, 100, 128, 300, 1000):
        check(dim)
    for name in args.sets:
        began = time.perf_counter()
        by_context = synthetic(*SETS[name])
        by_item = transposed(by_context, "cuda")
        longest = by_context.lengths.max(), by_item.lengths.max()
        print(
            f"\n{name}: {by_context.n_rows} contexts, {by_item.n_rows} items, {len(by_context)} pairs, longest rows "
            f"{longest[0]} and {longest[1]}, made in {time.perf_counter() - began:.1f} s"
        )
        for dim in args.dims:
            if dim <= (512 if name == "small" else 256):
                fit(by_context, by_item, dim, args.epochs)
                for fused in (False, True) if args.plain else (True,):
                    two_steps(by_context, by_item, dim, fused, args.runs, bandwidth)


def check(dim: int) -> None:
    """Scores after two epochs and after the end, of the fused kernels and of the plain form; and once more, fused."""
    by_context = synthetic(1500, 700, 150_000, seed=dim)
    by_item = transposed(by_context, "cuda")
    found = []
    for fused in (False, True, True):
        solver = solver_of(by_context, by_item, dim, fused=fused)
        for step in (solver.epoch, solver.epoch, solver.finish):
            step()
            W, H = solver.embeddings()
            found.append(W.astype(np.float64) @ H.T)
    plain, ours, again = found[:3], found[3:6], found[6:]
    apart = [np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in zip(plain, ours)]
    print(
        f"d = {dim}: ‖fused − plain‖ / ‖plain‖ {', '.join(f'{one:.1e}' for one in apart)}; "
        f"again the same: {all(np.array_equal(a, b) for a, b in zip(ours, again))}"
    )


def solver_of(by_context: Rows, by_item: Rows, dim: int, **kw) -> torch_half_step.DeviceSolver:
    items = start_values(by_item.n_rows, dim)
    return torch_half_step.DeviceSolver(by_context, by_item, terms(by_context), terms(by_item), items, **kw)


def fit(by_context: Rows, by_item: Rows, dim: int, epochs: int) -> None:
    """As a user would: time and loss of each epoch."""
    solver_of(by_context, by_item, dim).epoch()  # compiled
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    solver = solver_of(by_context, by_item, dim)
    times, losses = [], []
    for _ in range(epochs):
        times.append(milliseconds(solver.epoch, 1))
        losses.append(sum(solver.loss()))
    last, loss = milliseconds(solver.finish, 1), milliseconds(solver.loss, 3)
    shown = [" ".join(f"{one:.1f}" for one in values) for values in (times, losses)]
    print(
        f"d = {dim}, as by default: ms an epoch {shown[0]}, the end {last:.1f}, the loss {loss:.1f}\n"
        f"    losses {shown[1]}, at the end {sum(solver.loss()):.1f}; "
        f"{memory(by_context, by_item, dim, True)}"
    )


def memory(by_context: Rows, by_item: Rows, dim: int, fused: bool) -> str:
    foreseen = torch_half_step.needed_bytes(((by_context, terms(by_context)), (by_item, terms(by_item))), dim, fused)
    return f"at most {torch.cuda.max_memory_allocated() / 1e9:.2f} GB (foreseen: {foreseen / 1e9:.2f})"


def two_steps(by_context: Rows, by_item: Rows, dim: int, fused: bool, runs: int, bandwidth: float) -> None:
    """Two steps for every row, so that the gathered bytes are known."""
    torch.cuda.reset_peak_memory_stats()
    solver = solver_of(by_context, by_item, dim, fused=fused, limits=CGLimits(1.0, 0.0, 2))
    for _ in range(2):
        solver.epoch()
    needed = memory(by_context, by_item, dim, fused)
    took = milliseconds(solver.epoch, runs)
    gathered = 6 * 4 * dim * len(by_context) / took / 1e9
    shares = ", ".join(f"{key} {value:.2f}" for key, value in parts(solver, runs).items())
    print(
        f"d = {dim}, two steps, {'fused' if fused else 'plain'}: {took:.2f} ms an epoch, {gathered:.2f} TB/s gathered, "
        f"{gathered / bandwidth:.2f} of a copy; {needed}\n    {shares}"
    )
    torch.cuda.empty_cache()


def on_the_cpu(args: argparse.Namespace) -> None:
    from shortlist.data import sparse_rows as real
    from shortlist.objectives import PointwiseSquare
    from shortlist.solvers.half_step import half_step

    objective = PointwiseSquare(unobserved_weight=UNOBSERVED_WEIGHT, regularization=REGULARIZATION)
    for name in args.sets:
        plain = synthetic(*SETS[name])
        by_context = real.SparseRows(plain.indptr, plain.indices, None, plain.n_columns)
        by_item = by_context.transpose()
        context_terms, item_terms = objective.terms(by_context), objective.terms(by_item)
        print(f"{name}: {by_context.n_rows} contexts, {by_item.n_rows} items, {len(by_context)} pairs")
        for dim in args.dims:
            items = start_values(by_item.n_rows, dim)
            contexts = np.zeros((by_context.n_rows, dim), np.float32)
            module = import_module(f"shortlist.solvers.{args.solver}")
            solver = getattr(module, f"{args.solver.title()}Solver")()
            losses = []
            for _ in range(args.epochs):
                half_step(solver, by_context, context_terms, items, contexts)
                half_step(solver, by_item, item_terms, contexts, items)
                losses.append(objective.loss(by_context, by_item, contexts, items).total)
            print(f"d = {dim}, {args.solver} on the CPU: losses {' '.join(f'{one:.1f}' for one in losses)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=sorted(SETS), default=["small", "large"])
    parser.add_argument("--dims", nargs="+", type=int, default=[64, 128, 256, 512])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--plain", action="store_true", help="the plain form too, beside the fused kernels")
    parser.add_argument("--cpu", action="store_true", help="the losses of the CPU's solver")
    parser.add_argument("--solver", choices=["eigen", "exact"], default="eigen", help="with --cpu")
    args = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}", end=", ")
    if args.cpu:
        on_the_cpu(args)
    else:
        print(f"Triton {getattr(triton_kernels.triton, '__version__', 'not installed')}", end=", ")
        on_the_device(args)


if __name__ == "__main__":
    main()
