"""Tuning: settings that are found, not guessed.

`tune` searches the settings of one recommender on a validation split; every recommender says by its `space()` where to
look. The search itself is Optuna's (extra `tune`), loaded when it is needed.
"""

from shortlist.recommenders.space import Choice, Dimension, Grows, Real, Space, When, Whole
from shortlist.tuning.contest import Contest, contest
from shortlist.tuning.result import Trial, Tuned
from shortlist.tuning.tune import tune

__all__ = [
    "Choice",
    "Contest",
    "Dimension",
    "Grows",
    "Real",
    "Space",
    "Trial",
    "Tuned",
    "When",
    "Whole",
    "contest",
    "tune",
]
