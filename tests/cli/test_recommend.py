import pytest

import shortlist as sl
from cli.helpers import ODD_ITEMS


@pytest.fixture(scope="module")
def model(odd_model):
    return sl.load(odd_model)


def ids(told):
    return [[item["id"] for item in answer["items"]] for answer in told["answers"]]


def test_contexts(run, run_json, odd_model, model):
    told = run_json("recommend", odd_model, "ann", "bob, jr.", "-n", 3)
    expected = model.recommend(["ann", "bob, jr."], n=3)
    assert ids(told) == expected.ids
    assert [answer["context"] for answer in told["answers"]] == ["ann", "bob, jr."]
    assert told["answers"][0]["items"][0]["score"] == pytest.approx(float(expected.scores[0][0]))
    lines = run("recommend", odd_model, "ann", "-n", 3, "--keep-seen").stdout.splitlines()
    assert lines[0].split() == ["user", "rank", "product", "score"]
    assert len(lines) == 4
    assert run("recommend", odd_model, "-n", 1, "--", "--flag").stdout.splitlines()[1].startswith("--flag")


def test_integers(run, run_json, int_model):
    (answer,) = run_json("recommend", int_model, "101", "-n", 2)["answers"]
    assert answer["context"] == 101
    assert all(isinstance(item["id"], int) for item in answer["items"])
    assert ids(run_json("recommend", int_model, "--history", "1,2", "--deny", "3,4,no"))
    (answer,) = run_json("recommend", int_model, "101", "--allow", "3,5", "--keep-seen")["answers"]
    assert {item["id"] for item in answer["items"]} == {3, 5}
    assert "101" in run("recommend", int_model, "101").stdout


def test_histories(run, run_json, odd_model, model, tmp_path):
    listed = tmp_path / "had.txt"
    listed.write_bytes(b"a,b\r\n@at\r\n\r\n")
    told = run_json(
        "recommend", odd_model, "--history", "tea,-dash", "--history", f"@{listed}", "--history", "", "-n", 2
    )
    assert ids(told) == model.recommend(history=[["tea", "-dash"], ["a,b", "@at"], []], n=2).ids
    assert [answer["history"] for answer in told["answers"]] == [["tea", "-dash"], ["a,b", "@at"], []]
    assert "tea,-dash" in run("recommend", odd_model, "--history", "tea,-dash").stdout


def test_filters(run, run_json, odd_model, tmp_path):
    keep = ["--keep-seen", "-n", 10]
    everything = ids(run_json("recommend", odd_model, "ann", *keep))[0]
    assert set(everything) == set(ODD_ITEMS)
    assert set(ids(run_json("recommend", odd_model, "ann", *keep, "--allow", "tea, spaced "))[0]) == {"tea", " spaced "}
    deny = tmp_path / "deny.txt"
    deny.write_text("a,b\nžluť 🐎\n", encoding="utf-8")
    left = set(ids(run_json("recommend", odd_model, "ann", *keep, "--deny", f"@{deny}"))[0])
    assert left == set(ODD_ITEMS) - {"a,b", "žluť 🐎"}
    result = run("recommend", odd_model, "ann", "--allow", "coffee,milk")
    assert "2 of 2 ids are not in the catalogue" in result.stderr
    assert "no items left after filtering" in result.stderr


def test_unknown_is_skipped_on_request(run, run_json, odd_model, int_model):
    told = run_json("recommend", odd_model, "nobody", "ann", "--unknown", "skip")
    assert told["skipped"] == ["nobody"]
    assert len(told["answers"]) == 1
    assert run_json("recommend", int_model, "ann", "999", "101", "--unknown", "skip")["skipped"] == ["ann", "999"]
    assert run_json("recommend", odd_model, "--history", "tea,coffee", "--unknown", "skip")["skipped"] == ["coffee"]
    assert "skipped unknown ids: nobody" in run("recommend", odd_model, "nobody", "ann", "--unknown", "skip").stderr
    assert run_json("similar", odd_model, "coffee", "tea", "--unknown", "skip")["skipped"] == ["coffee"]
    assert run_json("recommend", odd_model, "nobody", "--unknown", "skip")["answers"] == []


@pytest.mark.parametrize("text", ["0101", "1_01", "１０１", "+101", " 101", "101 ", "9" * 5000])
def test_an_integer_has_one_spelling(run, run_json, int_model, text):
    assert run_json("recommend", int_model, text, "101", "--unknown", "skip")["skipped"] == [text]
    assert "ids of 'user' are integers; pass plain digits" in run("recommend", int_model, text, code=1).stderr
    items = ["recommend", int_model, "--history", "1,02,２", "--unknown", "skip"]
    assert run_json(*items)["skipped"] == ["02", "２"]
    (answer,) = run_json("recommend", int_model, "101", "--allow", "1,2,03", "--keep-seen")["answers"]
    assert {one["id"] for one in answer["items"]} == {1, 2}


