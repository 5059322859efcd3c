"""The attributes of errors, and the rules for raising them."""

import ast
import copy
import pickle
from pathlib import Path

import pytest

import shortlist as sl
from shortlist import errors
from shortlist._wording import Message, Phrase, render
from shortlist.errors import CODES, DataError, ShortlistError, ShortlistWarning
from shortlist.reranking.candidate_features import as_features

EVENTS = sl.Interactions.from_frame(
    {"user": ["ann", "ann", "bob", "bob"] * 3, "item": ["tea", "jam", "tea", "rye"] * 3}, context="user", item="item"
)
CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ShortlistError)]
SOURCES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(Path(sl.__file__).parent.rglob("*.py"))}


def calls(*names):
    """Return all calls of functions with these names in the package."""
    for path, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) in names:
                yield path, node


def shout(part):
    return str(part).upper()


# --- texts -----------------------------------------------------------------------------------------------------------


def test_a_text_is_a_string_that_knows_its_arguments():
    text = Message("{!r} is bad; pass {on_bad}, or {} ({time})", "x", Phrase("p", "stop"), on_bad="drop", time=...)
    assert text == "'x' is bad; pass on_bad='drop', or stop (time=)"
    assert render(text, shout) == "'x' is bad; pass ON_BAD='DROP', or STOP (TIME=)"
    assert render("pass on_bad='drop'", shout) == "pass on_bad='drop'"


@pytest.mark.parametrize("data", ["on_bad='drop'", "{on_bad}", "{}", "pass unknown='skip'"])
def test_what_a_user_wrote_is_never_an_argument(data):
    text = Message("{}: {!r}; pass {unknown}", data, data, unknown="skip")
    assert text == f"{data}: {data!r}; pass unknown='skip'"
    assert render(text, lambda part: "…") == f"{data}: {data!r}; pass …"
    assert render(Message("{}", DataError(data, hint=text)), lambda part: "…") == f"{data}; {data}: {data!r}; pass …"


def test_texts_nest_and_are_cut():
    inner = Message("pass {test:.8}", test="a" * 100)
    assert inner == "pass test='aaaaaaa"
    assert render(Message("{}, or {}", inner, inner), lambda part: part.name) == "pass test, or pass test"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda text: pickle.loads(pickle.dumps(text))])
def test_texts_survive_copies(again):
    text = Message("{}: pass {on_bad}, or {}", "{x}", Phrase("p", "stop"), on_bad="drop")
    assert again(text) == text
    assert again(text).parts == text.parts


def test_templates_are_plain_strings():
    """A formatted string as a template would read braces in a user's data as arguments."""
    templates = [(path, call.args[0]) for path, call in calls("Message")]
    assert len(templates) > 20
    assert [path for path, template in templates if isinstance(template, ast.JoinedStr)] == []


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_survive_copies(kind, again):
    hint = Message("pass {on_bad}", on_bad="drop")
    error = again(kind("'x' is null", code="bad-rows", field="x", hint=hint))
    assert type(error) is kind
    assert str(error) == "'x' is null; pass on_bad='drop'"
    assert (error.code, error.field, error.hint, error.problem) == ("bad-rows", "x", hint, "'x' is null")
    assert render(error.args[0], shout) == "'x' is null; pass ON_BAD='DROP'"
    bare = again(kind("it is wrong"))
    assert str(bare) == "it is wrong"
    assert (bare.code, bare.field, bare.hint) == (kind.code, None, None)


def test_every_class_has_its_own_code():
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes) == 6
    assert set(codes) <= CODES.keys()


def test_a_hint_that_is_a_sentence_follows_a_full_stop():
    assert str(DataError("it is null", hint="Fix it")) == "it is null. Fix it"
    assert str(DataError("is it null?", hint="Fix it")) == "is it null? Fix it"


def test_a_prefix_keeps_the_rest():
    error = DataError("no", code="bad-rows", field="x", hint=Message("pass {test}", test=1)).prefixed("a.csv: ")
    assert str(error) == "a.csv: no; pass test=1"
    assert (error.code, error.field, error.hint) == ("bad-rows", "x", "pass test=1")
    assert render(error.args[0], shout) == "a.csv: no; pass TEST=1"


def test_a_prefix_can_replace_the_code_of_the_class():
    assert DataError("no").prefixed("a.csv: ", code="bad-rows").code == "bad-rows"
    assert DataError("no", code="empty-data").prefixed("a.csv: ", code="bad-rows").code == "empty-data"


@pytest.mark.parametrize("again", [copy.copy, lambda warning: pickle.loads(pickle.dumps(warning))])
def test_warnings_have_hints(again):
    warning = again(ShortlistWarning("it leaks", hint="use another split"))
    assert str(warning) == "it leaks; use another split"
    assert warning.hint == "use another split"


def test_codes_are_a_closed_list():
    used = {kind.code for kind in CLASSES}
    for path, call in calls(*(kind.__name__ for kind in CLASSES), "NoTableError", "kind", "_unreadable"):
        for keyword in call.keywords:
            if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                assert keyword.value.value in CODES, f"{path}:{call.lineno}"
                used.add(keyword.value.value)
    used |= {"unknown-context", "unknown-item"}  # chosen by `Vocabulary.encode`
    assert used == CODES.keys()


def test_the_guide_lists_the_codes():
    lines = (Path(__file__).parents[1] / "docs" / "guide.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| code | meaning |") + 2
    table = lines[start : lines.index("", start)]
    assert table == [f"| `{code}` | {meaning} |" for code, meaning in CODES.items()]


# --- common mistakes -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return sl.Popularity().fit(EVENTS)


def from_frame(frame, **more):
    return sl.Interactions.from_frame(frame, **{"context": "user", "item": "item"} | more)


