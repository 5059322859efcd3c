import json

import polars as pl
import pytest

import shortlist as sl
from cli.helpers import COLUMNS, ODD_ITEMS, ODD_USERS, SMALL, words


def test_saves_a_model_that_answers_by_the_same_ids(odd_model, int_model):
    model = sl.load(odd_model)
    assert set(model.contexts_.ids()) == set(ODD_USERS)
    assert set(model.items_.ids()) == set(ODD_ITEMS)
    assert sl.load(int_model).contexts_.ids() == list(range(101, 109))


def test_says_what_it_did(run, odd_csv, tmp_path):
    result = run("fit", odd_csv, *COLUMNS, *SMALL, "--out", tmp_path / "m")
    assert "IALS" in result.stdout
    assert str(tmp_path / "m") in result.stdout
    assert result.stderr.count("epoch") == 3
    assert run("fit", odd_csv, *COLUMNS, *SMALL, "--out", tmp_path / "m", "--quiet").stderr == ""


def test_settings_are_typed(run_json, odd_csv, tmp_path):
    settings = ["--set", "dim=3", "--set", "ials.regularization=.02", "--set", "epochs=2", "--set", "weighting=log"]
    args = [*COLUMNS, "--weight", "quantity", "--time", "when", "--aggregate", "latest", "--threads", 1]
    told = run_json("fit", odd_csv, *args, "--model", "IALS", *settings, "--out", tmp_path / "m")
    assert told["model"] == "IALS"
    assert {name: told["settings"][name] for name in ("dim", "regularization", "weighting")} == {
        "dim": 3,
        "regularization": 0.02,
        "weighting": "log",
    }
    assert told["data"]["events"] == 96
    assert told["loss"] > 0
    assert sl.load(tmp_path / "m").settings() == told["settings"]


@pytest.mark.parametrize("model", ["ease", "popularity"])
def test_other_models(run_json, int_csv, tmp_path, model):
    told = run_json("fit", int_csv, *COLUMNS, "--model", model, "--out", tmp_path / "m")
    assert "loss" not in told
    assert type(sl.load(tmp_path / "m")).__name__ == told["model"]


def test_factorizations_by_sampling(run, run_json, odd_csv, tmp_path):
    settings = ["--set", "dim=3", "--set", "epochs=2", "--set", "learning_rate=0.2", "--set", "biases=true"]
    more = ["--set", "optimizer=adam", "--set", "item_regularization=.01", "--threads", 1]
    told = run_json("fit", odd_csv, *COLUMNS, "--model", "bpr", *settings, *more, "--out", tmp_path / "m")
    assert told["model"] == "BPR"
    assert told["settings"]["learning_rate"] == 0.2
    assert told["settings"]["biases"] is True
    assert told["settings"]["item_regularization"] == 0.01
    assert told["settings"]["context_regularization"] is None
    assert sl.load(tmp_path / "m").settings() == told["settings"]
    assert len(run_json("recommend", tmp_path / "m", "ann", "-n", 2)["answers"][0]["items"]) == 2
    assert "samples/s" in run("fit", odd_csv, *COLUMNS, "--model", "warp", *SMALL, "--out", tmp_path / "m").stderr


def test_parts_are_given_as_text(run, run_json, odd_csv, tmp_path):
    args = ["fit", odd_csv, *COLUMNS, "--model", "matrixfactorization", *SMALL, "--out", tmp_path / "m"]
    parts = ["--set", "sampler=AdaptiveRank(gamma=50)", "--set", "objective=Pairwise('hinge')", "--set", "weight=none"]
    told = run_json(*args, *parts)
    assert told["settings"]["sampler"] == "AdaptiveRank(gamma=50, exclude='history', refresh=None)"
    assert told["settings"]["objective"].startswith("Pairwise(loss='hinge'")
    assert told["settings"]["weight"] is None
    assert sl.load(tmp_path / "m").settings() == told["settings"]
    parts = ["--set", "sampler=rejection(rounds=5)", "--set", "weight=TopN(3)"]
    assert run_json(*args, *parts)["settings"]["weight"] == "TopN(n=3)"
    assert "did you mean Uniform?" in run(*args, "--set", "sampler=Unifrom", code=1).stderr
    bad = run(*args, "--set", "sampler=__import__('os').getcwd()", code=1).stderr
    assert "expected one of Uniform, Popularity" in bad
    assert "use Rejection()" in run(*args, "--set", "weight=Step(3)", code=1).stderr


