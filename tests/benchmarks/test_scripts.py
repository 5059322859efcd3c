"""Every script of benchmarks says what it answers and how to start it."""

from __future__ import annotations

import ast
import re
import sys

import pytest

from benchmarks.lib import machine
from benchmarks.lib.paths import ROOT

FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(
    path
    for path in FOLDER.rglob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    and path.parent.name != "peers_workers"  # questions.peers starts them, in environments of the peers
)


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")


@pytest.mark.parametrize("path", SCRIPTS, ids=module_of)
def test_a_script_begins_with_its_question_and_its_command(path):
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert text.splitlines()[0].endswith("?")
    assert f"python -m {module_of(path)}" in text


def test_the_readme_lists_every_script():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([\w.]+)` \| ", text, re.M))
    assert {module_of(path).removeprefix("benchmarks.") for path in SCRIPTS} <= listed


def test_a_result_says_how_it_was_made(monkeypatch):
    script = str(FOLDER / "speed" / "ials.py")
    monkeypatch.setattr(sys, "argv", [script, "race", "--data", "/a/folder", "--json", "log", "--record"])
    assert machine.command() == "python -m benchmarks.speed.ials race --data FOLDER"
    monkeypatch.setattr(sys, "argv", [str(FOLDER / "studies" / "defaults" / "__main__.py"), "table"])
    assert machine.command() == "python -m benchmarks.studies.defaults table"
