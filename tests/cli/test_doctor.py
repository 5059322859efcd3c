import json
import os
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli.helpers import program
from shortlist.cli.doctor import checks, command, machine, packages
from shortlist.cli.doctor.probes import ProbeError, probe
from shortlist.cli.failures import Session
from shortlist.cli.output import Output

ROOT = Path(__file__).parents[2]


def with_packages(folder, **sources):
    """An environment in which these packages stand before the installed ones."""
    for name, source in sources.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(source)
    paths = [str(folder), *([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def examined(*args, **kwargs):
    return program("doctor", *args, timeout=600, **kwargs)  # the first time much is compiled


def by_name(findings):
    return {one["name"]: one for one in findings}


def test_all_is_well(tmp_path):
    done = examined("--json", "--quiet", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr, told["ok"]) == (0, "", True)
    assert {"numpy", "scipy", "numba", "polars", "shortlist", "python"} <= set(by_name(told["packages"]))
    assert by_name(told["packages"])["numpy"]["found"] == metadata.version("numpy")
    assert [one["found"] for one in told["self-test"]] == ["OK"] * 5
    assert "GPU" in by_name(told["machine"])
    assert not list(tmp_path.iterdir())


def test_text(capsys):
    say = Output(SimpleNamespace(obj=Session()), as_json=False, quiet=False)
    report = checks.Report()
    report.add("Packages", checks.CheckResult("numpy", "9.9"))
    command._show(report, say)
    assert capsys.readouterr().out == "Packages\n  numpy  9.9\n\nEverything works.\n"
    report.add("Packages", checks.CheckResult("polars", "odd", "note", "look at it"))
    command._show(report, say)
    assert capsys.readouterr().out.endswith(
        "  polars  (!) odd\n\nEverything works. Suggestions:\n  polars: look at it\n"
    )
    report.add("Self-test", checks.CheckResult("fit", "no", "failed", "fix it"))
    command._show(report, say)
    assert "1 problem to fix:\n  fit: fix it\n  polars: look at it\n" in capsys.readouterr().out


def test_a_broken_package_is_a_line(tmp_path):
    environment = with_packages(tmp_path, polars="raise ImportError('its library is not for this CPU')")
    done = examined(env=environment)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "compiling a kernel" in done.stderr
    assert "its library is not for this CPU" in done.stdout
    assert "pip install --force-reinstall --no-cache-dir 'polars" in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_crash_is_a_line_too(tmp_path):
    environment = with_packages(tmp_path, numba="import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    done = examined("--json", env=environment)
    told = json.loads(done.stdout)
    found = by_name(told["packages"])
    assert (done.returncode, told["ok"]) == (1, False)
    assert "signal 4" in found["numba"]["found"]
    assert found["polars"]["state"] == "ok"  # imported after it
    assert told["compiler"][0]["state"] == "failed"
    assert told["self-test"][-1]["state"] == "failed"


def test_wrong_threads(monkeypatch):
    monkeypatch.setenv("SHORTLIST_THREADS", "many")
    report = checks.Report()
    assert checks.check_threads(report) is None
    (one,) = report.with_state("failed")
    assert "SHORTLIST_THREADS is 'many'" in one.found
    assert "unset" in one.advice
    monkeypatch.setenv("SHORTLIST_THREADS", "3")
    report = checks.Report()
    assert checks.check_threads(report) == 3
    assert not report.with_state("failed")


def compiler():
    report = checks.Report()
    checks.check_compiler(report)
    return {one.name: one for one in report.chapters["Compiler"]}


def test_a_compiler_that_is_switched_off(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    found = compiler()["Numba"]
    assert found.state == "note"
    assert "NUMBA_DISABLE_JIT" in found.advice


def test_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SHORTLIST_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    first, second = compiler(), compiler()
    assert str(tmp_path / "cache") in first["cache"].found
    assert list((tmp_path / "cache").rglob("*.nbi"))
    assert "compiled a kernel" in first["Numba"].found
    assert "from the cache" in second["Numba"].found
    assert first["kernels"].found.startswith("1 of ")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHORTLIST_CACHE_DIR", str(tmp_path / "file"))
    third = compiler()["cache"]
    assert third.state == "note"
    assert f"SHORTLIST_CACHE_DIR is {tmp_path / 'file'}, which is not writable" in third.found


@pytest.mark.parametrize(
    ("told", "state", "words"),
    [
        ({"writable": False, "from_cache": False, "kept": 0}, "note", "no writable folder"),
        ({"writable": False, "from_cache": False, "kept": 5}, "note", "read-only"),
        ({"writable": False, "from_cache": True, "kept": 5}, "ok", "read-only"),
        ({"writable": True, "from_cache": True, "kept": 5}, "ok", "there"),
        ({"writable": True, "from_cache": True, "kept": 5, "refused": "X is y"}, "note", "X is y, which is not"),
    ],
)
def test_a_cache_that_cannot_be_written(monkeypatch, told, state, words):
    answer = {
        "compiles": True,
        "seconds": 0.1,
        "layer": "default",
        "cache": "there",
        "refused": None,
        "kernels": 9,
        **told,
    }
    monkeypatch.setattr(checks, "probe", lambda name: iter([answer]))
    findings = compiler()
    assert findings["cache"].state == state
    assert words in findings["cache"].found
    assert ("SHORTLIST_CACHE_DIR" in findings["cache"].advice) == (state == "note")
    assert ("shortlist warmup" in findings["kernels"].found) == (told["kept"] == 0)


def test_missing_and_old_packages(monkeypatch):
    versions = {"numpy": "1.2", "polars": "99"}

    def version(name):
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(checks, "_import_errors", lambda names: {})
    base, extras = packages.requirements()
    report = checks.Report()
    checks.check_packages(report, base)
    checks.check_extras(report, extras)
    found = {one.name: one for one in report.chapters["Packages"]}
    assert found["numpy"].found.startswith("version 1.2; requires >=")
    assert found["scipy"].found == "not installed"
    assert found["scipy"].advice.startswith("pip install 'scipy>=")
    assert found["polars"].state == "ok"
    assert all("pip install 'shortlist[" in one.found for one in report.chapters["Extras"])


def test_not_installed(monkeypatch):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    assert packages.requirements() == ([], {})


def test_no_extra_is_empty_and_all_has_those_for_users():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert [name for name, packages_ in extras.items() if not packages_] == []
    (everything,) = extras.pop("all")
    assert set(extras) == set(packages.PURPOSES)
    for_users = {name for name in extras if name != "test" and not name.startswith("bench")}
    assert set(everything.removeprefix("shortlist[").removesuffix("]").split(",")) == for_users


def test_every_extra_has_a_purpose():
    assert set(metadata.metadata("shortlist").get_all("Provides-Extra")) - {"all"} == set(packages.PURPOSES)


@pytest.mark.parametrize(
    ("text", "name", "wanted", "extra"),
    [
        ("numpy>=1.26", "numpy", ">=1.26", None),
        ("numpy (>=1.26,<3) ; python_version < '4'", "numpy", ">=1.26,<3", None),
        ("pytest>=8; extra == 'test'", "pytest", ">=8", "test"),
        ('ray[tune] >= 2 ; (python_version > "3") and extra == "ray"', "ray", ">= 2", "ray"),
    ],
)
def test_requirements_are_read(monkeypatch, text, name, wanted, extra):
    monkeypatch.setattr(metadata, "requires", lambda _: [text, "shortlist[torch]; extra == 'all'"])
    base, extras = packages.requirements()
    (one,) = base if extra is None else extras[extra]
    assert (one.name, one.wanted) == (name, wanted)
    assert "all" not in extras


@pytest.mark.parametrize(
    ("files", "quota", "limit"),
    [
        ({}, None, None),
        ({"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        ({"cpu.max": "150000 100000", "memory.max": "1048576"}, 1.5, 2**20),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5, None),
        ({"memory/memory.limit_in_bytes": str(2**63 - 4096)}, None, None),
    ],
)
def test_limits_of_containers(tmp_path, files, quota, limit):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert machine.cpu_quota(tmp_path) == quota
    assert machine.memory(tmp_path)[2] == limit


def test_more_threads_than_the_container_may_run(monkeypatch):
    monkeypatch.setattr(machine, "cpu_quota", lambda: 1.5)
    report = checks.Report()
    checks.check_processor(report, 8)
    assert "SHORTLIST_THREADS=2" in report.with_state("note")[0].advice
    report = checks.Report()
    checks.check_processor(report, 1)
    assert not report.with_state("note")


def gpu_tool(folder, monkeypatch, script):
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!{sys.executable}\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.skipif(os.name == "nt", reason="a script as a program")
def test_gpus(tmp_path, monkeypatch):
    gpu_tool(tmp_path, monkeypatch, "print('Great GPU, 80000 MiB, 555.1')")
    assert machine.gpus() == ["Great GPU, 80000 MiB, 555.1"]
    gpu_tool(tmp_path, monkeypatch, "import sys; sys.exit('no driver')")
    assert machine.gpus() == []
    gpu_tool(tmp_path, monkeypatch, "import time; time.sleep(60)")
    assert "TimeoutExpired" in machine.gpus(seconds=0.5)[0]


def torch():
    report = checks.Report()
    checks.check_gpu(report)
    return report.chapters["Machine"][-1]


def test_torch_is_looked_at_from_outside(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # other tests may have loaded it
    source = """
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda k: "Great GPU")
class backends: pass
__version__ = "9.9"
print("noise")
"""
    monkeypatch.setenv("PYTHONPATH", with_packages(tmp_path, torch=source)["PYTHONPATH"])
    monkeypatch.setattr(checks, "find_spec", lambda name: True)
    assert torch().found == "9.9, finds Great GPU"
    (tmp_path / "torch" / "__init__.py").write_text(source.replace("True", "False"))
    monkeypatch.setattr(machine, "gpus", lambda: ["Great GPU"])
    assert torch().found == "9.9, finds no GPU"
    assert "build of torch" in torch().advice
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('no libcudart')")
    assert "no libcudart" in torch().found
    assert torch().state == "note"  # Shortlist works without it
    assert "torch" not in sys.modules


def test_a_probe_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", with_packages(tmp_path, slow="import time; time.sleep(60)")["PYTHONPATH"])
    with pytest.raises(ProbeError, match="timed out after 2 s"):
        list(probe("imports", "slow", seconds=2))
