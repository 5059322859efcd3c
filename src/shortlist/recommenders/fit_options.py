"""What a fit in epochs is asked for beside the settings."""

from __future__ import annotations

from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING

from shortlist._checks import whole
from shortlist.data.features.table import Features
from shortlist.data.splits import Split
from shortlist.errors import SettingError
from shortlist.metrics import parse_metric

if TYPE_CHECKING:
    from shortlist.recommenders.base import Recommender


@dataclass(frozen=True, eq=False)
class FitOptions:
    """Where to begin, when to stop, and what to write down on the way; see `Recommender.fit`."""

    validation: Split | None = None
    metric: str = "ndcg@20"
    patience: int = 3
    every: int | None = None  # epochs from one evaluation to the next; None: as the recommender has it
    checkpoint: str | PathLike[str] | None = None
    start: Recommender | None = None
    epochs: int | None = None  # instead of the recommender's own setting
    context_features: Features | None = None
    item_features: Features | None = None
    checkpoint_share: float | None = None  # of the time, that writing checkpoints may take; None: after every epoch

    def __post_init__(self) -> None:
        if self.validation is not None and not isinstance(self.validation, Split):
            raise SettingError(
                f"validation is of type {type(self.validation).__name__}; expected a Split, as shortlist.splits makes "
                "them: fit(split.train, validation=split)"
            )
        if parse_metric(self.metric).beyond_accuracy:
            raise SettingError(
                f"metric is {self.metric!r}; expected a metric of accuracy, the higher the better, such as 'ndcg@20'"
            )
        whole("patience", self.patience)
        if self.every is not None:
            whole("every", self.every)
        for name in ("context_features", "item_features"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, Features):
                raise SettingError(
                    f"{name} is of type {type(given).__name__}; expected Features, made by Features.read or .from_frame"
                )
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | PathLike):
            raise SettingError(f"checkpoint is {self.checkpoint!r:.80}; expected the path of a folder")

    def refuse_features(self, name: str) -> None:
        """For recommenders that know ids only: say so where features were given."""
        if given := [one for one in ("context_features", "item_features") if getattr(self, one) is not None]:
            raise SettingError(
                f"{name} learns from ids only, so there is no {' or '.join(given)}; leave it out, or fit a "
                "FactorizationMachine or FeatureIALS"
            )

    def refuse_for(self, name: str) -> None:
        """For recommenders that do not learn in epochs: say so where something of this was asked for."""
        asked = {"validation": self.validation, "checkpoint": self.checkpoint, "start": self.start}
        refuse_epochs(name, **asked, **self._changed())

    def refuse_without_validation(self) -> None:
        """Say so where something was asked for that only validation has a use for."""
        if self.validation is None and (given := self._changed()):
            raise SettingError(
                f"{' and '.join(f'{name}={value!r}' for name, value in given.items())} changes nothing without "
                "validation; pass validation=split, or leave it out"
            )

    def _changed(self) -> dict[str, object]:
        """How to validate, as far as someone said it."""
        how = {one.name: one.default for one in fields(self) if one.name in ("metric", "patience", "every")}
        return {name: getattr(self, name) for name, usual in how.items() if getattr(self, name) != usual}


def refuse_epochs(name: str, **asked: object) -> None:
    """Say of whoever is called so that it does not learn in epochs, where something of it was asked for."""
    if given := [key for key, value in asked.items() if value is not None]:
        raise SettingError(f"{name} does not learn in epochs, so there is no {' or '.join(given)}; leave it out")
