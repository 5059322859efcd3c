"""How much memory reading takes, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest

ROWS = 10_000_000
CONTEXTS, ITEMS = 200_000, 20_000
ROW_GROUP = 500_000

# polars' streaming engine decodes some row groups ahead of the one in hand, and its allocator keeps what it has freed.
# That does not grow with the number of rows. Files of 1 to 20 million of them took 26 bytes a row (32 with times) and,
# beside these, 60 to 130 MB; as polars 1.34 itself writes them, and reads them back, some 300 MB.
ALLOWANCE = 256 * 2**20

SCRIPT = """
import sys
from shortlist.data.interactions import Interactions

def memory(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))

path, time = sys.argv[1], sys.argv[2] or None
small = Interactions.from_frame({"u": ["a", "b"], "i": ["x", "y"], "t": [2, 1]}, context="u", item="i", time=time)
small.by_context, small.by_item  # everything is imported and compiled
before = memory("VmRSS")
events = Interactions.read(path, context="u", item="i", time=time)
events.by_context, events.by_item
vocabularies = sum(one.frame.estimated_size() for one in (events.contexts, events.items))
print(memory("VmHWM") - before, len(events), vocabularies)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("time", "bytes_per_row"), [("", 36), ("t", 60)])
def test_reading_and_both_views_stay_small(tmp_path, time, bytes_per_row):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "u": rng.integers(0, CONTEXTS, ROWS, dtype=np.int32),
            "i": rng.integers(0, ITEMS, ROWS, dtype=np.int32),
            "t": rng.integers(0, 2**31, ROWS),
        }
    ).with_columns(u=pl.format("user-{}", "u"), i=pl.format("item-{}", "i"))
    frame.write_parquet(tmp_path / "events.parquet", row_group_size=ROW_GROUP)
    del frame
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "events.parquet"), time],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    peak, rows, vocabularies = map(int, answer.stdout.split())
    assert rows == ROWS
    assert peak <= bytes_per_row * rows + 3 * vocabularies + ALLOWANCE, f"{peak / rows:.1f} bytes a row"
    sys.stdout.write(f"{peak / rows:.1f} bytes a row\n")
