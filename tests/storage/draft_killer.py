"""Run as a script: drafts that are killed at their 0th, 1st, 2nd, ... call, each in a forked process of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from shortlist.storage.draft import opened
from storage.faults import at_call
from storage.killer import fork

HEAD, TAIL = b"head ", b" tail"
BLOCKS = [bytes([65 + k]) * (7 + k) for k in range(4)]
WHOLE = HEAD + b"".join(BLOCKS) + TAIL


def make(target: Path, *, overwrite: bool = False, restart: bool = False, n: int = 1) -> int:
    """Make the file, or go on with it; how many blocks were there already."""
    with opened(target, HEAD, {"n": n}, overwrite=overwrite, restart=restart) as draft:
        before = len(draft.blocks)
        assert [one.about for one in draft.blocks] == [{"k": k} for k in range(before)]
        if draft.complete:
            draft.remove()
            return before
        for k in range(before, len(BLOCKS)):
            draft.append(BLOCKS[k], {"k": k})
        draft.finish(TAIL)
        return before


def killed(target: Path, k: int, when: str, log: Path) -> None:
    pwrite = os.pwrite

    def die(index: int, name: str, args: tuple[Any, ...]) -> None:
        if index == k:
            log.write_text(name)
            if name == "write" and when == "before":  # half of it reaches the disk
                at = os.lseek(args[0], 0, os.SEEK_CUR)
                pwrite(args[0], bytes(args[1][: len(args[1]) // 2]), at)
            os.kill(os.getpid(), signal.SIGKILL)

    with at_call(**{"happening" if when == "before" else "after": die}) as made:
        make(target, overwrite=target.exists())
    log.write_text("end" if k >= len(made) else "failed")  # a call that fails has no time after it


def main(base: Path, situation: str, when: str) -> None:
    points: list[str] = []
    for k in range(1000):
        folder = base / str(k)
        folder.mkdir()
        target = folder / "lists"
        if situation == "file":
            target.write_bytes(b"older")
        if situation == "begun":
            again = base / f"again-{k}"
            code = fork(lambda target=target, again=again: killed(target, 22, "after", again))  # type: ignore[misc]
            if code != -signal.SIGKILL:
                sys.exit("it could not be begun")
        log = base / f"call-{k}"
        code = fork(lambda target=target, k=k, log=log: killed(target, k, when, log))  # type: ignore[misc]
        if code == 0 and log.read_text() == "end":
            (base / "points.json").write_text(json.dumps(points))
            return
        if code not in (0, -signal.SIGKILL):
            sys.exit(f"it ended with {code} at call {k}")
        points.append(log.read_text())


if __name__ == "__main__":
    for base, situation, when in json.loads(sys.argv[1]):
        main(Path(base), situation, when)