def test_replaces_a_model(run, odd_csv, tmp_path):
    run("fit", odd_csv, *COLUMNS, *SMALL, "--out", tmp_path / "m")
    run("fit", odd_csv, *COLUMNS, "--model", "popularity", "--out", tmp_path / "m")
    assert type(sl.load(tmp_path / "m")).__name__ == "Popularity"


def test_contexts_of_two_columns(run, run_json, odd_csv, tmp_path):
    args = ["fit", odd_csv, *COLUMNS, "--context", "day", *SMALL, "--out", tmp_path / "m"]
    run(*args)
    (answer,) = run_json("recommend", tmp_path / "m", "ann,mon", "-n", 2)["answers"]
    assert answer["context"] == ["ann", "mon"]
    assert "user" in run("recommend", tmp_path / "m", "ann,mon").stdout.splitlines()[0]
    assert "day" in run("recommend", tmp_path / "m", "ann,mon").stdout.splitlines()[0]


def test_formats_and_bad_rows(run, run_json, odd_csv, tmp_path):
    frame = pl.read_csv(odd_csv)
    frame.write_parquet(tmp_path / "events.parquet")
    frame.write_csv(tmp_path / "events.txt", separator="\t")
    out = ["--out", tmp_path / "m", *SMALL]
    for args in ([tmp_path / "events.parquet"], [tmp_path / "events.txt", "--format", "csv", "--separator", r"\t"]):
        assert run_json("fit", *args, *COLUMNS, *out)["data"]["events"] == 96
    with odd_csv.open() as old, (tmp_path / "bad.csv").open("w") as new:
        new.write(old.read() + ",tea,1,2024-01-01,mon\n")
    run("fit", tmp_path / "bad.csv", *COLUMNS, *out, code=1)
    told = run("fit", tmp_path / "bad.csv", *COLUMNS, *out, "--on-bad", "drop")
    assert "dropped: " in told.stderr
    assert run_json("fit", f"{tmp_path}/*.parquet", *COLUMNS, *out)["data"]["pairs"] > 0


def test_bundled_data_knows_its_columns(run_json, tmp_path):
    args = ["fit", "online-retail", "--model", "popularity", "--out", tmp_path / "m", "--aggregate", "count"]
    told = run_json(*args)
    assert told["data"]["contexts"] == 4334
    model = sl.load(tmp_path / "m")
    assert model.seen_.values.max() < 1000  # counts, not the quantities of up to 80,995


def test_the_number_of_epochs_is_chosen_on_events_held_out(run, run_json, tmp_path):
    args = ["fit", "online-retail", "--set", "dim=8", "--set", "epochs=6", "--out", tmp_path / "m"]
    told = run_json(*args, "--validation", 0.1, "--patience", 1, "--metric", "recall@20")
    assert told["settings"]["epochs"] == told["validation"]["epochs"] <= 6
    assert told["validation"]["metric"] == "recall@20"
    assert 0 < told["validation"]["value"] < 1
    assert told["validation"]["protocol"].startswith("time")
    assert told["data"]["contexts"] == len(sl.load(tmp_path / "m").contexts_)  # of all events


def test_without_times_any_events_are_held_out(run, odd_csv, tmp_path):
    args = ["fit", odd_csv, *COLUMNS, *SMALL, "--out", tmp_path / "m", "--validation", 0.2]
    told = run(*args)
    assert "on a split by chance" in told.stderr
    assert "best by ndcg@20" in told.stdout


