import json
import os

import pytest

import shortlist as sl
from cli.helpers import program, words
from shortlist.cli.config import read_config


@pytest.fixture
def config(tmp_path):
    """Write a file and give its path."""

    def write(text):
        path = tmp_path / "shop.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def shop(config, odd_csv, tmp_path):
    return config(f"""
        context = "user"
        item = "product"
        threads = 1

        [fit]
        data = {json.dumps(str(odd_csv))}
        out = {json.dumps(str(tmp_path / "m"))}
        on-bad = "drop"
        quiet = true

        [fit.set]
        dim = 3
        epochs = 2

        [evaluate]
        data = {json.dumps(str(odd_csv))}
        time = "when"
        model = ["ials", "popularity"]
        metrics = ["recall@2", "mrr"]
        repeats = "keep"
        test = 2024-01-10

        [evaluate.set.ials]
        dim = 2
        epochs = 2

        [evaluate.set.ease]
        regularization = 10
    """)


def refused(run, path, *args):
    """The message about a file, in one line; wrong usage is 2."""
    result = run(*(args or ["fit"]), "--config", path, code=2)
    assert result.stdout == ""
    told = words(result.stderr)
    assert str(path) in told
    return told


def test_a_file_is_enough(run, shop, tmp_path):
    assert run("fit", "--config", shop).stderr == ""  # quiet = true
    model = sl.load(tmp_path / "m")
    assert (model.settings()["dim"], model.settings()["epochs"]) == (3, 2)
    assert "ann" in model.contexts_.ids()


def test_what_is_typed_wins(run_json, shop, int_csv, tmp_path):
    told = run_json("fit", int_csv, "--config", shop, "--out", tmp_path / "other", "--set", "dim=4")
    assert told["path"] == str(tmp_path / "other")
    assert (told["settings"]["dim"], told["settings"]["epochs"]) == (4, 2)
    assert sl.load(tmp_path / "other").contexts_.ids() == list(range(101, 109))


def test_lists_dates_and_settings_by_model(run_json, shop):
    told = run_json("evaluate", "--config", shop)
    assert [one["model"] for one in told["models"]] == ["IALS", "Popularity"]
    assert told["models"][0]["settings"]["dim"] == 2
    assert list(told["models"][0]["metrics"]) == ["recall@2", "mrr"]
    assert "2024-01-10" in told["split"]["protocol"]
    (one,) = run_json("evaluate", "--config", shop, "--model", "ease")["models"]
    assert (one["model"], one["settings"]["regularization"]) == ("EASE", 10.0)


def test_arguments_that_repeat(run, run_json, config, odd_model):
    name = json.dumps(str(odd_model))
    path = config(f'[recommend]\nmodel = {name}\ncontexts = ["ann", "u6"]\nn = 2\n[similar]\nmodel = {name}\n')
    told = run_json("recommend", "--config", path)
    assert [one["context"] for one in told["answers"]] == ["ann", "u6"]
    assert [len(one["items"]) for one in told["answers"]] == [2, 2]
    assert len(run_json("recommend", odd_model, "u7", "--config", path)["answers"]) == 1
    assert "ITEM" in run("similar", "--config", path, code=2).stderr
    assert run_json("similar", odd_model, "tea", "--config", path)["answers"]


def test_a_key_for_all_is_an_option_and_not_an_argument_of_that_name(run_json, run, config, odd_model, odd_csv):
    path = config('model = "popularity"\ncontext = "user"\nitem = "product"\ntime = "when"\n')
    assert run_json("recommend", odd_model, "ann", "--config", path)["answers"]
    assert "MODEL" in run("recommend", "--config", path, code=2).stderr
    told = run_json("evaluate", odd_csv, "--config", path, "--repeats", "keep")
    assert [one["model"] for one in told["models"]] == ["Popularity"]


def test_a_table_for_all_commands_and_a_list_of_settings(run_json, config, odd_csv, tmp_path):
    columns = ["--context", "user", "--item", "product", "--out", tmp_path / "m"]
    for text in (
        "[set]\ndim = 2\nepochs = 1",
        'set = ["dim=2", "epochs=1"]',
        'set = "dim=2"',
        "[fit.set.IALS]\ndim = 2",
    ):
        assert run_json("fit", odd_csv, "--config", config(text), *columns)["settings"]["dim"] == 2


def test_an_empty_file_changes_nothing(run, config):
    assert "DATA" in run("fit", "--config", config(""), code=2).stderr
    assert "DATA" in run("fit", "--config", config("\ufeff# nothing\r\n"), code=2).stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("contxt = 'user'", "'contxt'; did you mean 'context'"),
        ("[fitt]", "'fitt'; did you mean 'fit'"),
        ("[fit]\nmetrics = 1", "[fit] has no key 'metrics'"),
        ("[fit]\nitems = 'x'", "did you mean 'item'"),
        ("[evaluate]\nmertics = 'x'", "[evaluate] has no key 'mertics'; did you mean 'metrics'"),
        ("[fit]\nconfig = 'x'", "no key 'config'"),
        ("[fit]\nhelp = true", "no key 'help'"),
        ("fit = 3", "'fit' is 3 (a number); expected a table"),
        ("[fit]\nquiet = 1", "quiet is 1 (a number); expected true or false"),
        ("[fit]\nthreads = 'two'", "threads is 'two'"),
        ("[fit]\nthreads = 0", "threads is 0"),
        ("[fit]\nthreads = 1.5", "threads is 1.5"),
        ("[fit]\naggregate = 'summ'", "aggregate is 'summ'"),
        ("[fit]\naggregate = 'summ'", "latest"),
        ("item = {a = 1}", "item is a table; expected text or a number"),
        ("item = ['a', 'b']", "item is a list; expected text or a number"),
        ("item = true", "item is True (true or false); expected text"),
        ("context = ['a', ['b']]", "context is a list"),
        ("[fit]\nset = [1]", "set is 1 (a number)"),
        ("[fit.set]\ndim = [1]", "[fit.set] dim is a list"),
        ("[fit.set.ials.more]\ndim = 1", "ials.more is a table"),
        ("context = 'user'\n\nitem = product", "line 3"),
        ("item = 1\nitem = 2", "line 2"),
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("[fit]\nthreads = " + "9" * 5000, "has an integer of more than 128 bits"),
        ("[fit]\nthreads = 0x" + "f" * 5000, "has an integer of more than 128 bits"),
        ("[recommend]\nallow = [1, [0b1" + "0" * 40_000 + "]]", "has an integer of more than 128 bits"),
        ("#" * (1 << 20) + "\n", "more than 1,048,576 bytes"),
    ],
)
def test_refused(run, config, text, told):
    assert told in refused(run, config(text))


