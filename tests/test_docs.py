"""The code in README and docs runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fewer_orders import load_fewer, shorten

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.usefixtures("default_threads")
BLOCK = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of."""
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


def shop(first_lines: str) -> str:
    """The tutorial's file: the lines that it shows, and a year of orders of people with taste."""
    rng = np.random.default_rng(1)
    n = 6000
    customers = rng.integers(0, 120, n)
    articles = (rng.zipf(1.4, n) + 7 * (customers % 9)) % 90
    codes = np.array(["00713", "00980", "01101", *(f"{k:05d}" for k in range(2000, 2087))])
    names = np.array(["C-0042", "C-0007", *(f"C-{k:04d}" for k in range(100, 218))])
    moments = np.sort(rng.integers(0, 300 * 86_400, n)).astype("timedelta64[s]") + np.datetime64("2026-03-02T00:00:00")
    rows = [
        f"{names[c]},{codes[a]},{p},{str(t).replace('T', ' ')}"
        for c, a, p, t in zip(customers, articles, rng.integers(1, 9, n), moments)
    ]
    return first_lines + "\n".join(rows) + "\n"


def run(page: str, folder: Path, after: Callable[[], None] = lambda: None) -> str:
    """Every block of a page in its order, and what the commands among them printed; `after` is called after each."""
    names: dict[str, object] = {}
    printed = ""
    for language, file, text in BLOCK.findall((ROOT / page).read_text()):
        if language == "python":
            exec(compile(text, page, "exec"), names)
        elif language == "sh":
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            for command in text.replace("\\\n", "").splitlines():
                done = subprocess.run(
                    ["sh", "-e", "-c", command],
                    capture_output=True,
                    text=True,
                    env={**os.environ, "PATH": path},
                    check=False,
                )
                assert done.returncode == 0, done.stderr
                printed += done.stdout
                after()
        elif language == "csv":
            (folder / file).write_text(shop(text))
        elif language == "toml":
            (folder / file).write_text(text)
        else:
            assert not language, f"{page}: a block of {language} that nobody runs"
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("orders", ["fewer", "all"])
def test_the_readme_runs_as_pasted(orders, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if orders == "fewer":
        load_fewer(monkeypatch)
    shortened = []

    def after():
        """Shorten the file that the first command writes."""
        if orders == "fewer" and not shortened:
            shorten(tmp_path / "orders.csv")
            shortened.append("orders.csv")

    shell = run("README.md", tmp_path, after)
    assert "ndcg@20" in capsys.readouterr().out
    assert "22423" in shell
    assert {one.name for one in tmp_path.iterdir()} >= {"lists.parquet", "all-lists.parquet", "orders.csv", "models"}


@pytest.mark.slow
def test_the_readme_shows_what_its_first_block_prints(capsys):
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    first = next(k for k, (language, _, _) in enumerate(blocks) if language == "python")
    exec(compile(blocks[first][2], "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert alike(blocks[first + 1][2], printed), f"README.md does not show what is printed:\n{printed}"


@pytest.mark.slow
def test_the_guide_runs(folder, capsys):
    assert run("docs/guide.md", folder)


@pytest.mark.slow
def test_theory_runs(folder, capsys):
    run("docs/theory.md", folder)
    assert "mean rank" in capsys.readouterr().out


def test_the_tutorial_runs(folder, capsys):
    shell = run("docs/tutorial.md", folder)
    said = capsys.readouterr().out
    for expected in (
        "unknown context 'C-42'",
        "['C-42']",
        "messy.csv",
        "on_bad='drop'",
        "cold_share@20",
        "test pairs already in training",
    ):
        assert expected in said, expected
    assert "C-0042" in shell
    assert '"items"' in shell


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/tutorial-day.md", "docs/tutorial-new-items.md", "docs/tutorial-beside.md"])
def test_pages_print_what_they_show(page, folder, capsys):
    """A block without a language is what the one before it printed; numbers with a point may differ by 0.02."""
    names: dict[str, object] = {}
    printed = ""
    for language, _, text in BLOCK.findall((ROOT / page).read_text()):
        if language == "python":
            assert not printed, f"{page} does not show what is printed: {printed}"
            exec(compile(text, page, "exec"), names)
            printed = capsys.readouterr().out
        else:
            assert not language, f"{page}: a block of {language} that nobody runs"
            assert alike(text, printed), f"{page} shows\n{text}\nbut it printed\n{printed}"
            printed = ""
    assert not printed


def alike(shown: str, printed: str) -> bool:
    number = re.compile(r"-?\d+\.\d+")
    numbers = [np.array(number.findall(one), np.float64) for one in (shown, printed)]
    return number.sub("#", shown) == number.sub("#", printed) and np.allclose(*numbers, rtol=0, atol=0.02)


def test_the_tutorial_starts_in_under_twenty_lines():
    blocks = BLOCK.findall((ROOT / "docs/tutorial.md").read_text())
    first = next(text for language, _, text in blocks if language == "python")
    assert len(first.splitlines()) < 20
    assert "recommend(" in first


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(one.name for one in (ROOT / "examples").glob("*.py")))
def test_examples_run(script):
    done = subprocess.run([sys.executable, ROOT / "examples" / script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            if "://" not in target:
                linked = page.parent / target if target else page
                assert linked.exists(), f"{page.name}: {target}"
                assert not anchor or anchor in anchors(linked), f"{page.name}: {target}#{anchor}"
