"""Whether a forked process may use polars' threads."""

from __future__ import annotations

import os
import subprocess
import sys

import polars as pl
import pytest

import shortlist as sl
from forking import in_a_child, needs_fork, result
from shortlist._fork import polars_threads, require_polars_threads

pytestmark = [needs_fork, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


def test_a_child_knows_that_the_threads_have_stayed_behind():
    assert polars_threads()
    require_polars_threads("this")
    assert in_a_child({"usable": polars_threads, "deeper": lambda: in_a_grandchild(polars_threads)}) == {
        "usable": False,
        "deeper": False,
    }
    found = in_a_child({"refused": lambda: require_polars_threads("saving a model")})
    assert found["refused"].startswith("ShortlistError: saving a model needs the threads of polars")


def in_a_grandchild(ask) -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(ask())
    return bool(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="whether threads have started is only known on Linux")
def test_a_child_of_a_process_that_has_not_started_them_may_start_its_own():
    code = """
import os
import polars as pl
from shortlist._fork import polars_threads
pid = os.fork()
if pid == 0:
    frame = pl.DataFrame({"a": [1], "b": [2]}).cast(pl.Int8)
    os._exit(0 if polars_threads() and frame.row(0) == (1, 2) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_large_look_ups_and_tuples_are_the_same_in_a_child():
    pairs = pl.DataFrame({"u": range(5000), "d": [k % 7 for k in range(5000)]})
    known = sl.Interactions.from_frame({**pairs.to_dict(), "i": ["x"] * 5000}, context=["u", "d"], item="i").contexts
    numbers = sl.Interactions.from_frame({"u": ["x"] * 9000, "i": range(9000)}, context="u", item="i").items
    backwards = pairs.reverse()
    asked = pl.Series([*range(0, 18000, 2), None])
    calls = {
        "pairs": lambda: known.encode(backwards).tolist(),
        "numbers": lambda: numbers.encode(asked, unknown="mark").tolist(),
        "frame": lambda: numbers.encode(asked.to_frame(), unknown="mark").tolist(),
        "taken": lambda: known.take([5, 3]).rows(),
        "grown": lambda: numbers.extend([3, 9001, 9000, 9001]).ids()[-3:],
        "grown pairs": lambda: known.extend([(1, 6), (9, 9), (0, 0), (1, 6)]).ids()[-3:],
    }
    assert in_a_child(calls) == {name: result(call) for name, call in calls.items()}
