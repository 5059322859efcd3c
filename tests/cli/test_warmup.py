import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.helpers import program
from shortlist._kernel_cache import writable
from test_warming import compiled_in_a_session


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return {**kept, "SHORTLIST_CACHE_DIR": str(tmp_path_factory.mktemp("kernels"))}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_kernels"), [("Popularity", 5), ("IALS", 20)])
def test_what_is_compiled_once_is_there(environment, name, n_kernels):
    first = program("warmup", "--model", name.lower(), "--json", "-q", env=environment, timeout=600)
    assert (first.returncode, first.stderr) == (0, "")
    told = json.loads(first.stdout)
    assert told["cache"] == environment["SHORTLIST_CACHE_DIR"]
    (warmed,) = told["models"]
    assert warmed["model"] == name
    assert warmed["kernels"] >= n_kernels
    assert warmed["cpu_seconds"] > 0
    assert list(Path(told["cache"]).rglob("*.nbc"))
    again = program("warmup", "--model", name.lower(), env=environment, timeout=600)
    assert again.returncode == 0
    assert re.search(rf"{name} +already compiled", again.stdout)
    assert f"stored in  {told['cache']}" in again.stdout
    assert again.stderr == "warming up: 1/1 recommenders\n"
    assert compiled_in_a_session([name], environment) == []


def test_a_second_warm_up_compiles_nothing(run):
    """In the cache of this process. What other processes find in a fresh cache is tested by the slow test above."""
    run("warmup", "--model", "popularity")
    again = run("warmup", "--model", "popularity")
    assert re.search(r"Popularity +already compiled", again.stdout)
    assert f"stored in  {writable()}" in again.stdout
    assert again.stderr == "warming up: 1/1 recommenders\n"


def test_a_name_that_is_none(run):
    assert "did you mean" in run("warmup", "--model", "popularit", code=1).stderr


@pytest.mark.skipif(os.name == "nt", reason="limits of processes")
def test_nowhere_to_keep_them(environment, tmp_path):
    """A later process would compile again, so that an image must not be built. One kernel stands for all."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "import sys; sys.argv = ['shortlist', 'warmup', '--model', 'popularity', '-q']\n"
        "import numpy\n"
        "from shortlist import _random, warming\n"
        "warming._exercise = lambda model: _random.mixed(numpy.uint64(1))\n"
        "from shortlist.cli import main; main()"
    )
    fresh = {**environment, "SHORTLIST_CACHE_DIR": str(tmp_path / "fresh")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=fresh, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: compiled kernels cannot be cached")
    assert "SHORTLIST_CACHE_DIR" in done.stderr