def test_wrong_settings_name_the_file(run, config, odd_csv, tmp_path):
    args = ["fit", odd_csv, "--context", "user", "--item", "product", "--out", tmp_path / "m", "--config"]
    for text, told in (
        ("[fit.set]\ndims = 3", "did you mean 'dim'"),
        ("[fit.set]\ndim = 'many'", "expected an integer"),
        ("[fit.set]\nseed = \"__import__('os').getcwd()\"", "expected an integer"),
        ("[fit.set.ialss]\ndim = 3", "did you mean 'ials'"),
    ):
        path = config(text)
        message = run(*args, path, code=1).stderr.splitlines()[-1]
        assert message.startswith(f"error: {path}: ")
        assert told in message


def test_files_that_are_none(run, tmp_path):
    assert "directory" in refused(run, tmp_path)
    assert "No such file" in refused(run, tmp_path / "nowhere.toml")
    (tmp_path / "latin.toml").write_bytes(b"item = '\xe9'")
    assert "UTF-8" in refused(run, tmp_path / "latin.toml")


def test_no_permission(run, config, monkeypatch):
    path = config("")

    def locked(*args):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(f"{read_config.__module__}.open", locked, raising=False)
    assert "Permission denied" in refused(run, path)


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="needs /dev/fd")
def test_a_pipe_will_do(odd_csv, tmp_path):
    read, write = os.pipe()
    os.write(write, f"[inspect]\npath = {json.dumps(str(odd_csv))}\njson = true\n".encode())
    os.close(write)
    done = program("inspect", "--config", f"/dev/fd/{read}", pass_fds=[read])
    os.close(read)
    assert json.loads(done.stdout)["rows"] == 96


def test_errors_are_json_where_json_is_asked_for(run, config):
    for args in (["fit", "--config", config("a = ")], ["fit", "--thraeds", "2"], ["nonsense"], ["--nonsense"]):
        result = run(*args, "--json", code=2)
        assert result.stdout == ""
        assert json.loads(result.stderr)["error"]["message"]
    assert run("recommend", "nowhere", "--", "--json", code=1).stderr.startswith("error: ")  # an id, not an option


def test_lists_of_ids_are_taken_as_they_stand(run_json, run, config, odd_model):
    path = config('[recommend]\nallow = ["a,b", "@at", "tea", "-dash"]\nkeep-seen = true\n[similar]\ndeny = ["a,b"]\n')
    (one,) = run_json("recommend", odd_model, "ann", "--config", path)["answers"]
    assert {item["id"] for item in one["items"]} == {"a,b", "@at", "tea", "-dash"}
    (one,) = run_json("recommend", odd_model, "ann", "--config", path, "--allow", "tea")["answers"]
    assert [item["id"] for item in one["items"]] == ["tea"]
    (one,) = run_json("similar", odd_model, "tea", "--config", path)["answers"]
    assert "a,b" not in {item["id"] for item in one["items"]}
    assert len(one["items"]) == 8
    (one,) = run_json("recommend", odd_model, "ann", "--config", config("allow = []"))["answers"]
    assert one["items"] == []
    (one,) = run_json("recommend", odd_model, "ann", "--config", config("[recommend]\nallow = 'tea'"), "--keep-seen")[
        "answers"
    ]
    assert [item["id"] for item in one["items"]] == ["tea"]
    assert "deny is a list" in refused(run, config("[recommend]\ndeny = [['a']]"), "recommend", odd_model, "ann")


def test_a_setting_stands_in_a_file_once(run, config, odd_csv, tmp_path):
    args = ["fit", odd_csv, "--context", "user", "--item", "product", "--out", tmp_path / "m", "--config"]
    for text in ('set = ["dim=3", "dim=4"]', 'set = ["dim=3", "ials.dim=4"]', "[set]\ndim = 3\n[set.ials]\ndim = 4"):
        path = config(text)
        message = run(*args, path, code=1).stderr
        assert str(path) in message
        assert "dim is set twice" in message


def test_typed_contexts_win_over_a_history_in_the_file(run, run_json, config, odd_model):
    path = config('[recommend]\nhistory = ["tea"]\n')
    assert run_json("recommend", odd_model, "--config", path)["answers"][0]["history"] == ["tea"]
    assert run_json("recommend", odd_model, "ann", "--config", path)["answers"][0]["context"] == "ann"
    path = config('[recommend]\ncontexts = ["ann"]\n')
    assert run_json("recommend", odd_model, "--history", "tea", "--config", path)["answers"][0]["history"] == ["tea"]
    path = config('[recommend]\ncontexts = ["ann"]\nhistory = ["tea"]\n')
    assert "either contexts or --history" in run("recommend", odd_model, "--config", path, code=2).stderr
