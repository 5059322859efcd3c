import ast
import json
import re
import signal
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
import typer

import shortlist
from cli.helpers import COLUMNS, SMALL, program
from shortlist._wording import Argument, Message, Phrase
from shortlist.cli import wording
from shortlist.cli.app import app
from shortlist.cli.wording import in_words
from shortlist.errors import DataError, ShortlistWarning


def fails(run, *args, code=1):
    """The message of a failing command: on standard error, in one line, with nothing on standard output."""
    result = run(*args, code=code)
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    return last


@pytest.fixture
def fit_args(odd_csv, tmp_path):
    return ["fit", odd_csv, *COLUMNS, *SMALL, "--out", tmp_path / "deep" / "model"]


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path):
    before = set(tmp_path.rglob("*"))
    yield
    made = {one for one in tmp_path.rglob("*") if one.suffix not in (".csv", ".txt")} - before
    assert not made


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--item", "produkt"], "no column 'produkt'"),
        (["--weight", "day"], "--on-bad drop"),
        (["--time", "product"], "is null or not a time"),
        (["--model", "ialss"], "did you mean 'ials'"),
        (["--set", "dims=4"], "did you mean 'dim'"),
        (["--set", "dims=4"], "regularization"),
        (["--set", "seed=many"], "expected an integer"),
        (["--set", "regularization=little"], "expected a number"),
        (["--set", "weighting=odd"], "binary, log, raw"),
        (["--set", "seed"], "NAME=VALUE"),
        (["--set", "dim=8"], "set twice"),
        (["--set", "ease.regularization=1"], "not one of the models"),
        (["--set", "init_scale=-1"], "init_scale"),
        (["--set", "seed=__import__('os').getcwd()"], "expected an integer"),
    ],
)
def test_fit_refuses(run, fit_args, more, words):
    assert words in fails(run, *fit_args, *more)


def test_fit_refuses_files(run, tmp_path):
    def message(path):
        return fails(run, "fit", path, *COLUMNS, "--out", tmp_path / "model")

    empty = tmp_path / "empty.csv"
    empty.touch()
    assert "empty" in message(empty)
    bare = tmp_path / "bare.csv"
    bare.write_text("user,product\n")
    assert "no rows" in message(bare)
    other = tmp_path / "events.txt"
    other.write_text("user,product\n1,2\n")
    assert "--format" in message(other)
    semicolons = tmp_path / "semi.csv"
    semicolons.write_text("user;product\n1;2\n")
    assert "--separator ';'" in message(semicolons)
    assert "no such file" in message(tmp_path / "nowhere.csv")
    assert "no file matches" in message(tmp_path / "*.parquet")
    assert "did you mean 'online-retail'" in message("online-retial")


def test_fit_does_not_touch_what_is_not_a_model(run, odd_csv, tmp_path):
    note = tmp_path / "notes.txt"
    note.write_text("mine")
    args = ["fit", odd_csv, *COLUMNS, *SMALL, "--out"]
    assert "not a Shortlist model" in fails(run, *args, tmp_path)
    assert "not a Shortlist model" in fails(run, *args, note)
    assert "not a Shortlist model" in fails(run, "demo", "--out", tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]
    assert note.read_text() == "mine"


def test_unknown_ids(run, odd_model, int_model):
    assert "unknown context 'nobody'" in fails(run, "recommend", odd_model, "nobody")
    assert "--unknown skip" in fails(run, "recommend", odd_model, "nobody")
    assert "integers" in fails(run, "recommend", int_model, "ann")
    assert "unknown context 999" in fails(run, "recommend", int_model, "999")
    assert "unknown item 'coffee'" in fails(run, "recommend", odd_model, "--history", "tea,coffee")
    assert "unknown item 'coffee'" in fails(run, "similar", odd_model, "coffee")
    assert "cannot be read" in fails(run, "recommend", odd_model, "--history", "@at")


def test_wrong_models(run, odd_csv, odd_model, tmp_path):
    for command in (["recommend", "MODEL", "ann"], ["similar", "MODEL", "tea"]):
        for place in (tmp_path, tmp_path / "nowhere", odd_csv):
            args = [place if one == "MODEL" else one for one in command]
            assert "no model at" in fails(run, *args)
    assert "is empty" in fails(run, "inspect", tmp_path)
    assert "no such file" in fails(run, "inspect", tmp_path / "nowhere")


