"""Is this version as fast as an earlier one?

    python -m benchmarks.speed.versions REVISION [--only ials bpr] [--turns 9] [--threads 1]

Both versions do the same tasks on the same synthetic data, in turns, each in a process of its own with its own kernel
cache; compiling is done in a first turn that does not count. With `--restart` each turn has new processes: the same
code can differ by some percent from process to process, because memory lies elsewhere. REVISION is anything git knows;
or a folder that holds an unpacked version. Shown are the median over the turns of this version's CPU-seconds over the
other's within a turn, and a 95 % interval of that median from its order statistics (of nine turns, the second to the
eighth). "Not slower" means that the interval ends below 1.05. A task that one of them cannot do is left out.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

from benchmarks.lib.machine import PLAIN_SGD, describe
from benchmarks.lib.paths import ROOT

CONTEXTS, ITEMS, EVENTS = 20_000, 8_000, 800_000
READ = 10_000_000  # rows of the file that is read

# All settings that matter: what is left out has other values in other versions.
SAMPLED: dict[str, Any] = PLAIN_SGD | {"dim": 64, "learning_rate": 0.02, "regularization": 0.01}
SMALL: dict[str, Any] = {"dim": 64, "epochs": 1, "regularization": 0.01, "unobserved_weight": 0.1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", help="of git, or a folder")
    parser.add_argument("--only", nargs="+", choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--restart", action="store_true", help="start new processes for each turn")
    parser.add_argument("--child", metavar="FOLDER", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        answer(args.child, args.threads)
        return
    if args.revision is None:
        parser.error("say which revision to compare with")
    describe("numba")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        old = unpacked(args.revision, folder)
        write_events(folder)
        versions = [
            Version("new", ROOT, folder, args.threads),
            Version("old", old, folder, args.threads),
        ]
        print(f"{'task':<20}{'new s':>9}{'old s':>9}{'ratio':>8}   95 % of the median")
        for task in args.only or TASKS:
            compare(task, versions, args.turns, restart=args.restart)


def compare(task: str, versions: list[Version], turns: int, *, restart: bool = False) -> None:
    """Let both do a task in turns, and print the ratio; with `restart`, each time after a first time that is lost."""
    seconds: list[list[float]] = [[], []]
    for turn in range(turns + 1):
        for version in versions if turn % 2 else versions[::-1]:
            if restart and turn:
                version.start()
                version.do(task)
            spent = version.do(task)
            if spent is None:
                print(f"{task:<20}   left out: the {version.name} version cannot do it")
                return
            if turn:
                seconds[versions.index(version)].append(spent)
    ratios = sorted(new / old for new, old in zip(*seconds))
    low, high = interval(ratios)
    new, old = map(statistics.median, seconds)
    verdict = "" if high < 1.05 else "   not shown to be as fast"
    print(
        f"{task:<20}{new:>9.3f}{old:>9.3f}{statistics.median(ratios):>8.3f}   {low:.3f} to {high:.3f}{verdict}",
        flush=True,
    )


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return the narrowest pair of order statistics that holds the median with at least 95 %; all, where none does."""
    n, k, outside = len(ratios), 0, 2 / 2 ** len(ratios)
    while outside + 2 * comb(n, k + 1) / 2**n <= 0.05:
        k += 1
        outside += 2 * comb(n, k) / 2**n
    return ratios[k], ratios[n - 1 - k]


