"""A real process, killed before and after every call of a save that changes the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shortlist.loading import load
from shortlist.recommenders.registry import REGISTRY
from shortlist.storage import load_model, save_model
from storage.bases import fit
from storage.faults import at_call
from storage.fuzz import answers
from storage.samples import child_environment, clean, leftovers, same, sample
from storage.test_faults import check_whole

if TYPE_CHECKING:
    from collections.abc import Callable

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
SITUATIONS = ["nothing", "empty", "model"]


def kill(jobs: list[tuple[Path, str, str, int]], *models: Path) -> None:
    """Kill saves; in the folder of a job are the calls at which they were killed, and in k what the k-th left."""
    for base, *_ in jobs:
        base.mkdir()
    told = json.dumps([(str(base), *rest) for base, *rest in jobs])
    command = [sys.executable, "-m", "storage.killer", told, *map(str, models)]
    subprocess.run(command, check=True, timeout=600, env=child_environment())


def points_of(base: Path) -> list[str]:
    points: list[str] = json.loads((base / "points.json").read_text())
    return points


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which saves of the sample were killed, all of them by one process."""
    folder = tmp_path_factory.mktemp("killed")
    whole = [(folder / f"{one}-{when}", one, when, 8 << 20) for one in SITUATIONS for when in ("before", "after")]
    kill([*whole, *((folder / f"{one}-amid", one, "before", 150) for one in ("nothing", "model"))])
    return folder


def check(base: Path, points: list[str], situation: str, when: str, whole: Callable[[Path], bool]) -> None:
    """One moment at which the old model becomes the new one, and a next save that clears up."""
    outcomes = []
    for k, name in enumerate(points):
        target = base / str(k) / "m"
        outcomes.append(whole(target) if target.exists() else False)
        save_model(target, sample(3))
        assert same(load_model(target), sample(3)), f"killed {when} {k} ({name})"
        assert clean(target), f"killed {when} {k} ({name})"
        assert leftovers(target) == []
    commit = points.index("replace" if situation != "nothing" else "rename")
    assert outcomes == [k > commit or (k == commit and when == "after") for k in range(len(points))]


@needs_fork
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_killed_at_every_call(killed: Path, situation: str, when: str) -> None:
    base = killed / f"{situation}-{when}"
    points = points_of(base)
    assert points.count("write") >= 4  # three files and the manifest at least
    assert points.count("fsync") >= 6
    assert points.count("unlink") == (3 if situation == "model" else 0)
    check(base, points, situation, when, lambda target: check_whole(target, situation))


@needs_fork
@pytest.mark.parametrize("situation", ["nothing", "model"])
def test_killed_amid_files_of_many_writes(killed: Path, situation: str) -> None:
    base = killed / f"{situation}-amid"
    points = points_of(base)
    assert points.count("write") > 20
    check(base, points, situation, "before", lambda target: check_whole(target, situation))


@needs_fork
@pytest.mark.parametrize(
    ("name", "situation"),
    [
        pytest.param(name, situation, marks=() if (name, situation) == ("Popularity", "model") else pytest.mark.slow)
        for name in sorted(REGISTRY)
        for situation in ("nothing", "model")
    ],
)
def test_a_recommender_killed_at_every_call(tmp_path: Path, name: str, situation: str) -> None:
    digests = []
    for version in (1, 2):
        model = fit(name, "weights", version)
        model.save(tmp_path / "models" / str(version))
        digests.append(answers(model))

    def whole(target: Path) -> bool:
        found = answers(load(target))
        assert found in digests[0 if situation == "model" else 1 :]
        return found == digests[1]

    kill([(tmp_path / "k", situation, "before", 8 << 20)], tmp_path / "models")
    check(tmp_path / "k", points_of(tmp_path / "k"), situation, "before", whole)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nothing_is_missed(tmp_path: Path, situation: str) -> None:
    """The calls that are watched are all: every byte on the disk, and every change that Python reports."""
    reported: list[str] = []
    watching = [False]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching[0] and (event.startswith(("os.", "shutil.")) or (event == "open" and writing(args))):
            reported.append(event)

    def writing(args: tuple[Any, ...]) -> bool:
        return isinstance(args[2], int) and bool(args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

    def count(_: int, name: str, args: tuple[Any, ...]) -> None:
        written.append(len(args[1]) if name == "write" else 0)

    target = tmp_path / "m"
    if situation == "empty":
        target.mkdir()
    if situation == "model":
        save_model(target, sample(1))
    model = sample(2)
    written: list[int] = []
    sys.addaudithook(hook)  # cannot be taken back, only told to be silent
    with at_call(count) as made:
        watching[0] = True
        save_model(target, model)
        watching[0] = False
    assert sum(written) == sum(one.stat().st_size for one in target.iterdir())
    own = {"os.mkdir": "mkdir", "os.rmdir": "rmdir", "os.remove": "unlink", "os.rename": "rename"}
    changing = [own.get(event, event) for event in reported if event not in ("os.listdir", "os.scandir")]
    watched = ["rename" if name == "replace" else name for name in made if name not in ("write", "fsync")]
    assert changing.count("open") == 4  # three files and the manifest
    assert watched.count("open") > 4  # directories are opened for fsync
    assert sorted(name for name in changing if name != "open") == sorted(name for name in watched if name != "open")
