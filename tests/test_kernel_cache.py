"""Where compiled kernels are kept, and that nothing else is ever taken for them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import shortlist
from shortlist import _kernel_cache
from shortlist._kernel_cache import Folder, KernelCache, _entries
from shortlist._numba import kernel
from shortlist.errors import ShortlistError

HOME = Path(shortlist.__file__).parent
CODE = """
import json, sys
import numpy as np
from shortlist._clock import compiled
from shortlist._kernel_cache import writable
from shortlist._random import mixed
assert mixed(np.uint64(1)) > 1
folder = writable()
print(json.dumps({"compiled": compiled().kernels, "why": folder and folder.why}))
"""
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"  # no file can grow, root's neither
posix = pytest.mark.skipif(os.name == "nt", reason="owners, modes and limits")


# Runs each job in a fork that has Numba loaded but no part of Shortlist: half a second less for each process.
FORKS = """
import json, os, runpy, signal, sys
import numba, scipy.linalg
numba.njit(lambda x: x)(1)  # loads what a first call of any kernel loads
assert not [name for name in sys.modules if name.startswith("shortlist")]
print("ready", flush=True)
for line in sys.stdin:
    script, path, environment = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{script}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.environ.clear()
        os.environ.update(environment)
        numba.config.reload_config()
        sys.path.insert(0, path)
        runpy.run_path(script, run_name="__main__")
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forks():
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "SHORTLIST_"))}
    plain["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-c", FORKS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=plain) as server:
        assert server.stdout.readline() == "ready\n"
        yield server
        server.stdin.close()


class Box:
    """A copy of the package, a home and a folder for temporary files, each of which may be closed for everybody."""

    def __init__(self, folder, forks):
        self.forks = forks
        self.folder, self.package = folder, folder / "lib" / "shortlist"
        shutil.copytree(HOME, self.package, ignore=shutil.ignore_patterns("__pycache__", "*.parquet", "cli"))
        self.home, self.temporary = folder / "home", folder / "tmp"
        self.temporary.mkdir()

    def close(self, *places):
        """Put a file where a folder is expected: not even root can write there."""
        for place in places:
            place.write_text("")

    def close_package(self):
        self.close(self.package / "__pycache__")

    def run(self, code=CODE, **more):
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "SHORTLIST_"))
        }
        environment |= {
            "XDG_CACHE_HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            **{name: str(value) for name, value in more.items()},
        }
        script = self.folder / "script.py"
        script.write_text(code, encoding="utf-8")
        print(json.dumps([str(script), str(self.folder / "lib"), environment]), file=self.forks.stdin, flush=True)
        status = int(self.forks.stdout.readline())
        stdout, stderr = (script.with_suffix(f".py.{name}").read_text() for name in ("stdout", "stderr"))
        assert status == 0, stderr
        return json.loads(stdout), stderr


@pytest.fixture
def box(tmp_path, forks):
    return Box(tmp_path, forks)


def kernels(folder):
    return list(folder.rglob("*.nbc"))


def test_the_order_of_folders(box):
    ours, numbas = box.folder / "ours", box.folder / "numbas"
    assert box.run(NUMBA_CACHE_DIR=numbas, SHORTLIST_CACHE_DIR=ours)[0] == {"compiled": 1, "why": "NUMBA_CACHE_DIR"}
    assert kernels(numbas)
    assert not ours.exists()
    assert box.run(SHORTLIST_CACHE_DIR=ours)[0] == {"compiled": 1, "why": "SHORTLIST_CACHE_DIR"}
    assert kernels(ours)
    assert not kernels(box.package)
    assert box.run()[0] == {"compiled": 1, "why": "beside the package"}
    assert kernels(box.package / "__pycache__")
    assert box.run() == ({"compiled": 0, "why": "beside the package"}, "")


def test_where_the_package_cannot_be_written(box):
    box.close_package()
    assert box.run()[0] == {"compiled": 1, "why": "the user's cache"}
    assert kernels(box.home / "shortlist")
    assert box.run()[0]["compiled"] == 0
    shutil.rmtree(box.home)
    box.close(box.home)
    assert box.run()[0] == {"compiled": 1, "why": "temporary files"}
    assert box.run() == ({"compiled": 0, "why": "temporary files"}, "")
    (place,) = box.temporary.iterdir()
    if os.name != "nt":
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_chosen_folder_that_cannot_be_written_is_passed_over(box):
    chosen = box.folder / "chosen"
    box.close(chosen)
    assert box.run(SHORTLIST_CACHE_DIR=chosen)[0]["why"] == "beside the package"


def test_a_chosen_folder_is_the_only_one(box):
    assert box.run()[0]["compiled"] == 1
    assert box.run(SHORTLIST_CACHE_DIR=box.folder / "fresh")[0]["compiled"] == 1


@posix
def test_what_cannot_be_written_is_read(box):
    """As in an image that was built by one user and is run by another."""
    assert box.run()[0]["compiled"] == 1
    found, said = box.run(FULL + CODE)
    assert (found["compiled"], said) == (0, "")


@posix
@pytest.mark.parametrize("how", ["open", "link", "foreign"])
def test_temporary_files_of_others_are_not_trusted(box, how):
    box.close_package()
    box.close(box.home)
    assert box.run()[0]["compiled"] == 1
    (place,) = box.temporary.iterdir()
    if how == "open":
        place.chmod(0o777)
    elif how == "link":
        place.rename(box.folder / "elsewhere")
        place.symlink_to(box.folder / "elsewhere")
    elif os.geteuid() == 0:
        os.chown(place, 12345, -1)
    else:
        pytest.skip("only root can give a folder away")
    found, said = box.run()
    assert found == {"compiled": 1, "why": None}  # neither read from nor written to
    assert "another user" in said


