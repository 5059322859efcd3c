"""Harm saved models in every way, and see that loading gives the old answers, lawful new ones, or a clear refusal.

From the folder `tests`:

    python -m storage.fuzz --seed 0 --count 10000
    python -m storage.fuzz --seed 0 --start 4711 --count 1      # one case again, as a failure is printed

Each case is drawn from its seed and number alone: a base model (every registered recommender, on ids of several kinds,
with weights and without), and one or more of `MUTATIONS`. Cases run in child processes. A model that is loaded with
`verify=True` may

* be refused: a ShortlistError that names the path and is short enough to be read;
* load with a manifest of a base model: then it answers exactly as that model;
* load with a manifest that was forged: then it must answer, with ids of its catalogue, as many as were asked for,
  and finite scores.

Loaded without `verify`, it is also folded in to, indexed and evaluated. It may then give wrong answers, and refuse at
any time with a ShortlistError.

Anything else is a failure: another exception, a crash, more than `SECONDS`, or more than `MEGABYTES` of memory.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import shortlist as sl
from shortlist.data import vocabulary
from storage.bases import make_bases
from storage.mutations import MANIFEST, MUTATIONS, Box
from storage.samples import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 60.0  # a setting of another type may have kernels compiled
MEGABYTES = 200.0
LONGEST_MESSAGE = 1000  # characters, the path apart
REFUSED, SAME, LAWFUL = "refused", "same", "lawful"


class WrongError(Exception):
    """What a loaded model must not do."""


@dataclass
class Outcome:
    """What became of one case."""

    case: int
    result: str
    mutations: list[str] = field(default_factory=list)
    base: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0
    message: str = ""

    @property
    def good(self) -> bool:
        return self.result in (REFUSED, SAME, LAWFUL)


# --- one case --------------------------------------------------------------------------------------------------------


def answers(model: Any) -> str:
    """Ask everything a model can be asked; a digest of the answers. WrongError when they are not lawful."""
    contexts, items = model.contexts_.ids()[:6], model.items_.ids()
    catalogue = set(items)
    digest = hashlib.sha256(repr((contexts, items, model.settings())).encode("utf-8", "surrogatepass"))

    def note(answer: Any, wanted: list[int]) -> None:
        for ids, scores, n in zip(answer.ids, answer.scores, wanted, strict=True):
            if len(ids) != n or len(set(ids)) != n or not set(ids) <= catalogue:
                raise WrongError(f"asked for {n}, it recommends {ids!r:.200}")
            if not np.isfinite(scores).all():
                raise WrongError(f"a score is not finite: {scores}")
            digest.update(repr(ids).encode("utf-8", "surrogatepass") + scores.tobytes())
        repr(answer), answer.to_polars()

    def fewer(seen: int, n: int = 3) -> int:
        return min(n, len(items) - seen)

    note(model.recommend(contexts, n=4, exclude_seen=False, threads=1), [fewer(0, 4)] * len(contexts))
    seen = model.seen_.lengths[: len(contexts)].tolist()
    note(model.recommend(contexts, n=3, threads=1), [fewer(n) for n in seen])
    histories = [items[:2], [], [items[-1]], {items[0]: 2.0, items[-1]: 0.5}]
    note(model.recommend(history=histories, n=3, threads=1), [fewer(len(one)) for one in histories])
    with contextlib.suppress(sl.SettingError):  # no notion of similar items
        note(model.similar_items(items[:3], n=3, threads=1), [fewer(1)] * len(items[:3]))
    for scores in model.score(contexts[:3], [items] * len(contexts[:3])):
        if scores.shape != (len(items),) or not np.isfinite(scores).all():
            raise WrongError(f"the scores are {scores}")
        digest.update(scores.tobytes())
    for ranks in model.rank(contexts[:3], [items] * len(contexts[:3]), threads=1):
        if sorted(ranks) != list(range(1, len(items) + 1)):
            raise WrongError(f"the ranks are {ranks}")
        digest.update(ranks.tobytes())
    repr(model)
    return digest.hexdigest()


def draw(seed: int, case: int, bases: list[Path], folder: Path) -> tuple[Box, Path]:
    """Make the harmed model of this case."""
    rng = random.Random(f"{seed}/{case}")
    base = rng.choice(bases)
    name = base.name.split("-")[0]
    near = [one for one in bases if one != base and one.name.split("-")[0] == name]
    box = Box(folder / "m", rng, near if rng.random() < 0.6 else [one for one in bases if one != base])
    shutil.copytree(base, box.path)
    for _ in range(rng.choice([1, 1, 1, 1, 1, 1, 2, 2, 3, 4])):
        chosen = rng.choice(list(MUTATIONS))
        try:
            MUTATIONS[chosen](box)
        except (Exception, pl.exceptions.PanicException):
            chosen = f"{chosen} (in part)"  # an earlier one took away what it would have changed
        box.done.append(chosen)
    return box, base


def use(model: Any) -> None:
    """Ask everything of a model that was not verified: whatever it answers, it must not crash."""
    contexts, items = model.contexts_.ids()[:6], model.items_.ids()
    events = sl.Interactions.from_frame({"u": [0, 0, 1], "i": [*items[:2], items[-1]]}, context="u", item="i")
    truth = sl.Interactions.from_frame({"u": [0, 1], "i": [items[-1], items[0]]}, context="u", item="i")
    split = sl.Split(events, events, truth, "history", "keep", fold_in=True)
    uses: list[Callable[[], object]] = [
        lambda: model.recommend(contexts, n=3, threads=1).to_polars(),
        lambda: model.recommend(contexts * 2, n=3, deny=items[:1], threads=1),  # by kernels
        lambda: model.recommend(contexts[:1], n=3, slate=sl.slates.MMR(0.5)).ids,
        lambda: model.recommend(history=[items[:2], items[1:4], [items[-1]]], n=3, threads=1).ids,
        lambda: model.recommend(history=events, n=2, threads=1).ids,
        lambda: model.similar_items(items[:2], n=2, threads=1).ids,
        lambda: model.rank(contexts[:2], [items[:2]] * 2, exclude_seen=True, threads=1),
        lambda: sl.evaluate(model, split, threads=1),
        lambda: answers(model),
    ]
    if isinstance(model, sl.DotProduct):
        uses += [
            lambda: model.fold_in([items[:3], {items[0]: 2.0}], threads=1),
            lambda: model.fold_in_items([contexts[:2]], threads=1),
            lambda: model.index("exact", threads=1).search(contexts, n=2).ids,
        ]
    for ask in uses:
        with contextlib.suppress(sl.ShortlistError, WrongError):
            ask()


def judge_unverified(box: Box) -> str:
    """What went wrong with a model that was not verified, or nothing."""
    try:
        with np.errstate(all="ignore"):
            use(sl.load(box.path))
    except sl.ShortlistError as error:
        if len(str(error).replace(str(box.path), "")) > LONGEST_MESSAGE:
            return f"unverified: a message of {len(str(error))} characters: {error!s:.300}"
    except Exception as error:
        return f"unverified: {type(error).__name__}: {error!s:.300}"
    return ""


def judge(box: Box, expected: dict[str, str]) -> tuple[str, str]:
    """The result of a case, and a message where there is one."""
    if wrong := judge_unverified(box):
        return wrong, ""
    try:
        model = sl.load(box.path, verify=True)
    except sl.ShortlistError as error:
        text = str(error)
        causes: list[BaseException] = [error]
        while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
            causes.append(cause)
        if any(isinstance(one, MemoryError) for one in causes):
            return f"out of memory: {text:.300}", text
        if str(box.path) not in text:
            return f"a message that does not name the path: {text:.300}", text
        if len(text.replace(str(box.path), "")) > LONGEST_MESSAGE:
            return f"a message of {len(text)} characters: {text:.300}", text
        return REFUSED, text
    try:
        found = answers(model)
    except Exception as error:
        return f"loaded, and then {type(error).__name__}: {error!s:.300}", ""
    claimed = json.loads((box.path / MANIFEST).read_bytes())["sha256"]
    if claimed in expected:
        return (SAME, "") if found == expected[claimed] else ("it answers otherwise than the model it says it is", "")
    return (LAWFUL, "") if box.signed else ("an altered manifest was taken for whole", "")


def measured(box: Box, outcome: Outcome, expected: dict[str, str]) -> Outcome:
    """Judge a case, and see what it takes."""
    begin, memory = time.perf_counter(), reset_peak()
    try:
        result, message = judge(box, expected)
    except Exception as error:
        result, message = f"{type(error).__name__}: {error!s:.300}", ""
    seconds, megabytes = time.perf_counter() - begin, peak() - memory
    if megabytes > MEGABYTES:
        result = f"took {megabytes:.0f} MB"
    return replace(outcome, result=result, seconds=seconds, megabytes=megabytes, message=message[:LONGEST_MESSAGE])


def reset_peak() -> float:
    """Forget the most memory this process ever had, where that can be done; what it has now, in MB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    import resource

    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# --- a child process -------------------------------------------------------------------------------------------------


