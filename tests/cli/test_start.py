import os
import signal
import subprocess
import sys
import time

import pytest
import typer

import shortlist
from cli.helpers import COLUMNS, program, words
from shortlist.cli import app
from shortlist.cli.options import MODELS
from shortlist.recommenders.registry import REGISTRY

COMMANDS = ["demo", "fit", "evaluate", "tune", "compare", "recommend", "similar", "batch", "inspect"]
COMMANDS += ["convert", "datasets", "doctor", "warmup"]


@pytest.mark.parametrize("args", [["--help"], ["fit", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(args):
    heavy = ["numpy", "polars", "numba", "scipy", "torch", "safetensors", "shortlist.recommenders", "shortlist.data"]
    script = (
        "import sys\nfrom shortlist.cli import main\n"
        f"sys.argv[1:] = {args!r}\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        f"print(sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(run, command):
    text = run(command, "--help").stdout
    assert "For example:" in text
    assert f"shortlist {command}" in text.split("For example:")[1]


def test_all_commands_are_listed(run):
    text = run("--help").stdout
    assert all(f" {command} " in text for command in COMMANDS)
    assert list(typer.main.get_command(app).commands) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_the_common_options(run, command):
    text = run(command, "-h").stdout
    for option in ("--json", "--quiet", "--config"):
        assert option in text


def test_models_in_help_are_the_registered_ones():
    assert set(MODELS) == {name.lower() for name in REGISTRY}


def test_version(run):
    assert run("--version").stdout == f"shortlist {shortlist.__version__}\n"


def test_module_runs_as_a_program():
    done = program("--version")
    assert (done.returncode, done.stdout) == (0, f"shortlist {shortlist.__version__}\n")


def test_wrong_usage_is_2(run, odd_csv, odd_model, tmp_path):
    run("nonsense", code=2)
    assert "Did you mean 'evaluate'" in run("evalute", code=2).stderr
    assert "--context" in run("fit", odd_csv, "--contxt", "user", code=2).stderr
    run("fit", odd_csv, *COLUMNS, code=2)  # no --out
    run("recommend", odd_model, code=2)
    run("recommend", odd_model, "ann", "--history", "tea", code=2)
    run("recommend", odd_model, "ann", "-n", "0", code=2)
    run("datasets", "--out", tmp_path / "x.csv", code=2)
    assert "user, product" in run("fit", odd_csv, "--out", tmp_path / "m", code=2).output
    run("fit", odd_csv, *COLUMNS, "--separator", "ab", "--out", tmp_path / "m", code=2)
    run("evaluate", odd_csv, *COLUMNS, "--fold-in", "0.5", code=2)
    run("evaluate", odd_csv, *COLUMNS, "--split", "contexts", "--repeats", "keep", code=2)
    run("fit", "online-retail", *COLUMNS, "--out", tmp_path / "m", code=2)


def test_closed_pipe_is_silent(odd_model):
    read, write = os.pipe()
    os.close(read)
    for more in ([], ["--json"]):
        command = [sys.executable, "-m", "shortlist", "recommend", str(odd_model), "ann", *more]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    os.close(write)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("args", [["inspect"], ["inspect", "--json"], ["--help"]])
def test_a_full_disk_is_no_bug(odd_model, args):
    command = [sys.executable, "-m", "shortlist", *args, *([str(odd_model)] if "inspect" in args else [])]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "cannot write to standard output: " in line
    assert ("--json" in args) == line.startswith("{")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_closed_output_is_no_bug(odd_model):
    def shell(streams, place):
        command = f'"$0" -m shortlist inspect "$1" {streams}'
        call = ["sh", "-c", command, sys.executable, str(place)]
        return subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)

    done = shell(">&-", odd_model)
    assert (done.returncode, done.stderr) == (1, "error: standard output is closed\n")
    assert shell("2>&-", odd_model).returncode == 0
    assert shell("2>&-", odd_model / "nowhere").returncode == 1


def test_an_id_that_looks_like_an_option(run, odd_model):
    for command, one in (("recommend", "-5"), ("similar", "-dash")):
        told = words(run(command, odd_model, one, code=2).stderr)
        assert f"shortlist {command} MODEL -- {one[:2]}" in told
    assert " -- " not in words(run("fit", odd_model, "-5", code=2).stderr)
    assert " -- " not in words(run("recommend", odd_model, "--thraeds", "2", code=2).stderr)
    assert "-dash" in run("similar", odd_model, "--", "-dash").stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_ctrl_c_is_130(tmp_path):
    pipe = tmp_path / "events.csv"
    os.mkfifo(pipe)
    # A shell's background jobs ignore the signal, and so would the command.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{heed}; from shortlist.cli import main; main()"
    command = [sys.executable, "-c", script, "fit", str(pipe), *COLUMNS, "--out", str(tmp_path / "model")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(600):  # until it has opened the pipe, which it then waits at
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    os.close(writer)  # polars has its own handler, after which the system resumes the read
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out == ""
    assert [one.name for one in tmp_path.iterdir()] == ["events.csv"]
