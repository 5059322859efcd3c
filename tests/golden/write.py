"""Write all golden answers again: `python tests/golden/write.py`. Only when an answer is meant to change."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.commands import COMMANDS, MACHINE, masked, run
from golden.subjects import (
    HERE,
    INTERRUPTED,
    SAVED,
    SUBJECTS,
    Interrupted,
    answers,
    fit,
    fit_in_folder,
    two_stage,
    two_stage_answers,
)


def write_scores() -> None:
    arrays: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {}
    shutil.rmtree(HERE / "models", ignore_errors=True)
    for name, subject in SUBJECTS.items():
        model = fit(subject)
        scores, facts[name] = answers(model)
        arrays |= {f"{name}/{question}": table for question, table in scores.items()}
        if name in SAVED:
            model.save(HERE / "models" / name)
    both = two_stage()
    both.save(HERE / "models" / "TwoStage")
    arrays |= {f"TwoStage/{question}": table for question, table in two_stage_answers(both).items()}
    np.savez_compressed(HERE / "scores.npz", **arrays)
    write_json("facts.json", facts)


def write_checkpoints() -> None:
    shutil.rmtree(HERE / "checkpoints", ignore_errors=True)
    arrays = {}
    for name in INTERRUPTED:
        try:
            fit_in_folder(SUBJECTS[name], HERE / "checkpoints" / name, interrupt=True)
        except Interrupted:
            with tempfile.TemporaryDirectory() as folder:
                arrays[name] = answers(fit_in_folder(SUBJECTS[name], Path(folder) / "whole"))[0]["known"]
    np.savez_compressed(HERE / "resumed.npz", **arrays)


def write_commands() -> None:
    with tempfile.TemporaryDirectory() as folder:
        told = {name: run(command, Path(folder)) for name, command in COMMANDS.items()}
    write_json("commands.json", {name: masked(value, values=name not in MACHINE) for name, value in told.items()})


def write_json(file: str, content: dict[str, Any]) -> None:
    (HERE / file).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    write_scores()
    write_checkpoints()
    write_commands()
