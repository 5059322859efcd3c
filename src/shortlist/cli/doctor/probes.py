"""The probes of `shortlist doctor`. Each runs in its own process, so a crashing package cannot crash the command.

A probe prints its results as lines of JSON. Each line starts with a mark, because packages may print too. It runs as
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
_SECONDS = 300.0  # the first run compiles many kernels, and the machine may be slow


class ProbeError(Exception):
    """A probe ended early."""


def probe(name: str, *arguments: str, seconds: float = _SECONDS) -> Iterator[dict[str, Any]]:
    """Run a probe and yield its results. If it ends early, raise ProbeError after the last result."""
    command = [sys.executable, "-P", "-c", _START, name, *arguments]  # -P: do not import from the current folder
    home = str(Path(__file__).parents[3])  # the folder of this package, installed or not
    paths = os.pathsep.join(path for path in (os.environ.get("PYTHONPATH"), home) if path)
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
            reason = f"the process was killed by signal {-done.returncode}"
        elif done.returncode:
            reason = (err.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except subprocess.TimeoutExpired as error:
        out, reason = error.stdout or b"", f"timed out after {seconds:g} s"
    except OSError as error:
        out, reason = b"", f"cannot start a process: {error.strerror or error}"
    for line in out.decode(errors="replace").splitlines():
        if line.startswith(_MARK):
            yield json.loads(line.removeprefix(_MARK))
    if reason:
        raise ProbeError(reason)


def main() -> None:
    """Run the probe named by the first argument."""
    probes: dict[str, Callable[..., None]]
    probes = {"imports": _imports, "blas": _blas, "numba": _numba, "torch": _torch, "work": _work}
    probes[sys.argv[1]](*sys.argv[2:])


def _emit(**result: Any) -> None:
    sys.stdout.write(_MARK + json.dumps(result) + "\n")
    sys.stdout.flush()


def _imports(*modules: str) -> None:
    """Import packages one by one. A package that crashes has a first line but no second one."""
    from importlib import import_module

    for name in modules:
        _emit(name=name)
        try:
            module = import_module(name)
        except BaseException as error:
            _emit(name=name, error=f"{type(error).__name__}: {error}")
        else:
            _emit(name=name, error=None, path=getattr(module, "__file__", None))


def _blas() -> None:
    """Report the threads of Shortlist and of all BLAS and OpenMP libraries loaded by NumPy and SciPy."""
    import scipy.linalg.cython_blas  # noqa: F401  (loads the BLAS of SciPy)
    from threadpoolctl import threadpool_info

    from shortlist._threads import thread_count
    from shortlist.errors import SettingError

    try:
        _emit(threads=thread_count())
    except SettingError as error:
        _emit(threads=None, error=str(error))
    for library in threadpool_info():
        _emit(
            library=library.get("internal_api"),
            version=library.get("version"),
            threads=library.get("num_threads"),
            layer=library.get("threading_layer"),
            path=library.get("filepath"),
        )


def _numba() -> None:
    """Compile a kernel or load it from the cache, and count the cached kernels."""
    import time
    from contextlib import suppress
    from importlib import import_module

    import numba
    import numpy as np

    from shortlist._kernel_cache import count_cached, folders, kernel_modules, writable
    from shortlist._random import mixed

    start = time.perf_counter()
    mixed(np.uint64(1))
    seconds = time.perf_counter() - start
    stats = getattr(mixed, "stats", None)  # missing if compilation is disabled
    for name in kernel_modules():
        with suppress(ImportError):  # the module needs an extra that is not installed
            import_module(name)
    kept, kernels = count_cached()
    folder, first = writable(), folders()[0]
    _emit(
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
    """Report the GPUs that torch finds. Only this probe imports torch."""
    from importlib import import_module

    torch: Any = import_module("torch")

    cuda = torch.cuda.is_available()
    names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())] if cuda else []
    mps = getattr(torch.backends, "mps", None)
    if mps is not None and mps.is_available():
        names.append("Apple GPU (mps)")
    _emit(version=torch.__version__, devices=names)


def _work(folder: str) -> None:
    """Run a small job: read, fit, recommend, save, load."""
    place = Path(folder)
    source = place / "events.csv"
    source.write_text("user,product\nann,tea\nann,jam\nbob,tea\nbob,jam\ncy,tea\n", encoding="utf-8")

    def step(name: str) -> None:
        _emit(step=name)

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
    from shortlist.loading import load

    if load(place / "model").recommend(["cy"], n=1).ids != answer:
        raise AssertionError("the loaded model recommends other items")
    step("done")