class Version:
    """A process that has one version and does what it is told."""

    def __init__(self, name: str, sources: Path, folder: Path, threads: int) -> None:
        self.name = name
        cache = folder / f"kernels-{name}"
        env = os.environ | {"PYTHONPATH": str(sources / "src"), "NUMBA_CACHE_DIR": str(cache)}
        env["OPENBLAS_NUM_THREADS"] = str(threads)  # threads that wait for work would count
        self._env = env
        self._process: subprocess.Popen[str] | None = None
        self._command = [sys.executable, "-m", "benchmarks.speed.versions", "--child", str(folder)]
        self._command += ["--threads", str(threads)]
        self.start()

    def start(self) -> None:
        """Start a new process, and end the one before."""
        if self._process is not None:
            self._process.communicate()
        self._process = subprocess.Popen(
            self._command, env=self._env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def do(self, task: str) -> float | None:
        """Return the CPU-seconds of a task, None if it failed."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(task, file=self._process.stdin, flush=True)
        found: float | None = json.loads(self._process.stdout.readline())
        return found


def unpacked(revision: str, folder: Path) -> Path:
    """Return a folder with the sources of another version."""
    if Path(revision).is_dir():
        return Path(revision).absolute()
    done = subprocess.run(["git", "archive", revision, "src"], check=False, cwd=ROOT, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{revision!r} is neither a folder nor a revision that git knows")
    target = folder / "old"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")
    return target


def write_events(folder: Path) -> None:
    """Write random events with a taste: contexts and items have a topic."""
    import numpy as np
    import polars as pl

    def events(n: int) -> pl.DataFrame:
        rng = np.random.default_rng(1)
        users = rng.integers(CONTEXTS, size=n)
        items = (ITEMS // 20 * rng.random(n) ** 2).astype(int) * 20 + np.where(
            rng.random(n) < 0.7, users % 20, rng.integers(20, size=n)
        )
        return pl.DataFrame({"user": users, "item": items, "time": rng.integers(10**9, size=n)})

    events(EVENTS).write_parquet(folder / "events.parquet")
    events(READ).with_columns(pl.format("user-{}", "user").alias("user")).write_csv(folder / "events.csv")


# --- what a version does ---------------------------------------------------------------------------------------------


def answer(folder: Path, threads: int) -> None:
    """Do the tasks that standard input names, and print how long each took."""
    bench = Bench(folder, threads)
    prepared: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        name = line.strip()
        try:
            if name not in prepared:
                prepared[name] = TASKS[name](bench)
            before = cpu_seconds()
            prepared[name]()
            print(cpu_seconds() - before, flush=True)
        except Exception as error:
            print(f"{name}: {error}", file=sys.stderr)
            print("null", flush=True)


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Bench:
    """What tasks share."""

    def __init__(self, folder: Path, threads: int) -> None:
        import shortlist as sl

        os.environ["SHORTLIST_THREADS"] = str(threads)
        self.sl, self.folder = sl, folder
        events = sl.Interactions.read(folder / "events.parquet", context="user", item="item", time="time")
        self.split = sl.splits.at_random(events, test=0.1, seed=1)
        self._models: dict[str, Any] = {}

    def model(self, name: str, **settings: Any) -> Any:
        """A fitted model."""
        if name not in self._models:
            self._models[name] = getattr(self.sl, name)(**settings).fit(self.split.train)
        return self._models[name]

    def large(self) -> Any:
        """A model of 200,000 items, which is trained on little."""
        import numpy as np

        if "large" not in self._models:
            rng = np.random.default_rng(2)
            items, users = np.arange(200_000), rng.integers(2_000, size=200_000)
            events = self.sl.Interactions.from_frame({"user": users, "item": items}, context="user", item="item")
            self._models["large"] = self.sl.IALS(dim=128, epochs=1, regularization=0.01, unobserved_weight=1).fit(
                events
            )
        return self._models["large"]


def fit(name: str, **settings: Any) -> Callable[[Bench], Callable[[], object]]:
    return lambda bench: lambda: getattr(bench.sl, name)(**settings).fit(bench.split.train)


def repeat(times: int, call: Callable[[int], object]) -> Callable[[], None]:
    def run() -> None:
        for k in range(times):
            call(k)

    return run


def one_known(bench: Bench) -> Callable[[], object]:
    model = bench.model("IALS", **SMALL)
    ids = model.contexts_.ids()
    return repeat(2_000, lambda k: model.recommend([ids[k]], n=10))


def one_history(name: str, **settings: Any) -> Callable[[Bench], Callable[[], object]]:
    def prepare(bench: Bench) -> Callable[[], object]:
        model = bench.model(name, **settings)
        items = list(model.items_.ids())
        return repeat(1_000, lambda k: model.recommend(history=[items[k : k + 50]], n=10))

    return prepare


def one_fold_in(bench: Bench) -> Callable[[], object]:
    model = bench.model("IALS", **SMALL)
    items = list(model.items_.ids())
    return repeat(2_000, lambda k: model.fold_in([items[k : k + 50]]))


def one_of_index(bench: Bench) -> Callable[[], object]:
    model = bench.model("IALS", **SMALL)
    index, ids = model.index("exact"), model.contexts_.ids()
    return repeat(2_000, lambda k: index.search([ids[k]], n=10))


def everybody(bench: Bench) -> Callable[[], object]:
    model = bench.model("IALS", **SMALL)
    ids = list(model.contexts_.ids())
    return lambda: model.recommend(ids, n=10)


def evaluation(bench: Bench) -> Callable[[], object]:
    model = bench.model("IALS", **SMALL)
    return lambda: bench.sl.evaluate(model, bench.split, metrics=["recall@20", "ndcg@20"])


def quantized(bench: Bench) -> Callable[[], object]:
    model = bench.large()
    index, ids = model.index("quantized", n=10, probes=40, refine=8), model.contexts_.ids()
    return repeat(1_900, lambda k: index.search([ids[k]], n=10))


def index_made(bench: Bench) -> Callable[[], object]:
    model = bench.large()
    return lambda: model.index("quantized", n=10, probes=40, refine=8)


def imported(bench: Bench) -> Callable[[], object]:
    command = [sys.executable, "-c", "import shortlist; shortlist.IALS"]
    return repeat(5, lambda _: subprocess.run(command, check=True))


def read(bench: Bench) -> Callable[[], object]:
    return lambda: bench.sl.Interactions.read(bench.folder / "events.csv", context="user", item="item", time="time")


def loaded(bench: Bench) -> Callable[[], object]:
    target = bench.folder / f"model-{os.getpid()}"
    bench.model("IALS", **SMALL).save(target)
    return repeat(20, lambda _: bench.sl.load(target))


TASKS: dict[str, Callable[[Bench], Callable[[], object]]] = {
    "ials": fit("IALS", dim=128, epochs=8, solver="eigen", regularization=0.01, unobserved_weight=0.1),
    "ials-exact": fit("IALS", dim=128, epochs=2, solver="exact", regularization=0.01, unobserved_weight=0.1),
    "bpr": fit("BPR", **SAMPLED | {"epochs": 10}),
    "bpr-adagrad": fit("BPR", **SAMPLED | {"epochs": 5, "optimizer": "adagrad"}),
    "warp": fit("WARP", **SAMPLED | {"epochs": 5, "optimizer": "adagrad"}),
    "softmax": fit("SoftmaxMF", **SAMPLED | {"epochs": 1, "optimizer": "adam", "temperature": 0.1, "batch": 256}),
    "item-knn": fit("ItemKNN"),
    "evaluate": evaluation,
    "recommend-one": one_known,
    "recommend-all": everybody,
    "history-ials": one_history("IALS", **SMALL),
    "history-bpr": one_history("BPR", **SAMPLED | {"epochs": 1}),
    "fold-in": one_fold_in,
    "index-one": one_of_index,
    "quantized": quantized,
    "index": index_made,
    "load": loaded,
    "read": read,
    "import": imported,
}


if __name__ == "__main__":
    main()
