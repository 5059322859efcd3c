import os
import subprocess
import sys
from dataclasses import fields

import pytest

from cli.helpers import program
from shortlist.cli import completing
from shortlist.cli.options import MODELS
from shortlist.cli.slates import Named
from shortlist.data import datasets
from shortlist.metrics import parse_metric, spec
from shortlist.recommenders.registry import recommender_class
from shortlist.retrieval.slates import SLATES


def offered(line, shell="bash", **kwargs):
    """What a shell is told for the last word of a line."""
    words = line.split(" ")
    asked = (
        {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)} if shell == "bash" else {"_TYPER_COMPLETE_ARGS": line}
    )
    environment = {
        **os.environ,
        **asked,
        "_SHORTLIST_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = program(env=environment, **kwargs)
    assert done.stderr == ""
    return done.stdout


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
def test_values(line, found, tmp_path):
    assert offered(line, cwd=tmp_path).split() == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells(shell, tmp_path):
    told = offered("shortlist fit --model ea", shell)
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


def test_files_come_first(tmp_path):
    (tmp_path / "online.csv").touch()
    (tmp_path / "sub").mkdir()
    assert offered("shortlist fit onl", cwd=tmp_path).split() == []  # the shell offers the file
    assert offered("shortlist fit ", cwd=tmp_path).split() == []
    assert offered("shortlist fit online-", cwd=tmp_path).split() == ["online-retail"]
    assert offered("shortlist fit sub/", cwd=tmp_path).split() == []


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
    assert set(completing.SETTINGS) == set(MODELS)
    for name, settings in completing.SETTINGS.items():
        assert set(settings) == {field.name for field in fields(recommender_class(name))}
    assert list(completing.LAYOUTS) == list(datasets.layouts())
    assert list(completing.BUNDLED) == [info.name for info in datasets.available()]
    assert {parse_metric(one).name for one in completing.METRICS} == set(spec._NAMES)
    assert [one.value for one in Named] == list(SLATES)
    accurate = {one for one in completing.METRICS if not parse_metric(one).beyond_accuracy}
    assert set(completing.ACCURACY) == accurate
