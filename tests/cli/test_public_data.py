import pytest

import shortlist as sl

POPULARITY = ["--model", "popularity", "--metrics", "recall@3"]


@pytest.fixture
def split_files(tmp_path):
    """LightGCN's two files."""
    folder = tmp_path / "lightgcn"
    folder.mkdir()
    (folder / "train.txt").write_text("".join(f"{u} {u % 4} {u % 4 + 1} {u % 3 + 5}\n" for u in range(12)))
    (folder / "test.txt").write_text("".join(f"{u} {(u + 2) % 4}\n" for u in range(12)))
    return folder


@pytest.fixture
def ratings(tmp_path):
    """MovieLens' ratings.dat."""
    folder = tmp_path / "ml"
    folder.mkdir()
    rows = [f"{u}::{(u + k) % 9}::{k % 5 + 1}::{978300760 + 100 * k + u}\n" for u in range(1, 9) for k in range(6)]
    (folder / "ratings.dat").write_text("".join(rows))
    return folder


@pytest.fixture
def doubtful(tmp_path):
    """Four columns without a header: two layouts of Amazon fit."""
    path = tmp_path / "ratings.csv"
    path.write_text("".join(f"{u},{i},5,{978300760 + i}\n" for u in range(1, 5) for i in range(4, 8)))
    return path


def test_the_published_split_is_used_and_said(run, run_json, split_files):
    told = run_json("evaluate", split_files, *POPULARITY)
    assert told["data"]["layout"] == "lightgcn"
    assert "train.txt and test.txt" in told["split"]["protocol"]
    assert told["split"]["truth"]["pairs"] == len(sl.datasets.read(split_files).split.truth)
    result = run("evaluate", split_files, *POPULARITY)
    assert "train.txt and test.txt" in result.stdout
    assert "in the layout lightgcn" in result.stderr


def test_another_split_is_made_on_request(run, run_json, split_files):
    told = run_json("evaluate", split_files, *POPULARITY, "--split", "random", "--test", "0.3")
    assert "chance" in told["split"]["protocol"]
    assert "is set aside" in run("evaluate", split_files, *POPULARITY, "--split", "random", "--test", "0.3").stderr
    assert "--split" in run("evaluate", split_files, *POPULARITY, "--test", "0.3", code=2).stderr
    assert "--split" in run("evaluate", split_files, *POPULARITY, "--repeats", "keep", code=2).stderr


def test_without_a_published_split_it_is_by_time(run_json, ratings):
    told = run_json("evaluate", ratings, *POPULARITY, "--test", "0.3")
    assert told["data"]["layout"] == "movielens-dat"
    assert "time" in told["split"]["protocol"]


def test_ratings_from_one_on(run, run_json, ratings):
    everything = run_json("inspect", ratings)["interactions"]
    good = run_json("inspect", ratings, "--min-rating", 4)["interactions"]
    assert everything["events"] == 48
    assert good["events"] == 16
    assert sum(good["dropped"].values()) == 32
    assert "--on-bad" not in run("inspect", ratings, "--min-rating", 4).stdout
    assert run_json("evaluate", ratings, *POPULARITY, "--split", "random", "--min-rating", 3)["data"]["events"] == 24


def test_fit_learns_from_the_training_part(run, run_json, split_files, tmp_path):
    result = run("fit", split_files, "--model", "popularity", "--out", tmp_path / "m")
    assert "fitting on the training events only" in result.stderr
    model = sl.load(tmp_path / "m")
    assert model.seen_.n_rows == 12
    assert len(model.seen_) == sl.datasets.read(split_files).split.train.n_pairs
    assert (
        run_json("fit", split_files, "--model", "popularity", "--out", tmp_path / "m")["data"]["layout"] == "lightgcn"
    )


def test_inspect_names_the_layout(run, run_json, split_files, ratings):
    told = run_json("inspect", split_files)
    assert told["layout"] == "lightgcn"
    assert told["published_split"]["contexts"] == 12
    assert run_json("inspect", ratings)["published_split"] is None
    assert "movielens-dat" in run("inspect", ratings).stdout
    assert "train.txt" in run("inspect", split_files).stdout


def test_plain_files_have_no_layout(run_json, odd_csv):
    assert run_json("inspect", odd_csv)["layout"] is None
    columns = ["--context", "user", "--item", "product", "--time", "when"]
    assert run_json("evaluate", odd_csv, *columns, *POPULARITY, "--repeats", "keep")["data"]["layout"] is None


def test_a_doubtful_layout_is_to_be_named(run, run_json, doubtful):
    for command in (["inspect"], ["evaluate", "--split", "random"]):
        message = run(command[0], doubtful, *command[1:], code=1).stderr
        assert "--layout amazon-2014" in message
    assert run_json("inspect", doubtful, "--layout", "amazon-2018")["interactions"]["items"] == 4
    assert run_json("inspect", doubtful, "--layout", "amazon-2014")["layout"] == "amazon-2014"


