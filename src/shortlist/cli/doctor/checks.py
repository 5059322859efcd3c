"""The checks of `shortlist doctor`."""

import os
import platform
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from shortlist._phrases import count
from shortlist._version import __version__
from shortlist.cli.doctor import machine
from shortlist.cli.doctor.packages import PURPOSES, Requirement
from shortlist.cli.doctor.probes import ProbeError, probe

State = Literal["ok", "note", "failed"]
_GIB = 2**30
_REINSTALL = "pip install --force-reinstall --no-cache-dir"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: its name, what was found, and advice if something is wrong."""

    name: str
    found: str
    state: State = "ok"
    advice: str = ""


@dataclass
class Report:
    """Check results by chapter, in order."""

    chapters: dict[str, list[CheckResult]] = field(default_factory=dict)

    def add(self, chapter: str, *results: CheckResult) -> None:
        """Add results to a chapter."""
        self.chapters.setdefault(chapter, []).extend(results)

    def with_state(self, state: State) -> list[CheckResult]:
        """Return the results with this state."""
        return [result for results in self.chapters.values() for result in results if result.state == state]


def check_packages(report: Report, base: list[Requirement]) -> None:
    """Check that the required packages are installed and can be imported."""
    report.add(
        "Packages",
        CheckResult("shortlist", __version__),
        CheckResult("python", f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}"),
        CheckResult("platform", platform.platform()),
    )
    if not base:
        advice = "install it with pip, which also installs its requirements"
        report.add("Packages", CheckResult("requirements", "unknown: Shortlist is not installed", "note", advice))
    reasons = _import_errors([package.name for package in base if package.version is not None])
    for package in base:
        trouble = package.trouble or (
            f"{package.version}, but {reasons[package.name]}" if package.name in reasons else ""
        )
        if trouble:
            command = "pip install" if package.version is None or package.trouble else _REINSTALL
            advice = f"{command} '{package.name}{package.wanted}'"
            report.add("Packages", CheckResult(package.name, trouble, "failed", advice))
        else:
            report.add("Packages", CheckResult(package.name, str(package.version)))


def _import_errors(names: list[str]) -> dict[str, str]:
    """Return why packages cannot be imported, by name. After a crash, a new process tries the rest."""
    reasons: dict[str, str] = {}
    left = list(names)
    while left:
        last = left[0]
        try:
            for line in probe("imports", *left):
                last = line["name"]
                if line.get("error"):
                    reasons[last] = f"importing it fails: {line['error']}"
            return reasons
        except ProbeError as error:
            reasons[last] = f"importing it fails: {error}"
            left = left[left.index(last) + 1 :]
    return reasons


def check_threads(report: Report) -> int | None:
    """Check the threads of Shortlist and BLAS. Return the default number of threads."""
    setting = os.environ.get("SHORTLIST_THREADS")
    try:
        first, *libraries = probe("blas")
    except ProbeError as error:
        report.add("Threads", CheckResult("BLAS", str(error), "failed", "fix the packages above first"))
        return None
    threads: int | None = first["threads"]
    if first.get("error"):
        advice = "set it to an integer ≥ 1, or unset it"
        report.add("Threads", CheckResult("SHORTLIST_THREADS", first["error"], "failed", advice))
    else:
        source = "all available CPUs" if setting is None or not setting.strip() else "set by SHORTLIST_THREADS"
        report.add("Threads", CheckResult("default threads", f"{threads} ({source})"))
    for library in libraries:
        name = " ".join(str(library[key]) for key in ("library", "version") if library[key])
        layer = f" ({library['layer']})" if library["layer"] else ""
        report.add(
            "Threads",
            CheckResult("library", f"{name}{layer}, {count(library['threads'], 'thread')}, {library['path']}"),
        )
    if not libraries:
        report.add("Threads", CheckResult("library", "unknown to threadpoolctl; its threads cannot be limited", "note"))
    return threads


def check_processor(report: Report, threads: int | None) -> None:
    """Check the CPUs, and whether there are more threads than the CPU limit of a container allows."""
    total, allowed = machine.cpus()
    quota = machine.cpu_quota()
    report.add("Machine", CheckResult("CPUs", f"{total}, {allowed} available to this process"))
    if quota is None:
        report.add("Machine", CheckResult("CPU limit", "none"))
    elif threads is not None and threads > max(1.0, quota):
        whole = max(1, round(quota))
        advice = f"set SHORTLIST_THREADS={whole}; more threads than the CPU limit only slow each other down"
        report.add("Machine", CheckResult("CPU limit", f"{quota:g} CPUs for {threads} threads", "note", advice))
    else:
        report.add("Machine", CheckResult("CPU limit", f"{quota:g} CPUs"))


def check_memory(report: Report) -> None:
    """Report the memory and the folder for temporary files."""
    total, free, limit = machine.memory()
    words = [
        f"{size / _GIB:.1f} GiB {what}"
        for size, what in ((total, "total"), (free, "free"), (limit, "allowed by the container"))
        if size is not None
    ]
    report.add("Machine", CheckResult("memory", ", ".join(words) or "unknown"))
    folder = tempfile.gettempdir()
    report.add("Machine", CheckResult("temporary files", folder))


def check_gpu(report: Report) -> None:
    """Report the GPUs of the driver, and those that torch finds if it is installed."""
    gpus = machine.gpus()
    report.add("Machine", CheckResult("GPU", "; ".join(gpus) or "none"))
    if find_spec("torch") is None:
        return
    try:
        (answer,) = probe("torch")
    except (ProbeError, ValueError) as error:
        report.add("Machine", CheckResult("torch", f"cannot be used: {error}", "note", f"{_REINSTALL} torch"))
        return
    devices = ", ".join(answer["devices"]) or "no GPU"
    result = CheckResult("torch", f"{answer['version']}, finds {devices}")
    if gpus and not answer["devices"]:
        advice = "install a build of torch for this GPU and driver; see pytorch.org"
        result = CheckResult("torch", result.found, "note", advice)
    report.add("Machine", result)


def check_compiler(report: Report) -> None:
    """Check that Numba compiles kernels and caches them."""
    try:
        (answer,) = probe("numba")
    except (ProbeError, ValueError) as error:
        report.add(
            "Compiler", CheckResult("Numba", f"cannot compile a kernel: {error}", "failed", f"{_REINSTALL} numba")
        )
        return
    if not answer["compiles"]:
        advice = "unset NUMBA_DISABLE_JIT; without compilation, everything is about 100 times slower"
        report.add("Compiler", CheckResult("Numba", "compilation is disabled", "note", advice))
        return
    action = "loaded a kernel from the cache" if answer["from_cache"] else "compiled a kernel"
    report.add("Compiler", CheckResult("Numba", f"{action} in {answer['seconds']:.2f} s"))
    report.add(
        "Compiler",
        CheckResult("threading layer", f"{answer['layer']}; not used, because Shortlist has its own threads"),
    )
    advice = "set SHORTLIST_CACHE_DIR to a writable folder; otherwise every process compiles the kernels again"
    if not answer["writable"]:
        location = "no writable folder" if not answer["kept"] else f"{answer['cache']}, read-only"
        state: State = "ok" if answer["from_cache"] else "note"
        report.add("Compiler", CheckResult("cache", location, state, advice if state != "ok" else ""))
    elif answer["refused"]:
        location = f"{answer['cache']}; {answer['refused']}, which is not writable"
        report.add("Compiler", CheckResult("cache", location, "note", advice))
    else:
        report.add("Compiler", CheckResult("cache", answer["cache"]))
    hint = "" if answer["kept"] else "; run shortlist warmup to compile them ahead of time"
    report.add("Compiler", CheckResult("kernels", f"{answer['kept']} of {answer['kernels']} compiled{hint}"))


def check_extras(report: Report, extras: dict[str, list[Requirement]]) -> None:
    """Report the extras: what they are for, and how to install missing ones."""
    for name, needed in extras.items():
        missing = [package for package in needed if package.trouble]
        purpose = f" ({PURPOSES[name]})" if name in PURPOSES else ""
        if missing:
            status = f"not installed{purpose}: pip install 'shortlist[{name}]'"
        else:
            status = f"installed{purpose}: {', '.join(f'{package.name} {package.version}' for package in needed)}"
        report.add("Extras", CheckResult(name, status))


def check_work(report: Report) -> None:
    """Run a small job from reading to loading, in a temporary folder."""
    steps: list[str] = []
    trouble = ""
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        try:
            for line in probe("work", folder):
                steps.append(line["step"])  # noqa: PERF401  (keep the steps before an error)
        except ProbeError as error:
            trouble = str(error)
    report.add("Self-test", *(CheckResult(step, "OK") for step in steps[:-1]))
    if trouble:
        advice = "fix the problems above; if there are none, report this with the output of shortlist doctor --json"
        report.add("Self-test", CheckResult(steps[-1] if steps else "start", trouble, "failed", advice))
