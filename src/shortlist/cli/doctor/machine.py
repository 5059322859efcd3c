"""What this machine has and what a process may use of it, read from the system and from no package."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def cpus() -> tuple[int, int]:
    """The CPUs of the machine, and those that this process may run on."""
    total = os.cpu_count() or 1
    return total, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total


def cpu_quota(root: Path = _CGROUPS) -> float | None:
    """How many CPUs' worth of time a container's limit allows, or None where there is no limit."""
    quota, _, period = (_text(root / "cpu.max") or "").partition(" ")
    if not period:
        quota, period = _text(root / "cpu/cpu.cfs_quota_us") or "", _text(root / "cpu/cpu.cfs_period_us") or ""
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def memory(root: Path = _CGROUPS) -> tuple[int | None, int | None, int | None]:
    """Bytes of memory: of the machine, free now, and a container's limit; None for what is not known."""
    known = {}
    for line in (_text(Path("/proc/meminfo")) or "").splitlines():
        name, _, amount = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            known[name] = int(amount.split()[0]) * 1024
    total = known.get("MemTotal")
    if total is None and "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _text(root / "memory.max") or _text(root / "memory/memory.limit_in_bytes") or ""
    # version 1 says "no limit" with a number near 2⁶³
    bound = int(limit) if limit.isdigit() and (total is None or int(limit) < total) else None
    return total, known.get("MemAvailable"), bound


def gpus(seconds: float = 20.0) -> list[str]:
    """The NVIDIA GPUs that the driver's own tool lists, with memory and driver; of a Mac, its chip."""
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        query = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        try:
            done = subprocess.run(query, capture_output=True, text=True, timeout=seconds, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return [f"nvidia-smi gives no answer ({type(error).__name__})"]
        if done.returncode == 0:
            return [line.strip() for line in done.stdout.splitlines() if line.strip()]
        return []
    return ["Apple GPU"] if (platform.system(), platform.machine()) == ("Darwin", "arm64") else []


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
