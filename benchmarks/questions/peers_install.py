"""Install each library of `peers.py` into an environment of its own and measure how much larger that becomes."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.questions.peers_libraries import LIBRARIES, TORCH, Library
from benchmarks.questions.peers_results import keep

REPOSITORY = Path(__file__).parents[2]
TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence", "wheel")  # not counted


def install(names: Sequence[str], venvs: Path) -> None:
    """Make the environments of these libraries anew, and keep what was measured."""
    for name in names:
        print(f"installing {name} ...", flush=True)
        section = installed(LIBRARIES[name], venvs)
        keep(name, "install", section)
        print(f"  {summary(section)}", flush=True)


def installed(library: Library, venvs: Path) -> dict[str, Any]:
    """Install one library; return its sizes, its versions and whether it runs."""
    venv = fresh(venvs / library.name)
    empty = megabytes(venv)
    section: dict[str, Any] = {"python": platform.python_version(), "requirement": library.requirement}
    if library.refused:
        section["refused"] = {"requirement": library.refused, "error": pip(venv, [library.refused])}
    if library.torch:
        require(pip(venv, [TORCH]), TORCH)
        section["torch_mb"] = growth(venv, empty)
    target = str(REPOSITORY) if library.requirement == "." else library.requirement
    pins = [f"torch=={versions(venv)['torch']}"] if library.torch else []
    require(pip(venv, [target, *pins]), library.requirement)
    section |= {"mb": growth(venv, empty), "versions": versions(venv), "error": check(venv, library.check)}
    if section["error"] and library.repair:
        require(pip(venv, [library.repair]), library.repair)
        section["repair"] = {"requirement": library.repair, "error": check(venv, library.check)}
    if library.pins:
        venv = fresh(venvs / library.pinned)
        require(pip(venv, [TORCH, *library.pins]), TORCH)
        require(pip(venv, [library.requirement, *library.pins, *pins]), library.requirement)
        section["pinned"] = {
            "pins": list(library.pins),
            "mb": growth(venv, empty),
            "versions": versions(venv),
            "error": check(venv, library.check),
        }
    return section


def summary(section: dict[str, Any]) -> str:
    parts = [f"{section['mb']:,.0f} MB", f"{len(section['versions'])} distributions"]
    if "torch_mb" in section:
        parts.append(f"of these PyTorch and what it needs {section['torch_mb']:,.0f} MB")
    if section["error"]:
        parts.append(f"does not run: {section['error']}")
    if "refused" in section:
        parts.append(f"pip install {section['refused']['requirement']}: {section['refused']['error'] or 'works'}")
    return ", ".join(parts)


def fresh(venv: Path) -> Path:
    """Make an empty environment; one that is there is removed first."""
    if venv.exists():
        if not (venv / "pyvenv.cfg").exists():
            sys.exit(f"{venv} is not a virtual environment; remove it or pass another --venvs")
        shutil.rmtree(venv)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    return venv


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def pip(venv: Path, requirements: Sequence[str]) -> str | None:
    """Install; return the error's last line, None where it worked."""
    command = [str(python_of(venv)), "-m", "pip", "install", "--quiet", *requirements]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return last_error(done.stderr) if done.returncode else None


def check(venv: Path, code: str) -> str | None:
    """Run a line of Python; return the error's last line, None where it worked."""
    done = subprocess.run([str(python_of(venv)), "-c", code], check=False, capture_output=True, text=True, cwd=venv)
    return last_error(done.stderr) if done.returncode else None


def last_error(text: str) -> str:
    """The last line that names an exception, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return (named or lines or ["unknown"])[-1]


def require(error: str | None, requirement: str) -> None:
    if error:
        sys.exit(f"pip cannot install {requirement}: {error}")


def megabytes(venv: Path) -> float:
    """Size of all files in millions of bytes, without pip and setuptools."""
    total = 0
    for file in venv.rglob("*"):
        parts = file.relative_to(venv).parts
        if file.is_symlink() or not file.is_file() or any(part.startswith(TOOLS) for part in parts):
            continue
        total += file.stat().st_size
    return round(total / 1e6, 1)


def growth(venv: Path, empty: float) -> float:
    return round(megabytes(venv) - empty, 1)


def versions(venv: Path) -> dict[str, str]:
    """All distributions in the environment, without pip and setuptools."""
    command = [str(python_of(venv)), "-m", "pip", "list", "--format", "json"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {row["name"].lower(): row["version"] for row in rows if not row["name"].lower().startswith(TOOLS)}
