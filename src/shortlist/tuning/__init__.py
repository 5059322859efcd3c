"""Search for good settings of recommenders.

`tune` searches the settings of one recommender on a validation split. `compare_tuned` tunes several recommenders and
compares them on a test split. Each recommender defines its search space in `space()`. The search uses Optuna (extra
`tune`), which is imported on first use.
"""

from typing import Any

from shortlist._renamed import name_in
from shortlist.recommenders.search_space import Choice, Dimension, Increasing, Integer, Real, Space, When
from shortlist.tuning.tune import tune
from shortlist.tuning.tuned_comparison import TunedComparison, compare_tuned
from shortlist.tuning.tuning_result import Trial, Tuned

__all__ = [
    "Choice",
    "Dimension",
    "Increasing",
    "Integer",
    "Real",
    "Space",
    "Trial",
    "Tuned",
    "TunedComparison",
    "When",
    "compare_tuned",
    "tune",
]


def __getattr__(name: str) -> Any:
    return globals()[name_in(__name__, name)]
