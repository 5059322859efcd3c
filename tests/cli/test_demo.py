import shlex

import pytest

import shortlist as sl


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def shown(run, place):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return run("demo")


def test_tables(shown):
    text = shown.stdout
    assert "test pairs already in training" in text
    for name in ("Popularity", "EASE", "IALS"):
        (row, *_) = [line for line in text.splitlines() if line.startswith(name)]
        assert row.count("±") == 2
        assert len([line for line in text.splitlines() if line.startswith(name)]) == 2  # accuracy, and beyond it
    assert "verdict" in text
    assert "recommended" in text
    assert shown.stderr.count("loss") > 3


def test_saved_model_and_commands_work(run, shown, place, monkeypatch):
    monkeypatch.chdir(place)
    commands = [shlex.split(line)[1:] for line in shown.stdout.splitlines() if line.startswith("shortlist ")]
    assert [command[0] for command in commands] == [
        "recommend",
        "similar",
        "recommend",
        "inspect",
        "datasets",
        "evaluate",
    ]
    for command in commands:
        assert run(*command).stdout
    model = sl.load("models/online-retail")
    assert type(model).__name__ in shown.stdout.split("Saved ")[1][:20]


@pytest.mark.slow  # `tests/golden` compares the same document in `make test`
def test_json(run_json, tmp_path):
    told = run_json("demo", "--out", tmp_path / "a model", "--quiet", "--threads", 2)
    recall = {one["model"]: one["metrics"]["recall@20"]["mean"] for one in told["models"]}
    assert recall["Popularity"] < 0.05 < recall["IALS"]
    assert recall["EASE"] > 0.1
    assert len(told["comparison"]) == 8 * 3
    model = sl.load(told["saved"]["path"])
    recommended = [one["product"] for one in told["example"]["recommended"]]
    assert model.recommend([told["example"]["customer"]], n=10).ids == [recommended]
    assert shlex.split(told["commands"][0])[2] == str(tmp_path / "a model")
