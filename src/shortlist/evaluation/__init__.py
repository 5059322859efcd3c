"""Offline evaluation: evaluate recommenders on splits, with standard errors, and compare them (section 2.3)."""

from shortlist.evaluation.comparison import Comparison, compare
from shortlist.evaluation.evaluate import evaluate, evaluate_candidates
from shortlist.evaluation.result import Evaluation, TwoStageEvaluation

__all__ = ["Comparison", "Evaluation", "TwoStageEvaluation", "compare", "evaluate", "evaluate_candidates"]
