"""Measure the libraries of `peers.py`: each runs in a worker of its own, and Shortlist takes a turn before each."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.questions.peers_install import python_of
from benchmarks.questions.peers_libraries import LIBRARIES, Library
from benchmarks.questions.peers_results import keep
from shortlist.metrics import Ranks, parse_metric

WORKERS = Path(__file__).parent / "peers_workers"
CUT = 20
DIM = 128
THREADS = 2
SLOW_TURNS = 3  # where a library takes long
NORMAL = 1.96  # standard errors to either side of a 95 % interval


class WorkerError(Exception):
    """A worker could not do what it was told."""


class Worker:
    """A process that runs one library."""

    def __init__(self, library: Library, folder: Path, venvs: Path, log: Any) -> None:
        python = Path(sys.executable) if library.name == "shortlist" else python_of(venvs / library.pinned)
        if not python.exists():
            raise WorkerError("is not installed; run `install` first")
        threads = {"OMP_NUM_THREADS": str(THREADS), "SHORTLIST_THREADS": str(THREADS)}
        self._process = subprocess.Popen(
            [str(python), str(WORKERS / "worker.py"), f"{library.name}_peer", str(folder)],
            env=os.environ | threads | library.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )

    def do(self, *command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(*command, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError("ended; its log says why")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def close(self) -> None:
        """Let it end: it reads until its input is closed."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