def child(seed: int, cases: range, folder: Path) -> None:
    """Run cases, telling of each before and after it."""
    warnings.simplefilter("ignore")
    vocabulary._SMALL = 2  # ids are looked up in the index
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some libraries write to standard output when a matrix is not finite
    bases = sorted((folder / "bases").iterdir())
    expected = {}
    for base in bases:
        expected[json.loads((base / MANIFEST).read_bytes())["sha256"]] = answers(sl.load(base))
    limit_memory(4 << 30)
    for case in cases:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            box, base = draw(seed, case, bases, Path(scratch))
            outcome = Outcome(case, "", box.done, base.name)
            print(json.dumps(vars(outcome)), file=out, flush=True)
            print(json.dumps(vars(measured(box, outcome, expected))), file=out, flush=True)


def limit_memory(more: int) -> None:
    """So that a case that believes a lie fails, and not the machine."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + more,) * 2)


# --- all of them -----------------------------------------------------------------------------------------------------


def run(seed: int, start: int, count: int, folder: Path) -> Iterator[Outcome]:
    """The outcomes of these cases; a child that dies or hangs costs its case, and the rest goes on in another."""
    stop = start + count
    while start < stop:
        command = [sys.executable, "-m", "storage.fuzz", "--seed", str(seed), "--child", str(folder)]
        command += ["--start", str(start), "--count", str(stop - start)]
        environment = {**child_environment(), "POLARS_MAX_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        with (
            open(folder / "stderr", "w+b") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
        ):
            begun: Outcome | None = None
            for line in told(process, lambda: begun is not None):  # noqa: B023
                outcome = Outcome(**json.loads(line))
                start = outcome.case + 1
                begun = None if outcome.result else outcome
                if begun is None:
                    yield outcome
            hung = process.poll() is None
            if begun is None and process.returncode == 0:
                return
            process.kill()
            errors.seek(0)
            said = errors.read()[-1500:].decode(errors="replace")
            result = f"took longer than {SECONDS:g} s" if hung else f"the process ended with {process.wait()}: {said}"
            yield replace(begun or Outcome(start, ""), result=result)
            if begun is None and not hung:
                return  # not a case's fault
            start += begun is None  # making the case took too long


def told(process: subprocess.Popen[str], at_work: Callable[[], bool]) -> Iterator[str]:
    """The lines a process writes, until it ends or says nothing for too long."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError):  # closed
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(queue.Empty):
        while (line := lines.get(timeout=SECONDS if at_work() else 120)) is not None:
            yield line
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--verbose", action="store_true", help="a line for every case")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.seed, range(given.start, given.start + given.count), given.child)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_bases(folder / "bases")
        begin = time.perf_counter()
        outcomes = []
        for outcome in run(given.seed, given.start, given.count, folder):
            outcomes.append(outcome)
            if given.verbose or not outcome.good:
                print(line_of(given.seed, outcome), flush=True)  # noqa: T201
        print(summary(outcomes, time.perf_counter() - begin))  # noqa: T201
    return int(not all(outcome.good for outcome in outcomes))