def test_evaluate_refuses(run, odd_csv):
    args = ["evaluate", odd_csv, *COLUMNS, *SMALL]
    assert "--time" in fails(run, *args)
    timed = [*args, "--time", "when"]
    assert "did you mean 'recall'" in fails(run, *timed, "--metrics", "recal@20")
    assert "has no n" in fails(run, *timed, "--metrics", "recall")
    assert "there are several models" in fails(run, *timed, "--model", "ials", "--model", "ease")
    assert "once" in fails(run, *timed, "--model", "ials", "--model", "IALS")
    assert "is not a valid time" in fails(run, *timed, "--test", "yesterday")
    assert "not a valid time" in fails(run, *timed, "--test", "nan")
    assert "set is empty" in fails(run, *timed, "--test", "2030-01-01")
    assert "--test 1.5; expected a fraction" in fails(run, *timed, "--split", "random", "--test", "1.5")


def test_errors_as_json(run, odd_model):
    result = run("recommend", odd_model, "nobody", "--json", code=1)
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error.keys() == {"type", "message", "code", "field", "hint"}
    assert error["type"] == "UnknownIdError"
    assert error["code"] == "unknown-context"
    assert "--unknown skip" in error["hint"]
    assert error["message"].endswith(error["hint"])


def test_bugs_are_70_and_debug_shows_where(run, odd_model, monkeypatch):
    def broken(path):
        raise RuntimeError("boom\nand more")

    monkeypatch.setattr("shortlist.storage.read_manifest", broken)
    message = fails(run, "inspect", odd_model, code=70)
    assert "RuntimeError: boom" in message
    assert "--debug" in message
    error = json.loads(run("inspect", odd_model, "--json", code=70).stderr)["error"]
    assert error["type"] == "RuntimeError"


def test_debug_shows_the_traceback(odd_model):
    done = program("--debug", "recommend", odd_model, "nobody")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: unknown context")


def test_panics_that_are_no_exceptions(run, odd_model, monkeypatch):
    class PanicError(BaseException):
        pass

    def broken(path):
        raise PanicError("a Rust panic")

    monkeypatch.setattr("shortlist.storage.read_manifest", broken)
    assert "a Rust panic" in fails(run, "inspect", odd_model, code=70)


