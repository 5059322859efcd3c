"""Access to Optuna: import, log level, and conversion of search spaces."""

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
    """Import Optuna; raise an error with installation advice if it is missing."""
    try:
        return import_module("optuna")
    except ImportError:
        raise SettingError(
            'tuning needs Optuna, which is not installed: pip install "shortlist[tune]"', code="package-missing"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's log messages inside the block; errors are still logged."""
    logging = optuna().logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return the search space as Optuna distributions."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    result: dict[str, BaseDistribution] = {}
    for name, dimension in space.items():
        if isinstance(dimension, Choice):
            result[name] = CategoricalDistribution(dimension.options)
        elif isinstance(dimension, Increasing):
            result[name] = CategoricalDistribution(dimension.values)
        elif isinstance(dimension, Real):
            result[name] = FloatDistribution(dimension.low, dimension.high, log=dimension.log)
        else:
            result[name] = IntDistribution(dimension.low, dimension.high, log=dimension.log)
    return result
