"""Optuna, where it is installed: its words for our spaces, and silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from shortlist.errors import SettingError
from shortlist.recommenders.search_space import Choice, Increasing, Real, Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def optuna() -> Any:
    """Optuna, or an error that says how to get it."""
    try:
        return import_module("optuna")
    except ImportError:
        raise SettingError('tuning needs Optuna, which is not installed: pip install "shortlist[tune]"') from None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from telling what we tell ourselves."""
    logging = optuna().logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The space in Optuna's words."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, BaseDistribution] = {}
    for name, one in space.items():
        if isinstance(one, Choice):
            found[name] = CategoricalDistribution(one.options)
        elif isinstance(one, Increasing):
            found[name] = CategoricalDistribution(one.values)
        elif isinstance(one, Real):
            found[name] = FloatDistribution(one.low, one.high, log=one.log)
        else:
            found[name] = IntDistribution(one.low, one.high, log=one.log)
    return found
