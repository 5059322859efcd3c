"""How fast does iALS reach a loss beside implicit and irspack, and how does the cost of an epoch grow?

    python -m benchmarks.speed.ials race [--data folder] [--sets gowalla synthetic] [--dims 64 128 256 512] [--turns 3]
    python -m benchmarks.speed.ials exact [--dims 128 256]
    python -m benchmarks.speed.ials growth [--plot docs/ials.svg]
    python -m benchmarks.speed.ials first
    python -m benchmarks.speed.ials bound [--dims 128 512]

`race`: one objective for all (an observed pair weighs 10 in all, an unobserved one 1, λ = 10 for every row), the same
start values, two threads. The goal is the loss that implicit's conjugate gradients have after ten epochs; counted is
the time of the epochs until a solver's loss, which is measured between epochs and outside of the clock, is at the goal.
Each contestant has a process of its own, in turns; its memory is the most it takes in an epoch beyond what it held
before (the interactions in its own form).

`exact`: Cholesky solvers take the same steps, so the time of an epoch is what is compared, with the losses beside it.

`growth`: seconds of an epoch of the default solver over the number of pairs and over the dimension; with `--along`,
contexts and items grow with the pairs, and their embeddings outgrow the caches.

`first`: seconds of a small fit in the first process after an installation, which compiles, and in the second.

`bound`: where an epoch of the default solver goes. Conjugate gradients as they are, beside the same passes where every
gathered vector is in the second-level cache; rotations and Gramians beside bare products of the same size.

Peers are in an environment of their own: `make bench-ials` makes it.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.lib.machine import describe, quotients, record

ALPHA, ALPHA0, RIDGE, THREADS = 10.0, 1.0, 10.0, 2
EPOCHS = 10  # of the one that sets the goal
PATIENCE = 3 * EPOCHS
OURS = ("shortlist eigen", "shortlist exact", "shortlist block")
PEERS = ("implicit CG", "implicit Cholesky", "irspack CG", "irspack Cholesky", "irspack iALS++")
RACERS = ("implicit CG", "irspack CG", "irspack iALS++", "shortlist eigen", "shortlist block")
EXACT = ("irspack Cholesky", "shortlist exact", "implicit Cholesky")

OBJECTIVE: dict[str, Any] = {
    "unobserved_weight": ALPHA0,
    "observed_weight": ALPHA,
    "regularization": RIDGE,
    "regularization_exponent": 0.0,
    "convention": "total",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("race", "exact"):
        one = commands.add_parser(name)
        one.add_argument("--data", type=Path, default=Path("../shared/data"), help="has gowalla/train.parquet")
        one.add_argument("--sets", nargs="+", choices=("gowalla", "synthetic"), default=["gowalla", "synthetic"])
        one.add_argument("--dims", nargs="+", type=int, default=[64, 128, 256, 512] if name == "race" else [128, 256])
        one.add_argument("--turns", type=int, default=3)
        one.add_argument("--who", nargs="+", default=list(RACERS if name == "race" else EXACT))
        one.add_argument("--pairs", type=int, default=10_000_000)
        one.add_argument("--json", type=Path, help="append every measurement to this file")
        one.add_argument("--record", action="store_true", help="keep the ratios for the board")
    growth = commands.add_parser("growth")
    growth.add_argument("--plot", type=Path)
    growth.add_argument("--pairs", nargs="+", type=int, default=[1_000_000, 10_000_000, 50_000_000])
    growth.add_argument("--dims", nargs="+", type=int, default=[64, 128, 256, 512, 1024])
    growth.add_argument("--turns", type=int, default=3)
    growth.add_argument("--along", action="store_true", help="contexts and items grow along with the pairs")
    commands.add_parser("first")
    bound_ = commands.add_parser("bound")
    bound_.add_argument("--dims", nargs="+", type=int, default=[128, 512])
    bound_.add_argument("--record", action="store_true", help="keep the ratios for the board")
    child = commands.add_parser("one")
    for name in ("file", "who", "dim", "epochs", "goal"):
        child.add_argument(name)
    args = parser.parse_args()
    if args.command == "one":
        print(json.dumps(contest(Path(args.file), args.who, int(args.dim), int(args.epochs), float(args.goal))))
        return
    describe("scipy", "numba", *(("implicit", "irspack") if args.command in ("race", "exact") else ()))
    if args.command == "first":
        first_call()
        return
    if args.command == "bound":
        for dim in args.dims:
            measure_bound(dim, args.record)
        return
    if args.command == "growth":
        measure_growth(args.pairs, args.dims, args.turns, args.plot, args.along)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in args.sets:
            file = Path(folder) / f"{name}.npz"
            save(file, gowalla(args.data) if name == "gowalla" else synthetic(args.pairs))
            for dim in args.dims:
                (race if args.command == "race" else exact)(file, dim, args.turns, args.who, args.json, args.record)


# --- data ------------------------------------------------------------------------------------------------------------


def gowalla(data: Path) -> Any:
    from benchmarks.lib.published import read

    return read(data / "gowalla" / "train.parquet")


def synthetic(pairs: int) -> Any:
    import shortlist as sl

    return sl.datasets.synthetic(138_000, 20_000, pairs, seed=0)


def save(file: Path, events: Any) -> None:
    rows = events.by_context
    np.savez(file, indptr=rows.indptr, indices=rows.indices, shape=[rows.n_rows, rows.n_columns])
    print(f"\n{file.stem}: {len(events):,} pairs, {rows.n_rows:,} × {rows.n_columns:,}", flush=True)


def start_values(shape: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    users, items = (rng.standard_normal((n, dim), dtype=np.float32) * np.float32(0.1 / dim**0.5) for n in shape)
    return users, items


# --- one contestant, in a process of its own -------------------------------------------------------------------------


def contest(file: Path, who: str, dim: int, epochs: int, goal: float) -> dict[str, Any]:
    """Epochs until the goal: seconds and loss of each, and the memory."""
    from shortlist.data.sparse_rows import SparseRows
    from shortlist.objectives import PointwiseSquare

    loaded = np.load(file)
    shape = loaded["shape"]
    rows = SparseRows(loaded["indptr"], loaded["indices"], None, int(shape[1]))
    columns = rows.transpose()
    objective = PointwiseSquare(**OBJECTIVE)
    users, items = start_values(shape, dim)
    package = who.split(maxsplit=1)[0]
    if package == "shortlist":
        steps = ours(who, objective, rows, columns, users, items)
    else:
        steps = (implicit if package == "implicit" else irspack)(who, rows, users, items)
    found: dict[str, Any] = {"who": who, "dim": dim, "set": file.stem, "seconds": [], "losses": []}
    held, peak = status("VmRSS"), 0
    restart_peak()
    for seconds, W, H in steps:
        peak = max(peak, status("VmHWM"))
        found["seconds"].append(seconds)
        found["losses"].append(objective.loss(rows, columns, W, H, THREADS).total)
        if len(found["losses"]) >= epochs or found["losses"][-1] <= goal:
            break
        restart_peak()
    return found | {"memory": (peak - held) / 2**20, "factors": (users.nbytes + items.nbytes) / 2**20}


Steps = Iterator[tuple[float, np.ndarray, np.ndarray]]


def ours(who: str, objective: Any, rows: Any, columns: Any, users: np.ndarray, items: np.ndarray) -> Steps:
    from shortlist.data.sparse_rows import SparseRows
    from shortlist.solvers.als import Alternation
    from shortlist.solvers.block import BlockSolver
    from shortlist.solvers.eigen import EigenSolver
    from shortlist.solvers.exact import ExactSolver

    solver = {"eigen": EigenSolver(), "exact": ExactSolver(), "block": BlockSolver()}[who.split()[1]]
    tiny = SparseRows(
        np.array([0, 1, 3], np.int64), np.array([0, 0, 1], np.int32), None, 2
    )  # compiled before the clock runs
    warm = Alternation(
        objective.with_weights(tiny), tiny, tiny.transpose(), items[:2].copy(), solver=solver, threads=THREADS
    )
    warm.epoch()
    loss = objective.with_weights(rows)
    loop = Alternation(loss, rows, columns, items, contexts=users, solver=solver, threads=THREADS)
    while True:
        began = time.perf_counter()
        loop.epoch()
        yield time.perf_counter() - began, *loop.embeddings()


def implicit(who: str, rows: Any, users: np.ndarray, items: np.ndarray) -> Steps:
    import threading

    import scipy.sparse as sp
    from implicit.cpu.als import AlternatingLeastSquares

    matrix = sp.csr_matrix((np.full(len(rows), ALPHA, np.float32), rows.indices, rows.indptr), (len(users), len(items)))
    model = AlternatingLeastSquares(
        factors=users.shape[1], regularization=RIDGE, alpha=1.0, use_cg=who.endswith("CG"), iterations=PATIENCE,
        num_threads=THREADS,
    )  # fmt: skip
    model.user_factors, model.item_factors = users, items
    # Its fit calls back after each epoch with the epoch's seconds; a thread makes an iterator of that.
    seconds: list[float] = []
    ready, go = threading.Semaphore(0), threading.Semaphore(0)

    def callback(_: int, elapsed: float, __: object) -> None:
        seconds.append(elapsed)
        ready.release()
        go.acquire()

    def fit() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(matrix, show_progress=False, callback=callback)

    threading.Thread(target=fit, daemon=True).start()
    while True:
        ready.acquire()
        yield seconds[-1], model.user_factors, model.item_factors
        go.release()


def irspack(who: str, rows: Any, users: np.ndarray, items: np.ndarray) -> Steps:
    import scipy.sparse as sp
    from irspack.recommenders.ials import IALSTrainer, str_to_loss_type, str_to_solver_type

    weights = np.full(len(rows), ALPHA - ALPHA0, np.float32)  # its own form of the same loss adds α₀
    matrix = sp.csr_matrix((weights, rows.indices, rows.indptr), (len(users), len(items)))
    trainer = IALSTrainer(
        matrix, n_components=users.shape[1], alpha0=ALPHA0, reg=RIDGE, nu=0.0, init_std=0.1,
        solver_type=str_to_solver_type({"CG": "CG", "Cholesky": "CHOLESKY", "iALS++": "IALSPP"}[who.split()[1]]),
        max_cg_steps=3, ialspp_subspace_dimension=64, loss_type=str_to_loss_type("ORIGINAL"), random_seed=0,
        n_threads=THREADS, prediction_time_max_cg_steps=5, prediction_time_ialspp_iteration=1,
    )  # fmt: skip
    trainer.core_trainer.user, trainer.core_trainer.item = users, items
    while True:
        began = time.perf_counter()
        trainer.run_epoch()
        yield time.perf_counter() - began, trainer.core_trainer.user, trainer.core_trainer.item


def status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def restart_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def run_child(file: Path, who: str, dim: int, epochs: int, goal: float, log: Path | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.speed.ials", "one", file, who, dim, epochs, goal]
    # implicit's threads call BLAS, which it says to keep to one thread.
    env = os.environ | ({"OPENBLAS_NUM_THREADS": "1"} if who in PEERS else {})
    child = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, env=env)
    if child.returncode:
        raise SystemExit(f"{who}: {child.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    if log is not None:
        with log.open("a") as out:
            out.write(json.dumps(found) + "\n")
    return found


# --- the races -------------------------------------------------------------------------------------------------------


def race(file: Path, dim: int, turns: int, who: list[str], log: Path | None, keep: bool) -> None:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in who}
    for _ in range(turns):
        goal = 0.0
        for name in who:  # implicit CG first: it sets the goal
            one = run_child(file, name, dim, EPOCHS if name == "implicit CG" else PATIENCE, goal, log)
            goal = goal or one["losses"][-1]
            found[name].append(one)
    print(f"{file.stem}, d = {dim}: loss {goal:.6g} after {EPOCHS} epochs of implicit CG")
    print(f"{'':<20}{'s/epoch':>9}{'epochs':>8}{'s to goal':>11}{'memory MiB':>12}{'/ factors':>11}   final/goal − 1")
    total = {name: [sum(one["seconds"]) for one in runs] for name, runs in found.items()}
    for name, runs in found.items():
        last = runs[-1]
        missed = "" if last["losses"][-1] <= goal else "  (not reached)"
        print(
            f"{name:<20}{median(s for one in runs for s in one['seconds']):>9.3f}{len(last['losses']):>8}"
            f"{median(total[name]):>11.2f}{median(one['memory'] for one in runs):>12.0f}"
            f"{median(one['memory'] for one in runs) / last['factors']:>11.2f}"
            f"   {last['losses'][-1] / goal - 1:+.1e}{missed}"
        )
    peers = [name for name in who if name in PEERS]
    fastest = min(peers, key=lambda name: median(total[name]))
    tell_ratios("race", f"iALS to a loss, {file.stem}, d = {dim}", file, dim, total, fastest, keep)


def exact(file: Path, dim: int, turns: int, who: list[str], log: Path | None, keep: bool) -> None:
    epochs = 2
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in who}
    for _ in range(turns):
        for name in who:
            found[name].append(run_child(file, name, dim, epochs, 0.0, log))
    print(f"{file.stem}, d = {dim}: {epochs} epochs each, the faster one counts")
    best = {name: [min(one["seconds"]) for one in runs] for name, runs in found.items()}
    for name, runs in found.items():
        print(
            f"{name:<20}{median(best[name]):>9.3f} s/epoch{median(one['memory'] for one in runs):>9.0f} MiB"
            f"   losses {', '.join(f'{loss:.7g}' for loss in runs[-1]['losses'])}"
        )
    fastest = min((name for name in who if name in PEERS), key=lambda name: median(best[name]))
    tell_ratios("exact", f"an exact epoch of iALS, {file.stem}, d = {dim}", file, dim, best, fastest, keep)


def tell_ratios(
    command: str, question: str, file: Path, dim: int, seconds: dict[str, list[float]], fastest: str, keep: bool
) -> None:
    """How many times as fast ours are as the fastest peer; the board has the solver that is meant for the job."""
    for name in (name for name in seconds if name in OURS):
        ratios = sorted(quotients(seconds[fastest], seconds[name]))
        print(f"{name}: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) times as fast as {fastest}")
        solver = name.split()[1]
        if keep and solver in ("eigen", "exact"):
            record(
                f"ials-{command}-{file.stem}-{dim}", question=question, ours=f'`solver="{solver}"`', against=fastest,
                what="peer's time / ours", ratios=ratios, packages=("scipy", "numba", "implicit", "irspack"),
            )  # fmt: skip
    print(flush=True)


# --- growth ----------------------------------------------------------------------------------------------------------


def epoch_seconds(events: Any, dim: int, turns: int) -> float:
    from shortlist.objectives import PointwiseSquare
    from shortlist.solvers.als import Alternation, initial_embeddings
    from shortlist.solvers.eigen import EigenSolver

    objective = PointwiseSquare(**OBJECTIVE)
    items = initial_embeddings(events.n_items, dim, 0.1, 0)
    loss = objective.with_weights(events.by_context)
    loop = Alternation(loss, events.by_context, events.by_item, items, solver=EigenSolver(), threads=THREADS)
    seconds = []
    for _ in range(turns + 2):  # the first two are not like the others: everything is far from where it will be
        began = time.perf_counter()
        loop.epoch()
        seconds.append(time.perf_counter() - began)
    return median(seconds[2:])


def first_call() -> None:
    code = (
        "import time, shortlist as sl; events = sl.datasets.synthetic(2000, 500, 20000); _ = events.by_item\n"
        "began = time.perf_counter(); sl.IALS(dim=64, epochs=2).fit(events); print(time.perf_counter() - began)"
    )
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"NUMBA_CACHE_DIR": folder}
        for turn in ("first", "second"):
            child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
            print(f"a small fit in the {turn} process: {float(child.stdout):.2f} s", flush=True)


def measure_bound(dim: int, keep: bool) -> None:
    from shortlist._threads import run_chunks
    from shortlist.data.sparse_rows import SparseRows
    from shortlist.objectives import PointwiseSquare
    from shortlist.solvers.als import initial_embeddings
    from shortlist.solvers.cg_limits import CGLimits
    from shortlist.solvers.eigen import EigenBasis, EigenSolver, solve_eigen

    events, objective = synthetic(10_000_000), PointwiseSquare(**OBJECTIVE)
    sides = [events.by_context, events.by_item]
    terms = [objective.terms(rows) for rows in sides]
    near = [
        SparseRows(rows.indptr, rows.indices % (2**18 // dim), None, 2**18 // dim) for rows in sides
    ]  # 1 MiB of vectors
    items = initial_embeddings(events.n_items, dim, 0.1, 0)
    contexts = np.zeros((events.n_contexts, dim), np.float32)
    seconds: dict[str, list[float]] = {"CG": [], "CG in cache": [], "rotations, Gramians": [], "bare products": []}
    limits = CGLimits(1.0, 0.0, 2)  # two steps for every row, so that both have the same to do

    def timed(name: str, work: Callable[[], object]) -> Any:
        began = time.perf_counter()
        result = work()
        seconds[name].append(time.perf_counter() - began)
        return result

    def bare(rows: np.ndarray) -> None:
        Q = np.eye(dim, dtype=np.float32)
        out = np.empty((2048, dim), np.float32)

        def multiply(start: int, stop: int) -> None:
            block = rows[start:stop]
            np.matmul(block, Q, out=out[: stop - start])
            np.matmul(block, Q, out=out[: stop - start])
            np.matmul(block.T, block)

        run_chunks(multiply, [(k, min(k + 2048, len(rows))) for k in range(0, len(rows), 2048)], THREADS)

    for epoch in range(5):
        for rows, term, local, other, own in zip(sides, terms, near, (items, contexts), (contexts, items)):
            prepare = functools.partial(EigenSolver().prepare, rows, term, other, own, THREADS)
            basis = timed("rotations, Gramians", prepare)
            timed("bare products", functools.partial(bare, other))
            copy = own.copy()
            few = np.ascontiguousarray(other[: local.n_columns])
            in_cache = EigenBasis(basis.spectrum, np.array([0, local.n_columns]))
            timed("CG in cache", functools.partial(solve_eigen, local, term, few, in_cache, copy, THREADS, limits))
            timed("CG", functools.partial(solve_eigen, rows, term, other, basis, own, THREADS, limits))
        if epoch < 2:
            for one in seconds.values():
                one.clear()
    print(f"d = {dim}, seconds of an epoch with two steps for every row:")
    for name, values in seconds.items():
        print(f"  {name:<22}{sum(values) / 3:.3f}")
    spent, bound = (
        [sum(pair) for pair in zip(seconds[cg], seconds[dense])]  # of a half-step
        for cg, dense in (("CG", "rotations, Gramians"), ("CG in cache", "bare products"))
    )
    ratios = [sum(spent[k : k + 2]) / sum(bound[k : k + 2]) for k in range(0, len(spent), 2)]
    print(f"  an epoch takes {median(ratios):.2f} times the bound ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    if keep:
        record(
            f"ials-bound-{dim}", question=f"an epoch of iALS, synthetic, d = {dim}", ours='`solver="eigen"`',
            against="the same in cache and bare products", what="time / bound", ratios=ratios,
            packages=("scipy", "numba"),
        )  # fmt: skip


def slope(x: list[int], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def measure_growth(pairs: list[int], dims: list[int], turns: int, plot: Path | None, along: bool) -> None:
    """138,000 contexts and 20,000 items, or as many as give each the same mean number of pairs."""
    import shortlist as sl

    by_pairs, by_dim = [], []
    for n in pairs:
        scale = n / 10_000_000 if along else 1.0
        events = sl.datasets.synthetic(int(138_000 * scale), int(20_000 * scale), n, seed=0)
        by_pairs.append(epoch_seconds(events, 128, turns))
        print(f"{n:>12,} pairs, d = 128: {by_pairs[-1]:.3f} s an epoch", flush=True)
        if n == 10_000_000:
            for dim in dims:
                by_dim.append(epoch_seconds(events, dim, turns))
                print(f"{n:>12,} pairs, d = {dim}: {by_dim[-1]:.3f} s an epoch", flush=True)
        del events
    print(f"time ~ |S|^{slope(pairs, by_pairs):.2f} at d = 128")
    if by_dim:
        print(f"time ~ d^{slope(dims, by_dim):.2f} at 10,000,000 pairs")
    if plot is not None:
        draw(plot, pairs, by_pairs, dims, by_dim)


def draw(file: Path, pairs: list[int], by_pairs: list[float], dims: list[int], by_dim: list[float]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "ials", "font.size": 9})
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7.5, 3), layout="constrained")
    for axis, x, y, power, label, title in (
        (axes[0], pairs, by_pairs, 1.0, "pairs", "d = 128"),
        (axes[1], dims, by_dim, 1.5, "d", "10,000,000 pairs"),
    ):
        axis.loglog(x, y, "o-", label=f"measured, slope {slope(x, y):.2f}")
        axis.loglog(x, [y[0] * (one / x[0]) ** power for one in x], "--", color="grey", label=f"slope {power:g}")
        axis.set(xlabel=label, ylabel="seconds an epoch", title=title)
        axis.legend(frameon=False)
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