def test_options_of_epochs_that_make_no_sense(run, odd_csv, tmp_path):
    args = ["fit", odd_csv, *COLUMNS, *SMALL, "--out", tmp_path / "m"]
    assert "only valid with --validation" in run(*args, "--patience", 2, code=2).stderr
    assert "not a fraction between 0 and 1" in run(*args, "--validation", 1, code=2).stderr
    assert "fits twice" in run(*args, "--validation", 0.1, "--checkpoint", tmp_path / "c", code=2).stderr
    told = run("fit", odd_csv, *COLUMNS, "--model", "ease", "--out", tmp_path / "m", "--validation", 0.2, code=1)
    assert "EASE does not learn in epochs and does not accept validation" in told.stderr


def test_mistakes_that_can_be_told_early_are(run, tmp_path):
    """Before the data is read: here there is none."""
    (tmp_path / "file").write_text("dear")
    args = ["fit", tmp_path / "nowhere.csv", *COLUMNS, "--out", tmp_path / "m"]
    validated = [*args, "--validation", 0.1, "--metric"]
    assert "expected an accuracy metric" in run(*validated, "gini@20", code=1).stderr
    assert "nonsense" in run(*validated, "nonsense@20", code=1).stderr
    ease = [*args, "--model", "ease"]
    assert "does not accept checkpoint" in run(*ease, "--checkpoint", tmp_path / "c", code=1).stderr
    assert "does not accept validation" in run(*ease, "--validation", 0.1, code=1).stderr
    assert "same directory as --out" in run(*args, "--checkpoint", f"{tmp_path}/./m", code=2).stderr
    for place in ("file", "file/c", "x" * 300):
        told = run(*args, "--checkpoint", tmp_path / place, code=1).stderr
        assert "cannot save to" in told
        assert "bug" not in told
    assert "nowhere.csv" in run(*args, "--checkpoint", tmp_path / "c", code=1).stderr
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_checkpoint_is_gone_on_from(run, odd_csv, tmp_path):
    args = ["fit", odd_csv, *COLUMNS, "--checkpoint", tmp_path / "c", "--out", tmp_path / "m", "--set", "dim=3"]
    run(*args, "--set", "epochs=2")
    told = run(*args, "--set", "epochs=4")
    assert [f"epoch {k}/4" in told.stderr for k in (1, 2, 3, 4)] == [False, False, True, True]
    assert "dim was 3 and is 4" in run(*args[:-1], "dim=4", "--set", "epochs=4", code=1).stderr


def test_a_fit_begins_from_a_saved_model(run, odd_csv, tmp_path):
    args = ["fit", odd_csv, *COLUMNS]
    run(*args, "--set", "dim=2", "--set", "epochs=2", "--out", tmp_path / "small")
    more = ["--set", "dim=4", "--set", "epochs=1", "--start", tmp_path / "small", "--out", tmp_path / "large"]
    run(*args, *more)
    small, large = sl.load(tmp_path / "small"), sl.load(tmp_path / "large")
    events = sl.Interactions.read(odd_csv, context="user", item="product")
    again = sl.IALS(dim=4, epochs=1).fit(events, start=small)
    assert (large.item_embeddings_ == again.item_embeddings_).all()
    assert "may have seen the held-out events" in words(run(*args, *more, "--validation", 0.2, code=2).stderr)
    assert "EASE does not learn in epochs" in run(*args, "--model", "ease", *more[4:], code=1).stderr
    assert "no model at" in run(*args, *more[:4], "--start", tmp_path / "x", "--out", tmp_path / "m", code=1).stderr


def test_a_checkpoint_is_not_replaced_by_a_model(run, odd_csv, tmp_path):
    args = ["fit", odd_csv, *COLUMNS, *SMALL]
    run(*args, "--checkpoint", tmp_path / "c", "--out", tmp_path / "m")
    assert "contains a checkpoint of a fit; pass another" in run(*args, "--out", tmp_path / "c", code=1).stderr


