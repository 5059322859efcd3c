"""The options of slates, which `recommend`, `batch` and `evaluate` share."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from shortlist.retrieval.slates import Slate


class SlateName(StrEnum):
    """The slates; as everything here, without an import of what they need."""

    MMR = "mmr"
    DPP = "dpp"
    CALIBRATED = "calibrated"


_PANEL = "Slates: the n picked out of more"
Slates = Annotated[
    SlateName | None,
    typer.Option(
        help="mmr and dpp: items unlike each other; calibrated: as many popular and rare ones as the history has.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Diversity = Annotated[
    float | None,
    typer.Option(
        help="Of mmr and dpp: from 0, the list as it is, to 1, diversity only. By default 0.3.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Strength = Annotated[
    float | None,
    typer.Option(
        help="Of calibrated: from 0, the list as it is, to 1, the history's shares only. By default 0.5.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Pool = Annotated[
    int | None,
    typer.Option(help="Out of how many of the best items; by default 100.", rich_help_panel=_PANEL, show_default=False),
]


def slate_of(
    name: SlateName | None, diversity: float | None, strength: float | None, pool: int | None
) -> "Slate | None":
    """The slate that the options say, if any."""
    given: dict[str, Any] = {"diversity": diversity, "strength": strength, "pool": pool}
    given = {option: value for option, value in given.items() if value is not None}
    if name is None:
        if given:
            raise typer.BadParameter(
                "it is for a slate; say which, as --slate mmr", param_hint=f"--{next(iter(given))}"
            )
        return None
    wrong, whose = ("diversity", "mmr and dpp") if name is SlateName.CALIBRATED else ("strength", "calibrated")
    if wrong in given:
        raise typer.BadParameter(f"it is for {whose}, not for --slate {name.value}", param_hint=f"--{wrong}")
    from shortlist.retrieval.slates import SLATES

    return SLATES[name.value](**given)
