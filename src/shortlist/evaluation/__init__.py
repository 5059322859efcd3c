"""How good is it: protocols over recommenders, results with their uncertainty, comparison (section 2.3)."""

from shortlist.evaluation.comparison import Comparison, compare
from shortlist.evaluation.evaluate import evaluate, evaluate_candidates
from shortlist.evaluation.result import Evaluation, TwoStageEvaluation

__all__ = ["Comparison", "Evaluation", "TwoStageEvaluation", "compare", "evaluate", "evaluate_candidates"]
