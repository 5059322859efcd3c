"""What `shortlist doctor` looks at."""

import os
import platform
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from shortlist._version import __version__
from shortlist.cli.doctor import machine
from shortlist.cli.doctor.packages import PURPOSES, Requirement
from shortlist.cli.doctor.probes import ProbeError, probe

State = Literal["ok", "note", "failed"]
_GIB = 2**30
_REINSTALL = "pip install --force-reinstall --no-cache-dir"


@dataclass(frozen=True)
class CheckResult:
    """A thing, what was found, and, where it is not as it should be, the way out."""

    name: str
    found: str
    state: State = "ok"
    advice: str = ""


@dataclass
class Report:
    """Findings by chapter, in the order in which they are made."""

    chapters: dict[str, list[CheckResult]] = field(default_factory=dict)

    def add(self, chapter: str, *findings: CheckResult) -> None:
        """Write findings down."""
        self.chapters.setdefault(chapter, []).extend(findings)

    def those(self, state: State) -> list[CheckResult]:
        """The findings in a state."""
        return [one for findings in self.chapters.values() for one in findings if one.state == state]


def check_packages(report: Report, base: list[Requirement]) -> None:
    """What is installed, and whether it can be imported."""
    report.add(
        "Packages",
        CheckResult("shortlist", __version__),
        CheckResult("python", f"{platform.python_version()} ({platform.python_implementation()}), {sys.executable}"),
        CheckResult("platform", platform.platform()),
    )
    if not base:
        advice = "install it with pip, so that what it needs is known and there"
        report.add("Packages", CheckResult("requirements", "unknown: Shortlist is not installed", "note", advice))
    reasons = _import_errors([one.name for one in base if one.version is not None])
    for one in base:
        trouble = one.trouble or (f"{one.version}, but {reasons[one.name]}" if one.name in reasons else "")
        if trouble:
            how = "pip install" if one.version is None or one.trouble else _REINSTALL
            advice = f"{how} '{one.name}{one.wanted}'"
            report.add("Packages", CheckResult(one.name, trouble, "failed", advice))
        else:
            report.add("Packages", CheckResult(one.name, str(one.version)))


def _import_errors(names: list[str]) -> dict[str, str]:
    """Which packages cannot be imported, and why. After a crash the rest gets another process."""
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
    """Shortlist's threads and BLAS; returns how many there are by default."""
    setting = os.environ.get("SHORTLIST_THREADS")
    try:
        first, *libraries = probe("blas")
    except ProbeError as error:
        report.add("Threads", CheckResult("BLAS", str(error), "failed", "mend the packages above first"))
        return None
    threads: int | None = first["threads"]
    if first.get("error"):
        advice = "set it to a whole number, or unset it"
        report.add("Threads", CheckResult("SHORTLIST_THREADS", first["error"], "failed", advice))
    else:
        source = "all CPUs it may use" if setting is None or not setting.strip() else "as SHORTLIST_THREADS says"
        report.add("Threads", CheckResult("by default", f"{threads} ({source})"))
    for one in libraries:
        words = [one["library"], one["version"], one["layer"] and f"over {one['layer']}", f"{one['threads']} threads"]
        report.add("Threads", CheckResult("library", f"{' '.join(map(str, filter(None, words)))}, {one['path']}"))
    if not libraries:
        report.add(
            "Threads", CheckResult("library", "none that threadpoolctl knows: its threads cannot be limited", "note")
        )
    return threads


def check_processor(report: Report, threads: int | None) -> None:
    """The CPUs, and whether there are more threads than a container may run."""
    total, allowed = machine.cpus()
    quota = machine.cpu_quota()
    report.add("Machine", CheckResult("CPUs", f"{total}, this process may run on {allowed}"))
    if quota is None:
        report.add("Machine", CheckResult("CPU limit", "none"))
    elif threads is not None and threads > max(1.0, quota):
        whole = max(1, round(quota))
        advice = f"set SHORTLIST_THREADS={whole}: more threads than the container may run take turns"
        report.add("Machine", CheckResult("CPU limit", f"{quota:g} CPUs for {threads} threads", "note", advice))
    else:
        report.add("Machine", CheckResult("CPU limit", f"{quota:g} CPUs"))


