"""What `shortlist doctor` tries out, each in a process of its own: a package that crashes takes nothing else with it.

A probe prints what it found as lines of JSON, each with a mark in front, since packages print too. It is run as
`python -c "from shortlist.cli.doctor.probes import main; main()" NAME [ARGUMENT …]`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_MARK = "shortlist-probe "
_START = "from shortlist.cli.doctor.probes import main; main()"
_SECONDS = 300.0  # a first job compiles much, and a machine may be slow


class ProbeError(Exception):
    """A probe ended before its work was done."""


def probe(name: str, *arguments: str, seconds: float = _SECONDS) -> Iterator[dict[str, Any]]:
    """Run a probe and give what it found, line by line; ProbeError, after the last line, says why there are no more."""
    command = [sys.executable, "-P", "-c", _START, name, *arguments]  # -P: not what lies about in the current folder
    home = str(Path(__file__).parents[3])  # where this very package is, installed or not
    paths = os.pathsep.join(one for one in (os.environ.get("PYTHONPATH"), home) if one)
    reason = ""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )
        out, err = done.stdout, done.stderr
        if done.returncode < 0:
            reason = f"the process was ended by signal {-done.returncode}"
        elif done.returncode:
            reason = (err.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired as error:
        out, reason = error.stdout or b"", f"no answer within {seconds:g} s"
    except OSError as error:
        out, reason = b"", f"no process could be started: {error.strerror or error}"
    for line in out.decode(errors="replace").splitlines():
        if line.startswith(_MARK):
            yield json.loads(line.removeprefix(_MARK))
    if reason:
        raise ProbeError(reason)


def main() -> None:
    """Be the probe that the first argument names."""
    probes: dict[str, Callable[..., None]]
    probes = {"imports": _imports, "blas": _blas, "numba": _numba, "torch": _torch, "work": _work}
    probes[sys.argv[1]](*sys.argv[2:])


def _tell(**found: Any) -> None:
    sys.stdout.write(_MARK + json.dumps(found) + "\n")
    sys.stdout.flush()


def _imports(*modules: str) -> None:
    """Import packages in turn; the one that a crash is the fault of has a first line and no second one."""
    from importlib import import_module

    for name in modules:
        _tell(name=name)
        try:
            module = import_module(name)
        except BaseException as error:
            _tell(name=name, error=f"{type(error).__name__}: {error}")
        else:
            _tell(name=name, error=None, path=getattr(module, "__file__", None))


def _blas() -> None:
    """The threads of Shortlist and of every BLAS and OpenMP library that NumPy and SciPy bring."""
    import scipy.linalg.cython_blas  # noqa: F401  (so that SciPy's BLAS is loaded and found too)
    from threadpoolctl import threadpool_info

    from shortlist._threads import thread_count
    from shortlist.errors import SettingError

    try:
        _tell(threads=thread_count())
    except SettingError as error:
        _tell(threads=None, error=str(error))
    for one in threadpool_info():
        _tell(
            library=one.get("internal_api"),
            version=one.get("version"),
            threads=one.get("num_threads"),
            layer=one.get("threading_layer"),
            path=one.get("filepath"),
        )


def _numba() -> None:
    """Compile a kernel of our own, or take it from the cache; and count those that the cache has."""
    import time
    from contextlib import suppress
    from importlib import import_module

    import numba
    import numpy as np

    from shortlist._kernel_cache import compiled_ahead, folders, kernel_modules, writable
    from shortlist._random import mixed

    start = time.perf_counter()
    mixed(np.uint64(1))
    seconds = time.perf_counter() - start
    stats = getattr(mixed, "stats", None)  # without it, compiling is switched off
    for name in kernel_modules():
        with suppress(ImportError):  # of an extra
            import_module(name)
    kept, kernels = compiled_ahead()
    folder, first = writable(), folders()[0]
    _tell(
        compiles=stats is not None,
        seconds=seconds,
        cache=str(folder or first),
        writable=folder is not None,
        refused=None if first in (folder, None) or first.path is None else f"{first.why} is {first}",
        from_cache=stats is not None and bool(stats.cache_hits),
        kept=kept,
        kernels=kernels,
        layer=getattr(numba.config, "THREADING_LAYER", None),
    )


def _torch() -> None:
    """What torch sees; it is imported here and nowhere else."""
    from importlib import import_module

    torch: Any = import_module("torch")

    cuda = torch.cuda.is_available()
    names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())] if cuda else []
    mps = getattr(torch.backends, "mps", None)
    if mps is not None and mps.is_available():
        names.append("Apple GPU (mps)")
    _tell(version=torch.__version__, devices=names)


def _work(folder: str) -> None:
    """Do what a user does, small: read, fit, recommend, save, load."""
    place = Path(folder)
    source = place / "events.csv"
    source.write_text("user,product\nann,tea\nann,jam\nbob,tea\nbob,jam\ncy,tea\n", encoding="utf-8")

    def step(name: str) -> None:
        _tell(step=name)

    step("read")
    from shortlist.data.interactions import Interactions

    events = Interactions.read(source, context="user", item="product")
    step("fit")
    from shortlist.recommenders.ials import IALS

    model = IALS(dim=2, epochs=2).fit(events)
    step("recommend")
    answer = model.recommend(["cy"], n=1).ids
    if answer != [["jam"]]:
        raise AssertionError(f"expected jam for cy, got {answer}")
    step("save")
    model.save(place / "model")
    step("load")
    from shortlist.recommenders.registry import load

    if load(place / "model").recommend(["cy"], n=1).ids != answer:
        raise AssertionError("the loaded model answers otherwise")
    step("done")
