"""Numbers with their nouns."""

import pytest

import shortlist as sl


@pytest.fixture(scope="module")
def model():
    frame = {"user": ["ann", "bob", "bob"], "item": ["01004", "01004", "02"]}
    return sl.IALS(dim=2, epochs=1).fit(sl.Interactions.from_frame(frame, context="user", item="item"))


def advised(call, kind, *words):
    """What an error says; all of these words are in it."""
    with pytest.raises(kind) as told:
        call()
    for word in words:
        assert word in str(told.value), str(told.value)
    return str(told.value)


def test_one_of_a_kind_is_no_plural(model):
    assert repr(model.recommend(["ann"])).startswith("Recommendations for 1 query\n")
    assert repr(model.recommend(["ann", "bob"])).startswith("Recommendations for 2 queries\n")
    twelve = model.recommend(history=[[]] * 11)
    assert repr(twelve).endswith("… 1 more query")
    advised(lambda: model.score(["ann"], []), sl.SettingError, "0 lists of items for 1 query;")
    advised(lambda: model.recommend(["ann"], deny=[["02"], []]), sl.SettingError, "2 lists for 1 query;")


def test_a_history_that_is_no_list_of_lists(model):
    for wrong in ("01004", {"01004": 2.0}):
        for ask in (model.recommend, model.fold_in):
            told = advised(lambda ask=ask, wrong=wrong: ask(history=wrong), sl.SettingError, "one history per query")
            right = eval(told.rpartition("write history=")[2])  # noqa: S307  # what the message says
            assert len(ask(history=right)) == 1
    advised(lambda: model.recommend(history=["01004"]), sl.SettingError, "write ['01004'] for a single id")
    number = sl.Popularity().fit(sl.Interactions.from_frame({"u": [1], "i": [5]}, context="u", item="i"))
    assert "write history=[[5]]" in advised(lambda: number.recommend(history=5), sl.SettingError)


def test_advice_is_about_the_method_that_was_called(model, tmp_path):
    both = ("history=[[…]]", "unknown='skip'")
    advised(lambda: model.recommend(["zoe"]), sl.UnknownIdError, *both)
    assert model.recommend(["zoe"], unknown="skip").skipped == ["zoe"]
    assert model.recommend(history=[["02"]], n=1).ids == [["01004"]]
    advised(lambda: model.index("exact").search(["zoe"]), sl.UnknownIdError, *both)
    for ask in (model.score, model.rank):
        told = advised(lambda ask=ask: ask(["zoe"], [["02"]]), sl.UnknownIdError, "history=[[…]]")
        assert "skip" not in told
        assert len(ask(None, [["02"]], history=[["01004"]])) == 1
        told = advised(lambda ask=ask: ask(["ann"], [["zzz"]]), sl.UnknownIdError, "drop unknown ids")
        assert "history" not in told
        assert "skip" not in told
    for ask in (lambda: model.similar_items(["zzz"]), lambda: model.recommend(history=[["zzz"]])):
        told = advised(ask, sl.UnknownIdError, "pass unknown='skip'")
        assert "recommend" not in told
        assert "fold_in" not in told
        assert "history=" not in told
    assert model.similar_items(["zzz"], unknown="skip").skipped == ["zzz"]
    told = advised(lambda: sl.write_lists(model, tmp_path / "l.csv", contexts=["zoe"]), sl.UnknownIdError, "skip")
    assert "history" not in told


def test_contexts_of_several_parts_are_told_of_histories_too():
    frame = {"user": ["ann", "bob"], "day": ["mon", "tue"], "item": ["x", "y"]}
    data = sl.Interactions.from_frame(frame, context=["user", "day"], item="item")
    tensor = sl.PARAFAC(dim=2, epochs=1).fit(data)
    advised(lambda: tensor.recommend([("zoe", "mon")]), sl.UnknownIdError, "history=[[…]]", "'skip'", "'average'")
    told = advised(lambda: tensor.score([("zoe", "mon")], [["x"]]), sl.UnknownIdError, "history=[[…]]", "'average'")
    assert "skip" not in told


def test_an_empty_frame_is_said_to_be_empty():
    for frame in ({"u": [], "i": []}, {"u": ["a"][:0], "i": [1][:0]}):
        advised(
            lambda frame=frame: sl.Interactions.from_frame(frame, context="u", item="i"), sl.DataError, "frame is empty"
        )
    advised(
        lambda: sl.Interactions.from_frame({"u": [None], "i": [1]}, context="u", item="i"),
        sl.DataError,
        "every id is null",
    )
