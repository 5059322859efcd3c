"""Facts about this machine, read from the operating system without extra packages."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def cpus() -> tuple[int, int]:
    """Return the number of CPUs of the machine, and the number available to this process."""
    total = os.cpu_count() or 1
    return total, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total


def cpu_quota(root: Path = _CGROUPS) -> float | None:
    """Return the CPU limit of a container in CPUs, or None if there is no limit."""
    quota, _, period = (_text(root / "cpu.max") or "").partition(" ")
    if not period:
        quota, period = _text(root / "cpu/cpu.cfs_quota_us") or "", _text(root / "cpu/cpu.cfs_period_us") or ""
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def memory(root: Path = _CGROUPS) -> tuple[int | None, int | None, int | None]:
    """Return the total memory, the free memory and the container limit in bytes. Unknown values are None."""
    known = {}
    for line in (_text(Path("/proc/meminfo")) or "").splitlines():
        name, _, amount = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            known[name] = int(amount.split()[0]) * 1024
    total = known.get("MemTotal")
    if total is None and "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _text(root / "memory.max") or _text(root / "memory/memory.limit_in_bytes") or ""
    # cgroups version 1 uses a number near 2⁶³ for "no limit"
    bound = int(limit) if limit.isdigit() and (total is None or int(limit) < total) else None
    return total, known.get("MemAvailable"), bound


def gpus(seconds: float = 20.0) -> list[str]:
    """Return the NVIDIA GPUs listed by nvidia-smi, with memory and driver version, or the GPU of a Mac."""
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        query = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        try:
            done = subprocess.run(query, capture_output=True, text=True, timeout=seconds, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return [f"nvidia-smi does not respond ({type(error).__name__})"]
        if done.returncode == 0:
            return [line.strip() for line in done.stdout.splitlines() if line.strip()]
        return []
    return ["Apple GPU"] if (platform.system(), platform.machine()) == ("Darwin", "arm64") else []


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
