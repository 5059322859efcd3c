"""Runs a study that dies at a write to its journal: python -m tuning.killer FILE WRITE whole|half."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend

import shortlist as sl
from recommenders.factorizations import events

SPACE = {"dim": sl.tuning.Increasing(2, 4), "unobserved_item_exponent": None, "unobserved_context_exponent": None}


def study(path: Path | None, trials: int = 14) -> list[dict[str, Any]]:
    """A small search; its trials as plain values, without their times."""
    split = sl.splits.by_time(events(80, 24), test=0.2)
    tuned = sl.tune(
        sl.IALS(epochs=4), split, metric="recall@5", trials=trials, space=SPACE, study=path, refit=False, progress=False
    )
    return [
        {
            "settings": dict(one.settings),
            "state": one.state,
            "value": one.value,
            "epoch": one.epoch,
            "curve": one.curve,
            "start": one.start,
        }
        for one in tuned.trials
    ]


def die_at(write: int, half: bool) -> None:
    """Let the process be killed at this write to a journal, or when half of it is written."""
    append, done = JournalFileBackend.append_logs, [0]

    def fatal(self: JournalFileBackend, logs: list[dict[str, Any]]) -> None:
        if done[0] == write:
            if half:
                text = json.dumps(logs[0])
                with open(self._file_path, "ab") as file:
                    file.write(text[: len(text) // 2].encode())
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, logs)
        done[0] += 1

    JournalFileBackend.append_logs = fatal  # type: ignore[method-assign]


if __name__ == "__main__":
    die_at(int(sys.argv[2]), sys.argv[3] == "half")
    study(Path(sys.argv[1]))
