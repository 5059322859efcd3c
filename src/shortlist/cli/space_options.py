"""`--space NAME=LOW..HIGH` and `--space NAME=A,B,C`: parse search spaces. No text is executed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shortlist._renamed import new_setting
from shortlist.cli.model_settings import typed
from shortlist.errors import SettingError

if TYPE_CHECKING:
    from shortlist.recommenders.base import Recommender
    from shortlist.recommenders.search_space import Dimension

_LOG = ":log"


def read_spaces(recommender: "type[Recommender]", texts: Sequence[str]) -> "dict[str, Dimension]":
    """Return the search dimensions that replace those of the recommender's default space, by setting.

    A range is on a log scale if the text says so, or if the default range is. Values of an `Increasing` setting are
    tried in increasing order.
    """
    dimensions: dict[str, Dimension] = {}
    for text in texts:
        left, equals, values = (part.strip() for part in text.partition("="))
        owner, _, name = left.rpartition(".")
        if not equals or not values:
            raise SettingError(
                f"--space {text}: expected a range, NAME=LOW..HIGH, or values, NAME=A,B,C; such as "
                "regularization=0.001..1 or dim=64,128",
                field="space",
            )
        if owner and owner.lower() != recommender.__name__.lower():
            raise SettingError(
                f"--space {text}: {owner!r} is not the model ({recommender.__name__.lower()})", field="space"
            )
        name = new_setting(recommender, name)
        if name in dimensions:
            raise SettingError(f"--space {text}: {name} is given twice", field="space")
        try:
            dimensions[name] = _dimension(recommender, name, values)
        except SettingError as error:
            raise error.prefixed(f"--space {text}: ") from None
    return dimensions


def described(dimension: "Dimension") -> str:
    """Describe a dimension.

    >>> from shortlist.recommenders.search_space import Increasing, Real
    >>> described(Real(1e-4, 0.1, log=True)), described(Increasing(64, 128))
    ('0.0001 … 0.1, log', '64, then 128')
    """
    from shortlist.recommenders.search_space import Choice, Increasing

    if isinstance(dimension, Choice):
        return ", ".join(map(str, dimension.options))
    if isinstance(dimension, Increasing):
        return ", then ".join(map(str, dimension.values))
    return f"{dimension.low:g} … {dimension.high:g}{', log' if dimension.log else ''}"


def _dimension(recommender: "type[Recommender]", name: str, text: str) -> "Dimension":
    from shortlist.recommenders.search_space import Choice, Increasing, Integer, Real

    default = recommender.space().get(name)
    when = None if default is None else default.when
    if ".." not in text:
        values = [typed(recommender, name, value.strip(), prefix="") for value in text.split(",")]
        return Increasing(*values) if isinstance(default, Increasing) else Choice(*values, when=when)
    log = text.endswith(_LOG) or bool(getattr(default, "log", False))
    low, high = (
        _number(typed(recommender, name, bound.strip(), prefix=""), name)
        for bound in text.removesuffix(_LOG).split("..", 1)
    )
    if isinstance(low, int) and isinstance(high, int):
        return Integer(low, high, log=log, when=when)
    return Real(low, high, log=log, when=when)


def _number(value: Any, name: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingError(f"{name} is not a number", field=name, hint=f"list the values to try: {name}=A,B,C")
    return value
