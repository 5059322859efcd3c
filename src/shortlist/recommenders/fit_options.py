"""The options of `fit`: validation, checkpoints, start values and features."""

from __future__ import annotations

from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING

from shortlist._checks import integer
from shortlist._phrases import join_words
from shortlist._wording import Argument, Message
from shortlist.data.features.table import Features
from shortlist.data.splits import Split
from shortlist.errors import SettingError
from shortlist.metrics import parse_metric

if TYPE_CHECKING:
    from shortlist.recommenders.base import Recommender


@dataclass(frozen=True, eq=False)
class FitOptions:
    """The options of `Recommender.fit`: start values, early stopping, checkpoints and features."""

    validation: Split | None = None
    metric: str = "ndcg@20"
    patience: int = 3
    every: int | None = None  # epochs between evaluations; None: the recommender's default
    checkpoint: str | PathLike[str] | None = None
    start: Recommender | None = None
    epochs: int | None = None  # replaces the recommender's own setting
    context_features: Features | None = None
    item_features: Features | None = None
    threads: int | None = None  # None: all CPUs
    replay: bool = False  # whether callbacks also get the epochs before a resume
    checkpoint_share: float | None = None  # fraction of time for writing checkpoints; None: write after every epoch

    def __post_init__(self) -> None:
        if self.validation is not None and not isinstance(self.validation, Split):
            raise SettingError(
                f"validation is of type {type(self.validation).__name__}; expected a Split, made with "
                "shortlist.splits: fit(split.train, validation=split)",
                field="validation",
            )
        if parse_metric(self.metric).beyond_accuracy:
            raise SettingError(
                f"metric is {self.metric!r}; expected an accuracy metric, where higher is better, such as 'ndcg@20'",
                field="metric",
            )
        integer("patience", self.patience)
        if self.every is not None:
            integer("every", self.every)
        for name in ("context_features", "item_features"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, Features):
                raise SettingError(
                    f"{name} is of type {type(given).__name__}; expected Features, made with Features.read or "
                    ".from_frame",
                    field=name,
                )
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | PathLike):
            raise SettingError(
                f"checkpoint is {self.checkpoint!r:.80}; expected the path of a folder", field="checkpoint"
            )

    def refuse_features(self, name: str) -> None:
        """Raise SettingError if features were passed to a recommender that learns from ids only."""
        if given := [key for key in ("context_features", "item_features") if getattr(self, key) is not None]:
            raise SettingError(
                f"{name} learns from ids only and does not accept {' or '.join(given)}",
                field=given[0],
                hint="omit it, or fit a FactorizationMachine or FeatureIALS",
            )

    def refuse_for(self, name: str) -> None:
        """Raise SettingError if options for epochs were passed to a recommender that does not learn in epochs."""
        options = {"validation": self.validation, "checkpoint": self.checkpoint, "start": self.start}
        refuse_epochs(name, **options, **self._changed())

    def refuse_without_validation(self) -> None:
        """Raise SettingError if options were passed that need a validation split, but no split."""
        if self.validation is None and (given := self._changed()):
            raise SettingError(
                f"{' and '.join(f'{name}={value!r}' for name, value in given.items())} "
                f"{'has' if len(given) == 1 else 'have'} no effect without validation",
                code="no-effect",
                field=next(iter(given)),
                hint=Message("pass {}, or omit {}", Argument("validation", "split"), join_words(given)),
            )

    def _changed(self) -> dict[str, object]:
        """Return the options of validation that differ from their defaults."""
        defaults = {option.name: option.default for option in fields(self)}
        names = ("metric", "patience", "every")
        return {name: getattr(self, name) for name in names if getattr(self, name) != defaults[name]}


def refuse_epochs(name: str, **options: object) -> None:
    """Raise SettingError if any option for epochs is not None, because this recommender does not learn in epochs."""
    if given := [key for key, value in options.items() if value is not None]:
        raise SettingError(
            f"{name} does not learn in epochs and does not accept {' or '.join(given)}", field=given[0], hint="omit it"
        )