def test_parts_that_cannot_be_ids(run, run_json, day_model):
    """They are parts that are not known: skipped, or averaged over; with the wrong number of parts it is no id."""
    typed = ["u1,1", "u2,sunday", "u3,01", "u4"]
    told = run_json("recommend", day_model, *typed, "--unknown", "skip")
    assert [one["context"] for one in told["answers"]] == [["u1", 1]]
    assert told["skipped"] == typed[1:]
    told = run_json("recommend", day_model, *typed[:3], "--unknown", "average")
    expected = sl.load(day_model).recommend([("u1", 1), ("u2", "sunday"), ("u3", "01")], unknown="average")
    assert [one["context"] for one in told["answers"]] == [["u1", 1], ["u2", "sunday"], ["u3", "01"]]
    assert ids(told) == expected.ids
    assert "'u4' has 1 parts; expected 2" in run("recommend", day_model, *typed, "--unknown", "average", code=1).stderr
    assert "unknown id 'sunday'" in run("recommend", day_model, *typed, code=1).stderr


def test_more_than_there_are(run_json, odd_model):
    assert len(ids(run_json("recommend", odd_model, "ann", "--keep-seen", "-n", 10**14))[0]) == len(ODD_ITEMS)
    assert len(ids(run_json("similar", odd_model, "tea", "-n", 10**14))[0]) == len(ODD_ITEMS) - 1


def test_similar(run, run_json, odd_model, model):
    told = run_json("similar", odd_model, "tea", "a,b", "-n", 3, "--threads", 1)
    assert ids(told) == model.similar_items(["tea", "a,b"], n=3).ids
    assert [answer["item"] for answer in told["answers"]] == ["tea", "a,b"]
    assert "similar product" in run("similar", odd_model, "tea").stdout
    assert "tea" not in ids(run_json("similar", odd_model, "a,b", "--deny", "tea"))[0]


def test_odd_ids_come_out_whole_and_harmless(run, odd_model):
    text = run("recommend", odd_model, "ann", "[red]", "Ünï", "--keep-seen").stdout
    for one in ("[bold]x[/bold]", "žluť 🐎", 'quo"te', "[red]", "Ünï", r"tab\tid", r"esc\x1b[31mred"):
        assert one in text
    assert len(text.splitlines()) == 1 + 3 * 10


def test_columns_are_aligned_and_not_cut(run, tmp_path):
    long = "x" * 300
    (tmp_path / "events.csv").write_text(f"user,product\n1,{long}\n2,short\n3,{long}\n3,short\n")
    columns = ["--context", "user", "--item", "product", "--model", "popularity"]
    run("fit", tmp_path / "events.csv", *columns, "--out", tmp_path / "m")
    lines = run("recommend", tmp_path / "m", "1", "2", "--keep-seen").stdout.splitlines()
    assert sum(long in line for line in lines) == 2
    assert len({len(line) for line in lines}) == 1


def test_slates(run, run_json, odd_model, model):
    keep = ["--keep-seen", "-n", 4]
    for options, slate in (
        (["--slate", "mmr", "--diversity", "0.9"], sl.slates.MMR(0.9)),
        (["--slate", "dpp", "--pool", "5"], sl.slates.DPP(pool=5)),
        (["--slate", "calibrated", "--strength", "1"], sl.slates.Calibrated(1.0)),
    ):
        told = run_json("recommend", odd_model, "ann", *keep, *options)
        assert ids(told) == model.recommend(["ann"], n=4, exclude_seen=False, slate=slate).ids
        told = run_json("recommend", odd_model, "--history", "tea", *keep, *options)
        assert ids(told) == model.recommend(history=[["tea"]], n=4, exclude_seen=False, slate=slate).ids
    assert "only valid with --slate" in run("recommend", odd_model, "ann", "--diversity", "0.3", code=2).stderr
    wrong = run("recommend", odd_model, "ann", "--slate", "calibrated", "--diversity", "0.3", code=2).stderr
    assert "only valid for mmr and dpp" in " ".join(wrong.split())
    wrong = run("recommend", odd_model, "ann", "--slate", "mmr", "--diversity", "3", code=1).stderr
    assert "diversity is 3.0; expected a number from 0 to 1" in wrong


def test_two_stages(run, run_json, tmp_path):
    pytest.importorskip("lightgbm")
    frame = {
        "user": [u for u in "abcdefgh" for _ in range(6)],
        "product": [k * j % 13 for j in range(1, 9) for k in range(6)],
    }
    split = sl.splits.at_random(sl.Interactions.from_frame(frame, context="user", item="product"), 0.4)
    two = sl.TwoStage(sl.EASE().fit(split.train), sl.LambdaMART(trees=3, min_leaf=1), candidates=5).fit(split)
    two.save(tmp_path / "two")
    expected = two.recommend(["a", "c"], n=3)
    assert ids(run_json("recommend", tmp_path / "two", "a", "c", "-n", 3)) == expected.ids
    assert ids(run_json("recommend", tmp_path / "two", "--history", "1,2")) == two.recommend(history=[[1, 2]]).ids
    assert "TwoStage" in run("inspect", tmp_path / "two", "--check").stdout
    told = run_json("recommend", tmp_path / "two", "a", "--slate", "mmr", "--diversity", "1")
    assert ids(told) == two.recommend(["a"], slate=sl.slates.MMR(1.0)).ids
    assert ids(run_json("similar", tmp_path / "two", "1")) == two.similar_items([1]).ids
