"""`benchmarks/speed/first_calls.py` runs, and its second calls compile nothing."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from benchmarks.lib.paths import ROOT


@pytest.mark.slow
def test_the_script_measures_what_it_is_asked_for():
    command = [sys.executable, "-m", "benchmarks.speed.first_calls", "--only", "popularity", "--what", "known", "index"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    lines = re.findall(r"^Popularity +(\w+) +first +([\d.]+)  second +([\d.]+)  difference +([\d.]+)$", said, re.M)
    assert [line[0] for line in lines] == ["fit", "known"]  # it has no index
    for _, first, second, difference in lines:
        assert abs(float(first) - float(second) - float(difference)) < 0.02
    assert re.search(r"^\| `Popularity` \| [\d.]+ \|  \| [\d.]+ \|  \| – \|  \|  \|$", said, re.M)
