import pytest

from cli.helpers import COLUMNS, SMALL

TIMED = [*COLUMNS, "--time", "when"]
SEVERAL = [
    "--model",
    "popularity",
    "--model",
    "ease",
    "--model",
    "ials",
    "--set",
    "ials.dim=4",
    "--set",
    "ials.epochs=3",
]


@pytest.mark.parametrize("data", ["odd_csv", "int_csv"])
def test_one_model(run, data, request):
    result = run("evaluate", request.getfixturevalue(data), *TIMED, *SMALL, "--repeats", "keep")
    assert "recall@20" in result.stdout
    assert "ndcg@20" in result.stdout
    assert "±" in result.stdout
    assert "Split by time" in result.stdout
    assert "dropped" in result.stdout
    assert "difference" not in result.stdout
    assert "Beyond accuracy" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100


def test_several_models_are_compared(run, odd_csv):
    text = run("evaluate", odd_csv, *TIMED, *SEVERAL, "--repeats", "keep", "--metrics", "recall@2, mrr").stdout
    assert all(name in text for name in ("Popularity", "EASE", "IALS", "recall@2", "mrr", "best"))
    assert "Differences to the best model" in text
    assert "Beyond accuracy" not in text
    assert not text.endswith("\n\n")


def test_beyond_accuracy(run, run_json, odd_csv):
    args = ["evaluate", odd_csv, *TIMED, *SEVERAL, "--repeats", "keep", "--metrics"]
    text = run(*args, "recall@2, coverage@2, novelty@2").stdout
    verdicts, lists = text.split("Differences to the best model")[1].split("Beyond accuracy")
    assert "recall@2" in verdicts
    assert "coverage@2" not in verdicts
    assert lists.splitlines()[1].split() == ["model", "coverage@2", "novelty@2"]
    assert run(*args, "gini@2").stdout.count("gini@2") == 1
    told = run_json(*args, "coverage@2,novelty@2")
    for one in told["models"]:
        assert one["metrics"]["coverage@2"]["mean"] > 0
        assert one["metrics"]["coverage@2"]["stderr"] is None
        assert one["metrics"]["novelty@2"]["stderr"] >= 0
    assert {row["worse"] for row in told["comparison"]} == {None}
    assert told["comparison"][1]["low"] is None


def test_json(run_json, odd_csv):
    told = run_json("evaluate", odd_csv, *TIMED, *SEVERAL, "--repeats", "keep", "--metrics", "recall@2", "--threads", 1)
    assert [one["model"] for one in told["models"]] == ["Popularity", "EASE", "IALS"]
    assert told["models"][2]["settings"]["dim"] == 4
    for one in told["models"]:
        assert 0 <= one["metrics"]["recall@2"]["mean"] <= 1
        assert one["metrics"]["recall@2"]["stderr"] > 0
        assert one["fit_seconds"] >= 0
    assert told["split"]["repeats"] == "keep"
    assert told["split"]["truth"]["pairs"] > 0
    assert len(told["comparison"]) == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--split", "time", "--test", "2024-01-10"], "time: test from 2024-01-10"),
        (["--split", "time", "--test", "0.3"], "time: test from"),
        (["--split", "time", "--test", "3d"], "time: test from 2024-01-"),
        (["--split", "last", "--test", "2"], "each context's last 2"),
        (["--split", "random", "--test", ".3", "--seed", "5"], "chance: 30% of events, seed 5"),
        (["--split", "contexts", "--test", "3", "--fold-in", ".6"], "held-out contexts: 3, 60% shown"),
        (["--split", "contexts", "--test", ".5"], "held-out contexts: 4, 80% shown"),
    ],
)
def test_splits(run_json, odd_csv, args, words):
    repeats = [] if "contexts" in args else ["--repeats", "keep"]
    told = run_json("evaluate", odd_csv, *TIMED, "--model", "popularity", *args, *repeats)
    assert words in told["split"]["protocol"]
    assert told["comparison"] is None


def test_the_default_model_and_the_seed(run_json, odd_csv):
    args = ["evaluate", odd_csv, *TIMED, "--repeats", "keep", *SMALL]
    told = [run_json(*args)["models"][0] for _ in range(2)]
    assert told[0]["model"] == "IALS"
    assert told[0]["metrics"] == told[1]["metrics"]


def test_a_standard_error_of_one_context_is_null(run_json, int_csv):
    args = ["--split", "contexts", "--test", "1", "--model", "popularity", "--fold-in", "0.5"]
    told = run_json("evaluate", int_csv, *TIMED, *args)
    assert told["models"][0]["metrics"]["recall@20"]["stderr"] is None


def test_slates(run, run_json, odd_csv):
    words = ["evaluate", odd_csv, *TIMED, *SMALL, "--repeats", "keep", "--slate", "mmr"]
    told = run_json(*words, "--diversity", "0.4", "--metrics", "ndcg@2,distance@2")
    assert told["models"][0]["model"] == "IALS with MMR(diversity=0.4, pool=100)"
    assert set(told["models"][0]["metrics"]) == {"ndcg@2", "distance@2"}
    result = run(*words, "--metrics", "auc", code=1)
    assert "auc cannot be computed for a slate" in result.stderr
    assert "fitted" not in result.stderr
