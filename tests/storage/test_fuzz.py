"""A part of what `python -m storage.fuzz` does, always the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage import fuzz
from storage.bases import make_bases
from storage.mutations import MUTATIONS

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs to measure memory")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    make_bases(folder / "bases")
    return folder


def check(folder: Path, seed: int, count: int) -> list[fuzz.Outcome]:
    outcomes = list(fuzz.run(seed, 0, count, folder))
    assert [outcome.case for outcome in outcomes] == list(range(count))
    assert [fuzz.line_of(seed, outcome) for outcome in outcomes if not outcome.good] == []
    return outcomes


def test_harmed_models(folder: Path) -> None:
    outcomes = check(folder, 0, 100)
    results = [outcome.result for outcome in outcomes]
    assert results.count(fuzz.REFUSED) > 40
    assert results.count(fuzz.SAME) > 3
    assert results.count(fuzz.LAWFUL) > 3


@pytest.mark.slow
def test_harmed_models_at_length(folder: Path) -> None:
    outcomes = check(folder, 1, 3000)
    done = {name for outcome in outcomes for name in outcome.mutations}
    assert done >= set(MUTATIONS)


def test_the_same_seed_harms_in_the_same_way(folder: Path, tmp_path: Path) -> None:
    bases = sorted((folder / "bases").iterdir())
    for case in range(20):
        copies = []
        for where in ("a", "b"):
            box, _ = fuzz.draw(7, case, bases, tmp_path / f"{case}{where}")
            copies.append({one.name: one.read_bytes() for one in box.files()})
        assert copies[0] == copies[1]


def test_a_crash_and_a_hang_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher itself: children that die or do not answer cost their case only."""
    monkeypatch.setattr(fuzz, "SECONDS", 1.0)
    monkeypatch.setattr(fuzz.sys, "executable", str(folder / "python"))
    (folder / "python").write_text(SCRIPT)
    (folder / "python").chmod(0o755)
    outcomes = list(fuzz.run(0, 0, 4, folder))
    assert [outcome.case for outcome in outcomes] == [0, 1, 2, 3]
    assert [outcome.result.split(":")[0] for outcome in outcomes] == [
        "refused",
        "the process ended with -9",
        "took longer than 1 s",
        "same",
    ]


SCRIPT = """#!/bin/sh
while [ "$1" != --start ]; do shift; done
case $2 in
0) echo '{"case": 0, "result": ""}'; echo '{"case": 0, "result": "refused"}'
   echo '{"case": 1, "result": ""}'; kill -9 $$;;
2) echo '{"case": 2, "result": ""}'; exec sleep 60;;
3) echo '{"case": 3, "result": ""}'; echo '{"case": 3, "result": "same"}';;
esac
"""