def line_of(seed: int, outcome: Outcome) -> str:
    """One line that says what happened and how to have it happen again."""
    what = " ".join(f"{outcome.result} {outcome.message if outcome.good else ''}".split())
    return f"--seed {seed} --start {outcome.case} --count 1: {outcome.base} {', '.join(outcome.mutations)}: {what}"


def summary(outcomes: list[Outcome], seconds: float) -> str:
    """Results by mutation, and the most that any case took."""
    results = (REFUSED, SAME, LAWFUL)
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        kind = outcome.mutations[0].removesuffix(" (in part)") if len(outcome.mutations) == 1 else "(several)"
        counts.setdefault(kind, Counter())[outcome.result if outcome.good else "FAILED"] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    lines = [f"{'':32}{REFUSED:>9}{SAME:>9}{LAWFUL:>9}{'FAILED':>9}"]
    for kind, found in [*sorted(counts.items()), ("all", total)]:
        lines.append(f"{kind:32}" + "".join(f"{found[result]:9}" for result in (*results, "FAILED")))
    slowest = max(outcomes, key=lambda one: one.seconds, default=Outcome(0, ""))
    largest = max(outcomes, key=lambda one: one.megabytes, default=Outcome(0, ""))
    lines.append(f"{len(outcomes)} cases in {seconds:.0f} s")
    lines.append(f"slowest: case {slowest.case}, {slowest.seconds:.2f} s ({', '.join(slowest.mutations)})")
    lines.append(f"largest: case {largest.case}, {largest.megabytes:.0f} MB ({', '.join(largest.mutations)})")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