def test_no_folder_at_all(box):
    box.close_package()
    box.close(box.home)
    shutil.rmtree(box.temporary)
    box.close(box.temporary)
    environment = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), box.temporary)
    code = "import tempfile; tempfile.tempdir = " + repr(str(box.temporary)) + CODE
    twice = code + "from shortlist.sampling.alias_tables import *\n"
    found, said = box.run(twice, **environment)
    assert found == {"compiled": 1, "why": None}
    (line,) = said.splitlines()
    assert line.startswith("shortlist: compiled kernels cannot be cached")
    assert "SHORTLIST_CACHE_DIR" in line
    assert box.run(code, **environment, SHORTLIST_COMPILE_NOTE="0")[1] == ""


@posix
def test_a_full_disk_ends_nothing(box):
    found, said = box.run(FULL + CODE)
    assert found["compiled"] == 1
    assert "cannot be cached" in said
    assert not kernels(box.package)
    assert not list(box.folder.rglob("*.tmp.*"))
    assert box.run()[0]["compiled"] == 1
    assert box.run()[0]["compiled"] == 0


@pytest.mark.parametrize("ending", [pytest.param("nbi", marks=pytest.mark.slow), "nbc"])
def test_damaged_files_are_written_anew(box, ending):
    assert box.run()[0]["compiled"] == 1
    (path,) = (box.package / "__pycache__").glob(f"*.{ending}")
    whole = path.read_bytes()
    for harm in (b"", b"nonsense", whole[:-20]):
        path.write_bytes(harm)
        assert box.run()[0]["compiled"] == 1
        assert box.run()[0]["compiled"] == 0


def test_a_file_that_a_kernel_is_made_of_has_changed(box):
    """Neither its size nor its time tell, as after another version was unpacked with fixed times."""
    assert box.run()[0]["compiled"] == 1
    for name, again in (("_numba.py", 1), ("_signals.py", 1), ("_random.py", 1), ("online/user_state.py", 0)):
        path = box.package / name
        before, text = path.stat(), path.read_text(encoding="utf-8")
        path.write_text(text.replace(". ", ": ", 1), encoding="utf-8")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_size == before.st_size
        assert path.read_text(encoding="utf-8") != text
        assert box.run()[0]["compiled"] == again
        assert box.run()[0]["compiled"] == 0


def test_an_entry_is_only_what_it_says(tmp_path):
    entries = _entries(tmp_path, "kernel", "stamp")
    for key in ("one", "two"):
        entries.save(key, f"code of {key}")
    assert [entries.load(key) for key in ("one", "two", "three")] == ["code of one", "code of two", None]
    first, second = sorted(tmp_path.glob("*.nbc"))
    first.rename(tmp_path / "swap")
    second.rename(first)
    (tmp_path / "swap").rename(second)
    assert [entries.load(key) for key in ("one", "two")] == [None, None]
    other = _entries(tmp_path, "kernel", "another stamp")  # of which the index was written, and the code was not yet
    other.save("one", "new code")
    shutil.copy(first, second)
    old = _entries(tmp_path, "kernel", "stamp")
    assert old.load("one") is None
    assert other.load("one") == "new code"


@kernel
def doubled(x):
    return x + x


def cache_in(*folders):
    cache = KernelCache(doubled.py_func)
    cache.__dict__["_places"] = [(one, _entries(one.beside(cache._source), "doubled", "stamp")) for one in folders]
    return cache


def test_the_next_folder_takes_what_one_cannot(tmp_path, monkeypatch):
    full, free = (Folder(tmp_path / name, name) for name in ("full", "free"))
    cache = cache_in(full, free)
    compiled = numba.njit(doubled.py_func)  # never loaded from a cache: a kernel that was loaded cannot be stored again
    compiled(np.float32(1))
    (result,) = compiled.overloads.values()
    write = _kernel_cache._Entries._save_data

    def save_data(self, name, data):
        if "full" in self._cache_path:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, name, data)

    monkeypatch.setattr(_kernel_cache._Entries, "_save_data", save_data)
    monkeypatch.setattr(_kernel_cache, "_cache_errors", [])
    cache.save_overload(result.signature, result)
    assert not kernels(tmp_path / "full")
    assert len(kernels(tmp_path / "free")) == 1
    loaded = cache.load_overload(result.signature, doubled.targetctx)
    assert loaded.signature == result.signature
    _kernel_cache.require_cached()
    cache_in(full).save_overload(result.signature, result)
    with pytest.raises(ShortlistError, match=r"No space left on device\); set SHORTLIST_CACHE_DIR"):
        _kernel_cache.require_cached()


def test_a_function_without_a_file_is_compiled_all_the_same():
    space = {}
    exec(compile("def tripled(x):\n    return 3 * x\n", "<prompt>", "exec"), space)
    assert kernel(space["tripled"])(2) == 6


def test_every_kernel_module_is_found():
    modules = _kernel_cache.kernel_modules()
    assert {"shortlist._random", "shortlist.retrieval.select", "shortlist.solvers.sgd_kernels"} <= set(modules)
    _, imported = _kernel_cache._read(HOME / "solvers" / "exact.py")
    assert {HOME / "_numba.py", HOME / "solvers" / "tiles.py"} <= imported