def test_an_error_after_ctrl_c_is_the_end_that_was_asked_for(run, odd_model, monkeypatch):
    def swallowed(*_):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError("no machine code")

    monkeypatch.setattr("shortlist.storage.read_manifest", swallowed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert run("inspect", odd_model, code=130).stderr == "interrupted\n"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_too_little_memory(run, odd_model, monkeypatch):
    def greedy(path):
        raise MemoryError

    monkeypatch.setattr("shortlist.storage.read_manifest", greedy)
    assert fails(run, "inspect", odd_model) == "error: out of memory"


def test_warnings_are_one_line(run, odd_csv):
    before = warnings.showwarning
    result = run("evaluate", odd_csv, *COLUMNS, *SMALL, "--time", "when", "--split", "last", "--quiet")
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: leave-last-out")
    assert "use --split time" in line
    assert warnings.showwarning is before


def test_other_warnings_are_shown_as_ever(run, odd_model, monkeypatch):
    def odd(path):
        warnings.warn("hm", ShortlistWarning, stacklevel=1)
        warnings.warn("old", FutureWarning, stacklevel=1)
        raise RuntimeError

    monkeypatch.setattr("shortlist.storage.read_manifest", odd)
    with pytest.warns(FutureWarning, match="old"):
        result = run("inspect", odd_model, code=70)
    assert result.stderr.splitlines()[0] == "warning: hm"


@pytest.mark.parametrize(
    ("text", "python", "shell"),
    [
        (Message("pass {unknown}", unknown="skip"), "pass unknown='skip'", "pass --unknown skip"),
        (Message("Then pass {separator}", separator=";"), "Then pass separator=';'", "Then pass --separator ';'"),
        (Message("pass {format}", format=...), "pass format=", "pass --format"),
        (Message("{test}; expected", test=1.5), "test=1.5; expected", "--test 1.5; expected"),
        (Message("{fold_in}; expected", fold_in=float("nan")), "fold_in=nan; expected", "--fold-in nan; expected"),
        (Message("{half_life}", half_life=3), "half_life=3", "half_life=3"),  # not an option
        (Message("use {weighting}", weighting="log"), "use weighting='log'", "use --set weighting=log"),
        (Message("pass {restart}", restart=True), "pass restart=True", "pass --restart"),
        (Message("pass {}", Argument("validation", "split")), "pass validation=split", "pass --validation"),
        (Message("use {}", Phrase("by_time", "splits.by_time")), "use splits.by_time", "use --split time"),
        (Message("{}", Phrase("only-python", "frame.cast")), "frame.cast", "frame.cast"),
    ],
)
def test_advice_is_in_the_words_of_the_command_line(text, python, shell):
    assert str(text) == python
    assert in_words(text) == shell


def test_all_options_in_messages_exist():
    commands = typer.main.get_command(app).commands.values()
    options = {option for command in commands for parameter in command.params for option in parameter.opts}
    named = {f"--{name.replace('_', '-')}" for name in wording._OPTIONS | wording._BARE_OPTIONS}
    named |= {option for words in wording._PHRASES.values() for option in re.findall("--[a-z-]+", words)}
    assert named <= options


def test_every_phrase_of_the_library_has_words_for_the_command_line():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(shortlist.__file__).parent.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    phrases = [node.args[0] for node in nodes if getattr(node.func, "id", None) == "Phrase"]
    names = {name.value for name in phrases if isinstance(name, ast.Constant)}
    assert len(names) > 4
    assert names <= wording._PHRASES.keys()


def test_a_package_that_cannot_be_loaded_is_no_bug_of_ours(run, odd_model, monkeypatch):
    def broken(path):
        raise error

    monkeypatch.setattr("shortlist.storage.read_manifest", broken)
    error = ImportError("DLL load failed", name="polars._plr")
    assert "shortlist doctor" in fails(run, "inspect", odd_model)
    error = ImportError("cannot import name 'x'", name="shortlist.storage")
    assert "bug in Shortlist" in fails(run, "inspect", odd_model, code=70)


@pytest.mark.parametrize(
    "told",
    [
        "h/time=2020/p.csv: no column 'x'",
        "time=2020/p.csv: no column 'x'",
        "time=2020 cannot be read: it is empty",
        "format=csv; more.csv: no column 'x'",
        "no such file or folder: a folder with time=2020/p.csv",
        "unknown item 'weight=7'",
        'unknown item "it\'s with weight=7"',
        "unknown context ('pass on_bad=1', 3)",
        "(first: line 3 'pass on_bad=drop,with time= 1')",
        "no column 'time='; columns found: 'weight=', 'use test=3'",
        "--set weight=7: IALS has no setting 'weight'",
    ],
)
def test_what_the_user_wrote_stays_as_it_is(told):
    assert in_words(told) == told
    error = DataError(told, hint=Message("pass {on_bad} to drop them", on_bad="drop"))
    assert str(error) == f"{told}; pass on_bad='drop' to drop them"
    assert in_words(error.args[0]) == f"{told}; pass --on-bad drop to drop them"
    assert in_words(Message("{} and {!r}", told, told)) == f"{told} and {told!r}"


def test_paths_and_lines_that_look_like_settings(run, tmp_path):
    folder = tmp_path / "time=2020"
    folder.mkdir()
    path = folder / "p.csv"
    path.write_text("user,product\npass on_bad=3,x\n,weight=7\n")
    message = fails(run, "fit", path, *COLUMNS, "--out", tmp_path / "m")
    assert str(path) in message
    assert "',weight=7'" in message
    assert "pass --on-bad drop" in message
    path.unlink()
    folder.rmdir()


def test_a_place_that_cannot_be_written_to_is_found_out_before_fitting(run, odd_csv, tmp_path):
    note = tmp_path / "notes.txt"
    note.write_text("mine")
    for place in (note / "x", note / "x" / "y", tmp_path / ("n" * 300), tmp_path / "new" / ("n" * 300)):
        result = run("fit", odd_csv, *COLUMNS, *SMALL, "--out", place, code=1)
        (line,) = result.stderr.splitlines()  # no note that anything was read
        assert line.startswith(f"error: cannot save to '{place}': ")
    dangling = tmp_path / "link.txt"
    dangling.symlink_to(tmp_path / "nowhere")
    assert "choose another directory" in fails(run, "fit", odd_csv, *COLUMNS, *SMALL, "--out", dangling)
    assert not (tmp_path / "new").exists()