def check_memory(report: Report) -> None:
    """Memory, and where temporary files go."""
    total, free, limit = machine.memory()
    words = [
        f"{bytes_ / _GIB:.1f} GiB {what}"
        for bytes_, what in ((total, "in all"), (free, "free"), (limit, "allowed by the container"))
        if bytes_ is not None
    ]
    report.add("Machine", CheckResult("memory", ", ".join(words) or "unknown"))
    folder = tempfile.gettempdir()
    report.add("Machine", CheckResult("temporary files", folder))


def check_gpu(report: Report) -> None:
    """GPUs by the driver, and what torch sees of them where it is installed."""
    found = machine.gpus()
    report.add("Machine", CheckResult("GPU", "; ".join(found) or "none"))
    if find_spec("torch") is None:
        return
    try:
        (told,) = probe("torch")
    except (ProbeError, ValueError) as error:
        report.add("Machine", CheckResult("torch", f"cannot be used: {error}", "note", f"{_REINSTALL} torch"))
        return
    devices = ", ".join(told["devices"]) or "no GPU"
    finding = CheckResult("torch", f"{told['version']}, sees {devices}")
    if found and not told["devices"]:
        advice = "install a build of torch for this GPU and driver; see pytorch.org"
        finding = CheckResult("torch", finding.found, "note", advice)
    report.add("Machine", finding)


def check_compiler(report: Report) -> None:
    """Whether Numba compiles, and keeps what it has compiled."""
    try:
        (told,) = probe("numba")
    except (ProbeError, ValueError) as error:
        report.add(
            "Compiler", CheckResult("Numba", f"a kernel does not compile: {error}", "failed", f"{_REINSTALL} numba")
        )
        return
    if not told["compiles"]:
        advice = "unset NUMBA_DISABLE_JIT: everything is some hundred times slower with it"
        report.add("Compiler", CheckResult("Numba", "switched off", "note", advice))
        return
    how = "taken from the cache" if told["from_cache"] else "compiled"
    report.add("Compiler", CheckResult("Numba", f"a kernel was {how} in {told['seconds']:.2f} s"))
    report.add("Compiler", CheckResult("threading layer", f"{told['layer']}; not used: Shortlist has its own threads"))
    advice = "set SHORTLIST_CACHE_DIR to a folder that can be written; without it every process compiles again"
    if not told["writable"]:
        found = "none of the folders can be written" if not told["kept"] else f"{told['cache']}, read only"
        state: State = "ok" if told["from_cache"] else "note"
        report.add("Compiler", CheckResult("cache", found, state, advice if state != "ok" else ""))
    elif told["refused"]:
        found = f"{told['cache']}; {told['refused']}, which cannot be written"
        report.add("Compiler", CheckResult("cache", found, "note", advice))
    else:
        report.add("Compiler", CheckResult("cache", told["cache"]))
    few = "" if told["kept"] else "; shortlist warmup compiles them ahead of time"
    report.add("Compiler", CheckResult("kernels", f"{told['kept']} of {told['kernels']} are compiled{few}"))


def check_extras(report: Report, extras: dict[str, list[Requirement]]) -> None:
    """Which extras are there, what they are for, and how to get the others."""
    for name, needed in extras.items():
        missing = [one for one in needed if one.trouble]
        purpose = f" ({PURPOSES[name]})" if name in PURPOSES else ""
        if missing:
            found = f"not there{purpose}: pip install 'shortlist[{name}]'"
        else:
            found = f"there{purpose}: {', '.join(f'{one.name} {one.version}' for one in needed)}"
        report.add("Extras", CheckResult(name, found))


def check_work(report: Report) -> None:
    """A small job from end to end, in a folder of its own."""
    steps: list[str] = []
    trouble = ""
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        try:
            for line in probe("work", folder):
                steps.append(line["step"])  # noqa: PERF401  (those before an error count)
        except ProbeError as error:
            trouble = str(error)
    report.add("Self-test", *(CheckResult(step, "OK") for step in steps[:-1]))
    if trouble:
        advice = "mend what has failed above; if nothing has, report this with the output of shortlist doctor --json"
        report.add("Self-test", CheckResult(steps[-1] if steps else "start", trouble, "failed", advice))
