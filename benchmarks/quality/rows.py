"""The rows of the quality board: which recommender with which settings, and the study that chose them.

A data set is a file of benchmarks/settings. Its head says how it is measured:

    protocol = "weak"                      ncf, weak or strong: see quality/board.py
    metrics = ["recall@20", "ndcg@20"]     what the board shows
    verdict = "ndcg@20"                    by which of them it says which recommender is best
    validation = "ndcg@20"                 the metric, on the validation part, by which settings are chosen

and each `[[row]]` is a recommender:

    model = "SLIM"
    label = "SLIM"                         what the board calls it, where that is not the model's name
    study = "gowalla-slim.csv"             a file of benchmarks/studies/trials; "published" for settings of others
    settings = { l1 = 0.25, l2 = 30.0 }    the best of the study: `benchmarks.studies.tune settings` writes this line
    published = { "recall@20" = 0.1699 }   figures to be held against, where there are any,
    source = "BARS"                        and whose
    gpu = true                             it needs one: the board shows the stored result and does not fit it
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lib.paths import SETTINGS, TRIALS
from benchmarks.lib.trials import best, trials

PUBLISHED = "published"
SETS = ("ml-1m-ncf", "gowalla", "ml-1m-strong", "goodbooks-strong", "anime-strong")


class StudyError(Exception):
    """A row that does not have the settings its study chose."""


@dataclass(frozen=True)
class Row:
    """A recommender on a data set."""

    data: str
    model: str
    label: str
    validation: str
    study: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    published: dict[str, float] = field(default_factory=dict)
    source: str = ""
    gpu: bool = False

    @property
    def key(self) -> str:
        """The name of its result: `gowalla-slim`."""
        return f"{self.data}-{re.sub('[^a-z0-9]+', '-', self.label.lower())}"

    @property
    def tuned(self) -> bool:
        """Whether a study of ours chose the settings."""
        return self.study not in (None, PUBLISHED)

    @property
    def trials(self) -> list[dict[str, Any]]:
        """The trials of its study."""
        return trials(TRIALS / self.study) if self.study and self.tuned else []

    def check(self) -> None:
        """Settings are the best of the study they are said to come from, or it is an error."""
        if not self.tuned:
            if self.settings and self.study is None:
                raise StudyError(f"{self.key}: it has settings, {self.settings}, but names no study they come from")
            return
        if not self.trials:
            again = f"run python -m benchmarks.studies.tune {self.data} {self.model} --data FOLDER"
            way_out = "it is made where there is a GPU" if self.gpu else again
            raise StudyError(f"{self.key}: there is no benchmarks/studies/trials/{self.study} with trials; {way_out}")
        if (chosen := best(self.trials, self.validation)) != self.settings:
            raise StudyError(
                f"{self.key}: benchmarks/settings/{self.data}.toml has {self.settings}, but the best by "
                f"{self.validation} of {self.study} are {chosen}; run python -m benchmarks.studies.tune settings"
            )


@dataclass(frozen=True)
class DataSet:
    """How a data set is measured, and its rows."""

    name: str
    protocol: str
    metrics: list[str]
    verdict: str
    validation: str
    rows: list[Row]


def data_set(name: str, folder: Path = SETTINGS) -> DataSet:
    """Read a file of settings."""
    head = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    blocks = head.pop("row")
    rows = [Row(name, validation=head["validation"], **({"label": block["model"]} | block)) for block in blocks]
    return DataSet(name, rows=rows, **head)
