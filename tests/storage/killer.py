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

from shortlist.storage import save_model
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


def killed_save(target: Path, version: int, k: int, log: Path) -> None:
    def die(index: int, name: str, args: tuple[Any, ...]) -> None:
        if index == k:
            log.write_text(name)
            if name == "write":  # half of it reaches the disk
                os.pwrite(args[0], bytes(args[1][: len(args[1]) // 2]), 0)
            os.kill(os.getpid(), signal.SIGKILL)

    model = sample(version)
    with at_call(die):
        save_model(target, model)


def main(base: Path, situation: str) -> None:
    points: list[str] = []
    for k in range(1000):
        folder = base / str(k)
        folder.mkdir()
        target = folder / "m"
        if situation == "empty":
            target.mkdir()
        elif situation == "model" and fork(lambda target=target: save_model(target, sample(1))):  # type: ignore[misc]
            sys.exit("the old model could not be saved")
        code = fork(lambda target=target, k=k: killed_save(target, 2, k, base / f"call-{k}"))  # type: ignore[misc]
        if code == 0:
            (base / "points.json").write_text(json.dumps(points))
            return
        if code != -signal.SIGKILL:
            sys.exit(f"the save ended with {code} at call {k}")
        points.append((base / f"call-{k}").read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
