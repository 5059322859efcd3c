"""A place is tried, and left as it was."""

from __future__ import annotations

import os

import pytest

from shortlist.errors import StorageError
from shortlist.storage import check_writable


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    for place in ("new", "new/deep/er", "there", "there/new", tmp_path / "new", "."):
        check_writable(place)
    assert [one.name for one in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("place", ["file", "file/new", "new/" + "x" * 300, "dangling"])
def test_places_that_cannot_be_saved_to(place, tmp_path):
    (tmp_path / "file").write_text("dear")
    os.symlink(tmp_path / "nowhere" / "else", tmp_path / "dangling")
    with pytest.raises(StorageError, match=r"cannot save to '.*': .*; choose another directory"):
        check_writable(tmp_path / place)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["dangling", "file"]
