"""The recommenders, each a short combination of the other packages.

`from shortlist.recommenders import IALS` is the same as `from shortlist import IALS`. Names are loaded on first use.
"""

from importlib import import_module
from typing import Any

_HOME: dict[str, str] = import_module("shortlist")._HOME
__all__ = [name for name, home in _HOME.items() if home.startswith(f"{__name__}.")]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
