"""A real process, killed at every call of a save that changes the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shortlist.storage import load_model, save_model
from storage.samples import child_environment, clean, leftovers, same, sample
from storage.test_faults import check_whole

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("situation", ["nothing", "empty", "model"])
def test_killed_at_every_call(tmp_path: Path, situation: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "storage.killer", str(tmp_path), situation],
        check=True,
        timeout=120,
        env=child_environment(),
    )
    points = json.loads((tmp_path / "points.json").read_text())
    assert points.count("write") >= 4  # three files and the manifest at least
    assert points.count("fsync") >= 6
    assert points.count("unlink") == (3 if situation == "model" else 0)
    outcomes = []
    for k in range(len(points)):
        target = tmp_path / str(k) / "m"
        outcomes.append(check_whole(target, situation) if target.exists() else False)
        save_model(target, sample(3))
        assert same(load_model(target), sample(3)), f"killed at {k} ({points[k]})"
        assert clean(target), f"killed at {k} ({points[k]})"
        assert leftovers(target) == []
    commit = points.index("replace" if situation != "nothing" else "rename")
    assert outcomes == [k > commit for k in range(len(points))]  # one moment, and the same for every file
