import json

import pytest
from typer.testing import CliRunner

import shortlist as sl
from cli.helpers import ANSI, COLUMNS, ODD_ITEMS, ODD_USERS, SMALL, write_events
from shortlist.cli import app


@pytest.fixture(scope="session")
def run():
    """Run a command in this process; `ok` checks that it went well, `fails` that it did not, and how."""
    runner = CliRunner(env={"COLUMNS": "300"})  # so that no message is broken over lines

    def invoke(*args, code=0):
        result = runner.invoke(app, [str(arg) for arg in args])
        assert result.exit_code == code, (result.exit_code, result.output, result.exception)
        assert not ANSI.search(result.output)
        assert "Traceback" not in result.output
        return result

    return invoke


@pytest.fixture(scope="session")
def run_json(run):
    """Run a command with --json and give the document."""
    return lambda *args: json.loads(run(*args, "--json").stdout)


@pytest.fixture(scope="session")
def odd_csv(tmp_path_factory):
    return write_events(tmp_path_factory.mktemp("odd") / "events.csv", ODD_USERS, ODD_ITEMS)


@pytest.fixture(scope="session")
def int_csv(tmp_path_factory):
    return write_events(tmp_path_factory.mktemp("int") / "events.csv", range(101, 109), range(1, 11))


@pytest.fixture(scope="session")
def odd_model(run, odd_csv, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "odd"
    run("fit", odd_csv, *COLUMNS, *SMALL, "--out", path)
    return path


@pytest.fixture(scope="session")
def int_model(run, int_csv, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "int"
    run("fit", int_csv, *COLUMNS, *SMALL, "--out", path)
    return path


@pytest.fixture(scope="session")
def day_model(tmp_path_factory):
    """Contexts of text and integers."""
    path = tmp_path_factory.mktemp("models") / "days"
    frame = {"user": ["u1", "u1", "u2", "u3", "u4"], "day": [1, 2, 1, 2, 3], "product": ["a", "b", "a", "c", "d"]}
    data = sl.Interactions.from_frame(frame, context=["user", "day"], item="product")
    sl.PARAFAC(dim=2, epochs=2).fit(data).save(path)
    return path
