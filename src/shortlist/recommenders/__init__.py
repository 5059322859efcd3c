"""What a user names and fits: each a short composition of the other rooms.

`from shortlist.recommenders import IALS` is `from shortlist import IALS`; names are loaded when they are first used.
"""

from typing import Any

import shortlist

__all__ = [name for name, home in shortlist._HOME.items() if home.startswith(f"{__name__}.")]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(shortlist, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