def test_columns_win_over_a_layout_that_would_be_recognised(run_json, tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("userId,movieId,rating,timestamp\n1,2,3,978300760\n2,2,3,978300761\n")
    assert run_json("inspect", path)["layout"] == "movielens-csv"
    told = run_json("inspect", path, "--context", "userId", "--item", "movieId")
    assert (told["layout"], told["interactions"]["weights"]) == (None, None)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--layout", "lightgnc"], 1, "did you mean 'lightgcn'"),
        (["--layout", "ncf"], 1, "is not in the layout 'ncf'"),
        (["--min-rating", "3"], 1, "have no ratings"),
        (["--layout", "lightgcn", "--context", "user"], 2, "its columns are"),
        (["--layout", "lightgcn", "--format", "csv"], 2, "its format is"),
        (["--aggregate", "count"], 2, "--aggregate"),
        (["--min-rating", "many"], 2, "--min-rating"),
    ],
)
def test_refused(run, split_files, args, code, words):
    assert words in run("evaluate", split_files, *args, code=code).stderr


def test_ratings_are_of_public_data(run, odd_csv):
    args = ["--context", "user", "--item", "product", "--min-rating", "3"]
    assert "public layout" in run("inspect", odd_csv, *args, code=2).stderr
    assert "public layout" in run("inspect", "online-retail", "--min-rating", "3", code=2).stderr


def test_weights_may_be_aggregated_otherwise(run_json, ratings, tmp_path):
    args = ["fit", ratings, "--model", "popularity", "--aggregate", "count", "--out", tmp_path / "m"]
    assert run_json(*args)["data"]["layout"] == "movielens-dat"
    assert sl.load(tmp_path / "m").seen_.values is None  # every rating counts 1
    run_json("fit", ratings, "--model", "popularity", "--out", tmp_path / "m")
    assert set(sl.load(tmp_path / "m").seen_.values.tolist()) == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_they_are_listed(run, run_json):
    told = run_json("datasets")["layouts"]
    assert {one["name"]: one["description"] for one in told} == sl.datasets.layouts()
    assert "amazon-2023" in run("datasets").stdout


@pytest.fixture
def sequences(tmp_path):
    """SASRec's file: all events, the test is a rule."""
    path = tmp_path / "games.txt"
    path.write_text("".join(f"{u} {(u + k) % 5 + 1}\n" for u in range(1, 7) for k in range(4)))
    return path


def test_fit_learns_from_everything_where_the_split_is_a_rule(run, run_json, sequences, tmp_path):
    args = ["fit", sequences, "--layout", "sasrec", "--model", "popularity", "--out", tmp_path / "m"]
    assert "all 24 events" in run(*args).stderr
    assert len(sl.load(tmp_path / "m").seen_) == 24
    assert run_json(*args)["data"]["events"] == 24
    assert run_json("evaluate", sequences, "--layout", "sasrec", *POPULARITY)["split"]["train"]["events"] == 18


def test_what_is_typed_for_repeated_ratings_counts(run_json, run, tmp_path, split_files):
    path = tmp_path / "ratings.dat"
    path.write_text("1::5::2::978300760\n1::5::4::978300770\n2::5::1::978300760\n")
    found = {}
    for typed in ([], ["--aggregate", "latest"], ["--aggregate", "sum"], ["--aggregate", "count"]):
        told = run_json("fit", path, *typed, "--min-rating", 2, "--model", "popularity", "--out", tmp_path / "m")
        assert sum(told["data"]["dropped"].values()) == 1
        found[typed[-1] if typed else None] = sl.load(tmp_path / "m").seen_.values.tolist()
    assert found == {None: [4.0], "latest": [4.0], "sum": [6.0], "count": [2.0]}
    refused = run("fit", split_files, "--aggregate", "sum", "--out", tmp_path / "m", code=2).stderr
    assert "cannot be changed" in refused


def test_advice_about_times_and_columns_works_on_the_command_line(run, run_json, split_files, ratings, tmp_path):
    for by in ("time", "last"):
        message = run("evaluate", split_files, *POPULARITY, "--split", by, code=1).stderr
        assert "no times" in message
        assert "--split random" in message
    assert run_json("evaluate", split_files, *POPULARITY, "--split", "random", "--test", "0.3")["models"]
    columns = ["--context", "user", "--item", "item"]
    message = run("fit", ratings, *columns, "--out", tmp_path / "m", code=1).stderr
    assert "omit --context and --item" in message
    assert "datasets.read" not in message
    run("fit", ratings, "--model", "popularity", "--out", tmp_path / "m")
