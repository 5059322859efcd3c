"""The code in README and docs runs as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the file that the pages speak of."""
    rng = np.random.default_rng(0)
    n = 4000
    fruit = np.array(["apple", "pear", "fig", "plum", *(f"fruit-{k}" for k in range(60))])
    users = rng.integers(0, 80, n)
    pl.DataFrame(
        {
            "user": [f"user-{u}" for u in users],
            "product": fruit[(rng.zipf(1.3, n) + 2 * users) % len(fruit)],
            "when": pl.Series(np.sort(rng.integers(0, 10**6, n))).cast(pl.Datetime("ms")),
        }
    ).write_parquet(tmp_path / "events.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_code_blocks_run(page, folder, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("script", sorted(one.name for one in (ROOT / "examples").glob("*.py")))
def test_examples_run(script):
    done = subprocess.run([sys.executable, ROOT / "examples" / script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