class Bench:
    """A measurement: which libraries, how many turns, and where their data and environments are."""

    def __init__(self, names: Sequence[str], venvs: Path, folder: Path, turns: int) -> None:
        self.names, self.venvs, self.folder, self.turns = names, venvs, folder, turns
        self.about: dict[str, Any] = {}

    @contextlib.contextmanager
    def worker(self, name: str) -> Iterator[Worker]:
        with (self.folder / f"{name}.log").open("a") as log:
            worker = Worker(LIBRARIES[name], self.folder, self.venvs, log)
            try:
                yield worker
            finally:
                worker.close()

    def turns_of(self, library: Library, question: str) -> int:
        return min(SLOW_TURNS, self.turns) if question in library.slow else self.turns

    def conditions(self, **more: Any) -> dict[str, Any]:
        return {"threads": THREADS, "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0], **more}


def measure(names: Sequence[str], venvs: Path, turns: int, only: Sequence[str]) -> None:
    """Answer the questions `only` about these peers, and keep the figures."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(names, venvs, Path(folder), turns)
        with bench.worker("shortlist") as ours:
            bench.about = ours.do("prepare")
        for question, answer in (("quality", quality), ("evaluation", evaluation), ("epoch", epochs)):
            if question in only:
                print(f"\n{question}", flush=True)
                answer(bench)
    print(f"\ntook {(time.perf_counter() - began) / 60:.1f} minutes")


# --- speed -----------------------------------------------------------------------------------------------------------


def epochs(bench: Bench) -> None:
    """Seconds of an epoch. A worker lives through all of its library's turns."""
    conditions = bench.conditions(data=bench.about["speed"], dim=DIM)
    all_ours: list[float] = []
    with bench.worker("shortlist") as ours:
        our_versions = ours.do("versions")
        ours.do("epoch")  # compiles

        def work(library: Library, worker: Worker) -> None:
            commands = ("epoch", *([library.like] if library.like else []))
            columns = in_turns(ours, worker, bench.turns_of(library, "epoch"), "epoch", commands)
            all_ours.extend(columns["shortlist epoch"])
            section = conditions | {"what": library.epoch, "versions": worker.do("versions")}
            section |= ratios(columns, "epoch")
            if library.like:
                section["like"] = {"what": library.like_label, **ratios(columns, library.like)}
            keep(library.name, "epoch", section)
            print(f"  {library.name}: {section['median']:.2f} s, {section['ratio']:.2f} × ours", flush=True)

        each(bench, bench.names, work)
    if all_ours:
        keep("shortlist", "epoch", conditions | our_section("epoch", all_ours, our_versions))


def evaluation(bench: Bench) -> None:
    """Seconds of evaluating the same embeddings over the whole catalogue."""
    conditions = bench.conditions(data=bench.about["speed"], dim=DIM, k=CUT)
    all_ours: list[float] = []
    with bench.worker("shortlist") as ours:
        our_versions = ours.do("versions")
        ours.do("prepare_evaluation")
        our_metrics = ours.do("evaluate")["metrics"]  # compiles

        def work(library: Library, worker: Worker) -> None:
            prepared = worker.do("prepare_evaluation")
            columns = in_turns(ours, worker, bench.turns_of(library, "evaluation"), "evaluate", ("evaluate",))
            all_ours.extend(columns["shortlist evaluate"])
            section = conditions | {"what": library.evaluation, "versions": worker.do("versions")}
            section |= ratios(columns, "evaluate") | {"metrics": columns["metrics"]} | prepared
            keep(library.name, "evaluation", section)
            print(f"  {library.name}: {section['median']:.2f} s, {section['ratio']:.2f} × ours", flush=True)
            print(f"    {columns['metrics']}, ours {our_metrics}", flush=True)

        each(bench, bench.names, work)
    if all_ours:
        section = our_section("evaluation", all_ours, our_versions) | {"metrics": our_metrics}
        keep("shortlist", "evaluation", conditions | section)


def each(bench: Bench, names: Sequence[str], work: Callable[[Library, Worker], None]) -> None:
    """Do the work with a worker of each library; report one that fails and go on."""
    for name in names:
        try:
            with bench.worker(name) as worker:
                work(LIBRARIES[name], worker)
        except WorkerError as error:
            print(f"  {name}: {error}", flush=True)
            log = bench.folder / f"{name}.log"
            for line in log.read_text().splitlines()[-5:] if log.exists() else []:
                print(f"    {line}", flush=True)


def in_turns(ours: Worker, peer: Worker, turns: int, command: str, our_commands: Sequence[str]) -> dict[str, Any]:
    """Seconds by contestant, a value a turn; the turn before the first is a warm-up."""
    columns: dict[str, Any] = {"peer": [], **{f"shortlist {name}": [] for name in our_commands}}
    for turn in range(turns + 1):
        seconds = {f"shortlist {name}": ours.do(name)["seconds"] for name in our_commands}
        answer = peer.do(command)
        seconds["peer"] = answer["seconds"]
        columns["metrics"] = answer.get("metrics")
        for name, value in seconds.items():
            if turn:
                columns[name].append(value)
    return columns


def ratios(columns: dict[str, Any], command: str) -> dict[str, Any]:
    """The peer's seconds over ours within each turn, and of these the median and the range."""
    values = quotients(columns["peer"], columns[f"shortlist {command}"])
    return {
        "seconds": columns["peer"],
        "shortlist_seconds": columns[f"shortlist {command}"],
        "median": median(columns["peer"]),
        "ratio": median(values),
        "low": min(values),
        "high": max(values),
        "turns": len(values),
    }


def our_section(question: str, seconds: list[float], versions: dict[str, str]) -> dict[str, Any]:
    what = getattr(LIBRARIES["shortlist"], question)
    return {"what": what, "seconds": seconds, "median": median(seconds), "turns": len(seconds), "versions": versions}


def quotients(values: list[float], others: list[float]) -> list[float]:
    return [value / other for value, other in zip(values, others)]


# --- quality ---------------------------------------------------------------------------------------------------------


def quality(bench: Bench) -> None:
    """NDCG@20 of each library's default model, all by Shortlist's metric on the lists that the libraries wrote."""
    conditions = bench.conditions(data=bench.about["retail"], split="by_time, newest tenth, repeats dropped", k=CUT)
    truth = Truth.read(bench.folder / "retail.npz")
    ours: list[np.ndarray] = []

    def work(library: Library, worker: Worker) -> None:
        values = truth.ndcg(worker, "recommend")
        if library.name == "shortlist":
            ours.append(values)
        section = conditions | {"what": library.model, "versions": worker.do("versions")} | spread(values, ours)
        for command, what in library.variants.items():
            variant = {"what": what} | spread(truth.ndcg(worker, command), ours)
            section.setdefault("variants", []).append(variant)
        keep(library.name, "quality", section)
        print(f"  {library.name}: {section['ndcg']:.4f} ± {NORMAL * section['stderr']:.4f}", flush=True)

    each(bench, ["shortlist", *bench.names], work)


class Truth:
    """What the test users did, and the evaluation of lists for them."""

    def __init__(self, folder: Path, relevant: np.ndarray, n_ranked: np.ndarray) -> None:
        self._folder, self._relevant, self._n_ranked = folder, relevant, n_ranked

    @classmethod
    def read(cls, file: Path) -> Truth:
        loaded = np.load(file)
        n_items, users = int(loaded["shape"][1]), loaded["users"]
        indptr = loaded["test_indptr"]
        relevant = np.zeros((len(users), n_items), np.bool_)
        rows = np.repeat(np.arange(len(users)), np.diff(indptr)[users])
        relevant[rows, loaded["test_indices"]] = True
        return cls(file.parent, relevant, n_items - np.diff(loaded["train_indptr"])[users])

    def ndcg(self, worker: Worker, command: str) -> np.ndarray:
        """NDCG@20 of every user by the lists that a worker makes."""
        worker.do(command, "lists")
        return self.ndcg_of(np.load(self._folder / "lists.npy"))

    def ndcg_of(self, lists: np.ndarray) -> np.ndarray:
        hits = np.take_along_axis(self._relevant, np.maximum(lists, 0), axis=1) & (lists >= 0)
        ranks = Ranks(
            indptr=np.concatenate([[0], np.cumsum(hits.sum(axis=1))]),
            ranks=np.nonzero(hits)[1] + 1,
            n_relevant=self._relevant.sum(axis=1),
            n_ranked=self._n_ranked,
            cutoff=CUT,
        )
        return np.asarray(parse_metric(f"ndcg@{CUT}").compute(ranks))


def spread(values: np.ndarray, ours: Sequence[np.ndarray]) -> dict[str, float]:
    """Mean and standard error over users, and the same of the paired difference to Shortlist."""
    section = {"ndcg": float(values.mean()), "stderr": standard_error(values)}
    for reference in ours:
        difference = values - reference
        section |= {"difference": float(difference.mean()), "difference_stderr": standard_error(difference)}
    return section


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))
