"""The `--json` of every command is what it was, up to times, paths and texts for people."""

from __future__ import annotations

import json

import pytest
from typer.main import get_command

from golden.commands import COMMANDS, MACHINE, differences, masked, run
from golden.names import today
from golden.subjects import HERE
from shortlist.cli import app

pytest.importorskip("optuna")
GOLDEN = today(json.loads((HERE / "commands.json").read_text()))
RELATIVE = 1e-4
# Means over a thousand customers after 16 epochs: near ties fall otherwise on another processor. Differences between
# models are near 0, so the tolerance is absolute too.
TOLERANCES = {"demo": (2e-3, 5e-4)}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    return {name: masked(run(command, folder), values=name not in MACHINE) for name, command in COMMANDS.items()}


def test_every_command_has_a_golden_document():
    assert {command[0] for command in COMMANDS.values()} == set(get_command(app).commands)
    assert set(COMMANDS) == set(GOLDEN)


@pytest.mark.parametrize("name", COMMANDS)
def test_documents(documents, name):
    assert not [*differences(GOLDEN[name], documents[name], *TOLERANCES.get(name, (RELATIVE, 1e-9)))]


def test_a_changed_document_is_noticed():
    document = json.loads(json.dumps(GOLDEN["evaluate"]))
    metrics = document["document"]["models"][0]["metrics"]
    metrics["recall@5"]["mean"] *= 1.001
    metrics["extra@5"] = metrics.pop("mrr")
    document["document"]["data"]["events"] += 1
    assert len([*differences(GOLDEN["evaluate"], document, RELATIVE, 0.0)]) == 4