def test_features_of_items_and_contexts(run, run_json, odd_csv, tmp_path):
    items, users = tmp_path / "items.csv", tmp_path / "users.csv"
    names = [*ODD_ITEMS, "new"]
    even = [k % 2 == 0 for k in range(len(names))]
    kind, words = (pl.Series(even).replace_strict({True: a, False: b}) for a, b in (("even", "odd"), ("a|b", "c")))
    table = pl.DataFrame({"product": names, "kind": kind, "words": words, "price": [1.5] * len(names)})
    table.write_csv(items)
    pl.DataFrame({"user": ODD_USERS, "age": range(len(ODD_USERS))}).write_csv(users)
    known = ["--item-features", items, "--context-features", users, "--tags", "words=|"]
    for name in ("featureials", "factorizationmachine"):
        run_json("fit", odd_csv, *COLUMNS, *SMALL, "--model", name, *known, "--out", tmp_path / "m")
        model = sl.load(tmp_path / "m")
        assert "new" in model.items_
        assert [field.kind for field in model.item_features_.fields] == ["categorical", "multi_valued", "numeric"]
        assert run_json("recommend", tmp_path / "m", "u6", "--allow", "new")["answers"][0]["items"][0]["id"] == "new"
    refused = run("fit", odd_csv, *COLUMNS, *SMALL, *known, "--out", tmp_path / "n", code=2)
    assert "IALS does not use features" in refused.stderr
    wrong = run(
        "fit", odd_csv, *COLUMNS, *SMALL, "--model", "featureials", "--tags", "words", "--out", tmp_path / "n", code=2
    )
    assert "COLUMN=SEPARATOR" in wrong.stderr
    lost = ["--model", "featureials", "--item-features", items, "--tags", "colours=|"]
    wrong = run("fit", odd_csv, *COLUMNS, *SMALL, *lost, "--out", tmp_path / "n", code=2)
    assert "no feature file has a column 'colours'" in wrong.stderr
    assert not (tmp_path / "n").exists()


def test_contexts_of_several_parts(run, run_json, odd_csv, tmp_path):
    columns = ["--context", "user", "--context", "day", "--item", "product"]
    run_json("fit", odd_csv, *columns, *SMALL, "--model", "parafac", "--out", tmp_path / "m")
    model = sl.load(tmp_path / "m")
    day = model.parts_["day"].ids()[0]
    told = run_json("recommend", tmp_path / "m", f"u6,{day}", "-n", 2)["answers"][0]
    assert len(told["items"]) == 2
    refused = run("recommend", tmp_path / "m", "u6,never", code=1)
    assert "--unknown average" in refused.stderr
    told = run_json("recommend", tmp_path / "m", "u6,never", "--unknown", "average", "-n", 2)["answers"][0]
    assert told["context"] == ["u6", "never"]
    assert run_json("recommend", tmp_path / "m", "u6,never", f"u7,{day}", "--unknown", "skip")["skipped"] == [
        "u6,never"
    ]


def test_weights_that_are_ignored_are_told_of_on_stderr(run, run_json, tmp_path):
    (tmp_path / "e.csv").write_text("user,item,n\na,x,1\na,y,5\nb,x,2\n")
    fit = ["fit", tmp_path / "e.csv", "--context", "user", "--item", "item", "--weight", "n", "--model", "ease"]
    done = run(*fit, "--out", tmp_path / "m", "--json")
    assert json.loads(done.stdout)["model"] == "EASE"
    assert done.stderr.count("the weights of column 'n' are ignored") == 1
    assert "--set weighting=log or --set weighting=raw" in done.stderr
    assert "--set weighting=binary" in done.stderr
    for one in ("log", "binary"):
        assert "ignored" not in run(*fit, "--out", tmp_path / "m", "--set", f"weighting={one}").stderr


def test_settings_that_change_nothing_are_refused(run, odd_csv, tmp_path):
    for setting in (["--set", "block=8"], ["--set", "strength_as=label"]):
        done = run("fit", odd_csv, *COLUMNS, *SMALL, *setting, "--out", tmp_path / "m", code=1)
        assert "has no effect" in done.stderr
    done = run("fit", odd_csv, *COLUMNS, *SMALL, "--patience", "2", "--out", tmp_path / "m", code=2)
    assert "--validation" in done.stderr
