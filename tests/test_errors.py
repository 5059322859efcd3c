"""The attributes of errors, and the rules for raising them."""

import ast
import copy
import pickle
from pathlib import Path

import pytest

import shortlist
from shortlist import errors
from shortlist._wording import Message, Phrase, render
from shortlist.errors import CODES, DataError, ShortlistError, ShortlistWarning

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ShortlistError)]
SOURCES = {
    path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(Path(shortlist.__file__).parent.rglob("*.py"))
}


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


def test_a_prefix_keeps_the_rest():
    error = DataError("no", code="bad-rows", field="x", hint=Message("pass {test}", test=1)).prefixed("a.csv: ")
    assert str(error) == "a.csv: no; pass test=1"
    assert (error.code, error.field, error.hint) == ("bad-rows", "x", "pass test=1")
    assert render(error.args[0], shout) == "a.csv: no; pass TEST=1"


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
