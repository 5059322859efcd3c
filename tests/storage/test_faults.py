"""An error at any call during a save: the old model or the new one, and nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from shortlist.errors import StorageError
from shortlist.storage import load_model, save_model
from storage.faults import at_call
from storage.samples import child_environment, clean, leftovers, same, sample

if TYPE_CHECKING:
    from pathlib import Path

SITUATIONS = ["nothing", "empty", "model", "deep"]


def prepare(folder: Path, situation: str) -> Path:
    folder.mkdir(parents=True)
    target = folder / "a" / "b" / "m" if situation == "deep" else folder / "m"
    if situation == "empty":
        target.mkdir()
    if situation == "model":
        save_model(target, sample(1))
    return target


def check_whole(target: Path, situation: str) -> bool:
    """Whether the new model is there; else exactly what was there before is."""
    if (target / "manifest.json").exists() or situation == "model":
        loaded = load_model(target)
        if same(loaded, sample(2)):
            return True
        assert situation == "model"
        assert same(loaded, sample(1))
        return False
    assert target.exists() == (situation == "empty")
    return False


def calls_of_a_save(folder: Path, situation: str) -> list[str]:
    target = prepare(folder, situation)
    with at_call(lambda *_: None) as made:
        save_model(target, sample(2))
    return made


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left"),
        OSError(errno.EIO, "I/O error"),
        PermissionError(13, "no"),
        KeyboardInterrupt(),
    ],
)
def test_an_error_at_every_call(tmp_path: Path, situation: str, error: BaseException) -> None:
    calls = calls_of_a_save(tmp_path / "calls", situation)
    assert {"open", "write", "fsync"} <= set(calls)
    assert ("replace" if situation in ("empty", "model") else "rename") in calls
    for k, name in enumerate(calls):
        folder = tmp_path / f"{k}"
        target = prepare(folder, situation)

        def fail(index: int, name: str, args: tuple[Any, ...], k: int = k) -> None:
            if index == k:
                if name == "write":  # some of it was taken
                    os.pwrite(args[0], bytes(args[1][: len(args[1]) // 2]), os.lseek(args[0], 0, os.SEEK_CUR))
                raise error

        raised: BaseException | None = None
        try:
            with at_call(fail):
                save_model(target, sample(2))
        except (StorageError, KeyboardInterrupt) as caught:
            raised = caught
        whole = check_whole(target, situation)
        assert whole or raised is not None, f"{k} {name}: it did not raise, and it did not save"
        if isinstance(raised, StorageError):
            assert raised.__cause__ is error
            assert ("flushing it to disk failed" if whole else "nothing was changed") in str(raised)
        if not whole:  # nothing was added to what was there
            if situation == "model":
                assert clean(target)
            else:
                assert os.listdir(folder) == (["m"] if situation == "empty" else [])
                assert situation != "empty" or os.listdir(target) == []
        save_model(target, sample(3))
        assert same(load_model(target), sample(3))
        assert clean(target)
        assert leftovers(target) == []


def test_an_interruption_just_after_the_manifest_took_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = prepare(tmp_path / "f", "model")
    replace = os.replace

    def interrupted(*args: Any) -> None:
        replace(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(target, sample(2))
    monkeypatch.undo()
    assert same(load_model(target), sample(2))
    save_model(target, sample(3))
    assert clean(target)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_disk_that_is_full_after_so_many_bytes(tmp_path: Path, situation: str) -> None:
    """The kernel itself refuses: each file may grow to a limit, at which a write is taken in part, and then none."""
    sizes = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), situation],
        check=True,
        timeout=120,
        env=child_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    limits = json.loads(sizes.stdout)
    assert limits["refused"] >= 10
    for limit in range(limits["refused"] + 1):
        folder = tmp_path / str(limit)
        target = folder / "a" / "b" / "m" if situation == "deep" else folder / "m"
        assert check_whole(target, situation) == (limit == limits["refused"])
        if limit < limits["refused"]:
            if situation == "model":
                assert clean(target)
            else:
                assert os.listdir(folder) == (["m"] if situation == "empty" else [])
                assert situation != "empty" or os.listdir(target) == []


FULL = """
import json, os, resource, signal, sys
from pathlib import Path
from shortlist.errors import StorageError
from shortlist.storage import save_model
from storage.killer import fork
from storage.samples import sample
from storage.test_faults import prepare

base, situation = Path(sys.argv[1]), sys.argv[2]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def save(target, limit):
    model = sample(2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        save_model(target, model)
    except StorageError as error:
        assert "nothing was changed" in str(error), error
        os._exit(3)

for k in range(1000):
    folder = base / str(k)
    if fork(lambda: prepare(folder, situation)):
        sys.exit("the old model could not be saved")
    target = folder / "a" / "b" / "m" if situation == "deep" else folder / "m"
    code = fork(lambda: save(target, 150 * k))
    if code == 0:
        print(json.dumps({"refused": k}))
        break
    assert code == 3, code
"""


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:7])))
    save_model(tmp_path / "m", sample(1))
    monkeypatch.undo()
    assert same(load_model(tmp_path / "m"), sample(1))


def test_an_error_in_the_middle_of_encoding_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polars.exceptions import PanicException

    from shortlist.storage import id_tables

    def panic(_: object) -> memoryview:
        raise PanicException("no luck")

    save_model(tmp_path / "m", sample(1))
    monkeypatch.setattr(id_tables, "encode", panic)
    for target in (tmp_path / "m", tmp_path / "n"):
        with pytest.raises(StorageError, match="no luck"):
            save_model(target, sample(2))
    assert same(load_model(tmp_path / "m"), sample(1))
    assert clean(tmp_path / "m")
    assert os.listdir(tmp_path) == ["m"]
