"""The table of the README comes from the stored figures of `benchmarks.questions.peers`."""

from __future__ import annotations

from benchmarks.lib.paths import ROOT
from benchmarks.questions import peers_table


def test_the_readme_shows_the_stored_figures():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.split("<!-- peers -->")[1].split("<!-- end of peers -->")[0].strip()
    assert shown == peers_table.short_table(), "run `python -m benchmarks.questions.peers table --short`"