def fit_twice_indexed():
    model = sl.IALS(dim=2, epochs=1).fit(EVENTS, progress=False)
    index = model.index(kind="exact")
    model.fit(EVENTS, progress=False)
    index.search(["ann"], 1)


def live_users():
    model = sl.IALS(dim=2, epochs=1).fit(EVENTS, progress=False)
    return sl.UserStates(model, {"ann": ["tea"]})


MISTAKES = [
    (lambda model, path: from_frame({"user": [1], "product": [1]}), "missing-column", "item"),
    (lambda model, path: from_frame({"user": [1, None], "item": [1, 1]}), "bad-rows", "user"),
    (lambda model, path: from_frame({"user": [1], "item": [1], "w": [-1.0]}, weight="w"), "bad-rows", "w"),
    (lambda model, path: from_frame({"user": [1.5], "item": [1]}), "column-type", "user"),
    (lambda model, path: from_frame({"user": [], "item": []}), "empty-data", None),
    (lambda model, path: from_frame({"user": [1], "item": [1]}, on_bad="skip"), "invalid-setting", "on_bad"),
    (lambda model, path: sl.Interactions.read(path / "no.csv", context="a", item="b"), "no-such-file", None),
    (lambda model, path: sl.splits.by_time(EVENTS), "no-times", "time"),
    (lambda model, path: sl.splits.at_random(EVENTS, test=1.5), "invalid-setting", "test"),
    (lambda model, path: sl.datasets.load("online"), "unknown-dataset", "name"),
    (lambda model, path: sl.IALS(dim=0).fit(EVENTS), "invalid-setting", "dim"),
    (lambda model, path: sl.IALS(dimm=8), "unknown-setting", "dimm"),
    (lambda model, path: sl.IALS().fit(EVENTS, patience=9), "no-effect", "patience"),
    (lambda model, path: sl.Popularity().recommend(["ann"]), "not-fitted", None),
    (lambda model, path: model.recommend(["eve"]), "unknown-context", "contexts"),
    (lambda model, path: model.recommend(history=[["egg"]]), "unknown-item", "history"),
    (lambda model, path: model.recommend(["ann"], n=0), "invalid-setting", "n"),
    (
        lambda model, path: sl.evaluate(model, sl.splits.at_random(EVENTS, repeats="keep"), "recal@5"),
        "unknown-metric",
        "metrics",
    ),
    (lambda model, path: fit_twice_indexed(), "stale-index", "index"),
    (lambda model, path: sl.load(path), "model-missing", "path"),
    (lambda model, path: model.save(path), "target-exists", "path"),
    (lambda model, path: sl.tuning.tune("ialss", EVENTS), "unknown-model", "model"),
    (lambda model, path: setattr(sl.IALS(), "dimm", 8), "unknown-setting", "dimm"),
    (lambda model, path: setattr(model, "weighting", "log"), "invalid-setting", "weighting"),
    (lambda model, path: model.recommend("ann"), "invalid-setting", "contexts"),
    (lambda model, path: model.recommend(7.5), "invalid-setting", "contexts"),
    (lambda model, path: model.recommend(["ann"], history=[["tea"]]), "invalid-setting", "contexts"),
    (lambda model, path: model.recommend(history=["tea"]), "invalid-setting", "history"),
    (lambda model, path: model.recommend(["ann"], deny=[["tea"], "jam"]), "invalid-setting", "deny"),
    (lambda model, path: model.recommend(["ann"], allow=[1.5]), "unknown-item", "allow"),
    (lambda model, path: model.score(["ann"], items=[["tea"], ["jam"]]), "invalid-setting", "items"),
    (lambda model, path: model.score(["ann"], items=[["egg"]]), "unknown-item", "items"),
    (lambda model, path: sl.write_lists(model, path / "a.csv", allow=[["tea"]]), "invalid-setting", "allow"),
    (lambda model, path: sl.UserState(model), "invalid-setting", "model"),
    (lambda model, path: live_users().extend({"ann": "tea"}), "invalid-setting", "events"),
    (lambda model, path: live_users().extend({"ann": ["egg"]}), "unknown-item", "events"),
    (lambda model, path: live_users().recommend(["bob"]), "unknown-id", "users"),
    (lambda model, path: sl.compare(3, 4), "invalid-setting", "results"),
    (lambda model, path: sl.evaluate(model, EVENTS), "invalid-setting", "split"),
]


@pytest.mark.parametrize(("mistake", "code", "field"), MISTAKES, ids=range(len(MISTAKES)))
def test_common_mistakes(model, tmp_path, mistake, code, field):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ShortlistError) as caught:
        mistake(model, tmp_path)
    assert (caught.value.code, caught.value.field) == (code, field)
    if caught.value.hint:
        assert str(caught.value).endswith(caught.value.hint)


def test_features_of_a_second_stage_keep_code_and_hint():
    with pytest.raises(DataError) as caught:
        as_features("item_features", {"item": ["tea", "tea"], "price": [1, 2]}, EVENTS.items)
    assert str(caught.value).startswith("item_features: ")
    assert caught.value.code == "bad-rows"
    assert caught.value.hint
    assert str(caught.value).count(caught.value.hint) == 1


def test_what_a_user_wrote_stays_in_errors():
    odd = "x; pass on_bad='drop' {on_bad}"
    with pytest.raises(DataError) as caught:
        from_frame({"user": [1, None], odd: [1, 2]}, item=odd, on_bad="raise")
    assert render(caught.value.args[0], lambda part: "…").endswith("Fix the data, or pass … to drop those rows")
    with pytest.raises(DataError) as caught:
        from_frame({odd: [1]})
    assert repr(odd) in render(caught.value.args[0], lambda part: "…")
