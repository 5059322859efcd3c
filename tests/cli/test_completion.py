import os
import subprocess
import sys
from dataclasses import fields

import pytest
from typer.testing import CliRunner

from cli.helpers import program
from shortlist.cli import app, completion
from shortlist.cli.options import MODELS
from shortlist.cli.slate_options import SlateName
from shortlist.data import datasets
from shortlist.metrics import parse_metric, spec
from shortlist.recommenders.registry import recommender_class
from shortlist.retrieval.slates import SLATES


def asked(line, shell="bash"):
    """The environment in which a shell asks for the last word of a line."""
    words = line.split(" ")
    return {
        **(
            {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
            if shell == "bash"
            else {"_TYPER_COMPLETE_ARGS": line}
        ),
        "_SHORTLIST_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }


def offered(line):
    """What bash is told, by this process."""
    result = CliRunner(env=asked(line)).invoke(app, [], prog_name="shortlist")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("shortlist d", ["demo", "datasets", "doctor"]),
        ("shortlist fit --mod", ["--model"]),
        ("shortlist fit --model ", list(MODELS)),
        ("shortlist fit --model i", [one for one in MODELS if one.startswith("i")]),
        ("shortlist fit --model ease --set ", ["regularization=", "weighting="]),
        ("shortlist fit --set unobserved_w", ["unobserved_weight="]),
        ("shortlist fit --set dim=6", []),
        ("shortlist evaluate --model ials --model ease --set ease.", ["ease.regularization=", "ease.weighting="]),
        ("shortlist evaluate --model ials --model ease --set ials.di", ["ials.dim="]),
        ("shortlist evaluate --metrics nd", ["ndcg@20"]),
        ("shortlist fit --metric nd", ["ndcg@20"]),
        ("shortlist fit --metric gini", []),
        ("shortlist fit --metric ndcg@20,", []),
        ("shortlist evaluate --metrics recall@20,nd", ["recall@20,ndcg@20"]),
        ("shortlist evaluate --split ", ["time", "last", "random", "contexts"]),
        ("shortlist fit onl", ["online-retail"]),
        ("shortlist evaluate --layout amazon-20", ["amazon-2014", "amazon-2018", "amazon-2023"]),
        ("shortlist datasets ", ["online-retail"]),
        ("shortlist inspect onl", ["online-retail"]),
        ("shortlist recommend ", []),
        ("shortlist recommend --slate ", ["mmr", "dpp", "calibrated"]),
        ("shortlist evaluate --config nowhere.toml --split l", ["last"]),
        ("shortlist tune --model e", ["ease"]),
        ("shortlist tune --model ease --set ", ["regularization=", "weighting="]),
        ("shortlist tune --model ease --space re", ["regularization="]),
        ("shortlist tune --metric nd", ["ndcg@20"]),
        ("shortlist tune onl", ["online-retail"]),
        ("shortlist compare --model it", ["itemknn"]),
        ("shortlist compare --split r", ["random"]),
    ],
)
def test_values(line, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert offered(line).split() == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells(shell, tmp_path):
    done = program(env={**os.environ, **asked("shortlist fit --model ea", shell)})
    assert done.stderr == ""
    told = done.stdout
    assert "ease" in told
    assert "popularity" not in told
    # with no shell to detect, Typer takes its name
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    script = program("--show-completion", shell, env=environment).stdout
    assert f"complete_{shell}" in script
    done = program("--install-completion", shell, env=environment)
    assert done.returncode == 0, done.stderr
    (installed,) = [one for one in tmp_path.rglob("*shortlist*") if one.is_file()]
    assert f"complete_{shell}" in installed.read_text()


def test_files_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "online.csv").touch()
    (tmp_path / "sub").mkdir()
    assert offered("shortlist fit onl").split() == []  # the shell offers the file
    assert offered("shortlist fit ").split() == []
    assert offered("shortlist fit online-").split() == ["online-retail"]
    assert offered("shortlist fit sub/").split() == []


def test_nothing_heavy_is_loaded():
    script = (
        "import atexit, sys\n"
        "heavy = {'numpy', 'polars', 'numba', 'scipy', 'shortlist.recommenders', 'shortlist.data'}\n"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules)), file=sys.stderr))\n"
        "from shortlist.cli import main\nmain()"
    )
    for line in ("shortlist evaluate --model ials --set ", "shortlist evaluate --metrics ", "shortlist fit o"):
        environment = {
            **os.environ,
            "_SHORTLIST_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert done.stderr.splitlines() == ["[]"]
        assert done.returncode == 0


def test_names_are_those_of_the_library():
    assert set(completion.SETTINGS) == set(MODELS)
    for name, settings in completion.SETTINGS.items():
        assert set(settings) == {field.name for field in fields(recommender_class(name))}
    assert list(completion.LAYOUTS) == list(datasets.layouts())
    assert list(completion.BUNDLED) == [info.name for info in datasets.available()]
    assert {parse_metric(one).name for one in completion.METRICS} == set(spec._NAMES)
    assert [one.value for one in SlateName] == list(SLATES)
    accurate = {one for one in completion.METRICS if not parse_metric(one).beyond_accuracy}
    assert set(completion.ACCURACY) == accurate
