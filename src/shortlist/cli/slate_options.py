"""Slate options of `recommend`, `batch` and `evaluate`."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from shortlist.retrieval.slates import Slate


class SlateName(StrEnum):
    """Names of the slates. They are listed here to avoid a heavy import."""

    MMR = "mmr"
    DPP = "dpp"
    CALIBRATED = "calibrated"


_PANEL = "Slates: pick the n items from a larger pool"
Slates = Annotated[
    SlateName | None,
    typer.Option(
        help="How to pick items: for diversity (mmr, dpp), or to match the user's mix of popular and rare items "
        "(calibrated).",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Diversity = Annotated[
    float | None,
    typer.Option(
        help="For mmr and dpp: 0 keeps the original list, 1 uses diversity only. Default: 0.3.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Strength = Annotated[
    float | None,
    typer.Option(
        help="For calibrated: 0 keeps the original list; 1 matches the history's mix and ignores scores. Default: 0.5.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Pool = Annotated[
    int | None,
    typer.Option(help="Number of best items to pick from. Default: 100.", rich_help_panel=_PANEL, show_default=False),
]


def slate_of(
    name: SlateName | None, diversity: float | None, strength: float | None, pool: int | None
) -> "Slate | None":
    """Return the slate that the options define, if any."""
    given: dict[str, Any] = {"diversity": diversity, "strength": strength, "pool": pool}
    given = {option: value for option, value in given.items() if value is not None}
    if name is None:
        if given:
            raise typer.BadParameter(
                "only valid with --slate, such as --slate mmr", param_hint=f"--{next(iter(given))}"
            )
        return None
    wrong, slates = ("diversity", "mmr and dpp") if name is SlateName.CALIBRATED else ("strength", "calibrated")
    if wrong in given:
        raise typer.BadParameter(f"only valid for {slates}, not for --slate {name.value}", param_hint=f"--{wrong}")
    from shortlist.retrieval.slates import SLATES

    return SLATES[name.value](**given)
