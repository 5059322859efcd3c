"""Run as a script: saves that are killed at their 0th, 1st, 2nd, ... call, each in a forked process of its own.

Forking is safe here, as this process itself never makes polars start its threads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shortlist.loading import load
from shortlist.storage import files, save_model
from storage.faults import at_call
from storage.samples import sample

if TYPE_CHECKING:
    from collections.abc import Callable


def fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def saver(models: Path | None, version: int) -> Callable[[Path], None]:
    """What saves version 1 or 2: of the sample, or of the recommender saved in a folder of that name."""
    if models is None:
        stored = sample(version)
        return lambda target: save_model(target, stored)
    save: Callable[[Path], None] = load(models / str(version)).save
    return save


def killed_save(target: Path, models: Path | None, k: int, when: str, log: Path) -> None:
    def die(index: int, name: str, args: tuple[Any, ...]) -> None:
        if index == k:
            log.write_text(name)
            if name == "write" and when == "before":  # half of it reaches the disk
                at = os.lseek(args[0], 0, os.SEEK_CUR)
                pwrite(args[0], bytes(args[1][: len(args[1]) // 2]), at)
            os.kill(os.getpid(), signal.SIGKILL)

    pwrite = os.pwrite
    save = saver(models, 2)
    with at_call(**{"happening" if when == "before" else "after": die}):
        save(target)


def main(base: Path, situation: str, when: str, block: int, models: Path | None) -> None:
    """Kill a save before (or after) each of its calls; files are written in blocks of that many bytes."""
    files._BLOCK = block
    points: list[str] = []
    for k in range(1000):
        folder = base / str(k)
        folder.mkdir()
        target = folder / "m"
        if situation == "empty":
            target.mkdir()
        elif situation == "model" and fork(lambda target=target: saver(models, 1)(target)):  # type: ignore[misc]
            sys.exit("the old model could not be saved")
        log = base / f"call-{k}"
        code = fork(lambda target=target, k=k, log=log: killed_save(target, models, k, when, log))  # type: ignore[misc]
        if code == 0:
            (base / "points.json").write_text(json.dumps(points))
            return
        if code != -signal.SIGKILL:
            sys.exit(f"the save ended with {code} at call {k}")
        points.append(log.read_text())


if __name__ == "__main__":
    models = Path(sys.argv[2]) if sys.argv[2:] else None
    for base, situation, when, block in json.loads(sys.argv[1]):
        main(Path(base), situation, when, block, models)
