"""Is BPR best by AUC, and are methods that look at the head of the list best by NDCG?

    python -m benchmarks.questions.auc --data FOLDER [--sets ml-1m-strong goodbooks-strong] [--trials 12]

Each method gets as many trials (d = 64, 40 epochs, settings drawn at random from the ranges below), all judged by AUC
and by NDCG@20 on the validation part. The best by each of the two is measured on the test part by both: a method that
is good at one of them had the choice. Intervals are of the difference to BPR that was chosen in the same way, over the
same contexts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import shortlist as sl
from benchmarks.lib import published
from benchmarks.lib.machine import PLAIN_SGD, describe
from benchmarks.lib.markdown import figure, signed, table

SETS = ("ml-1m-strong", "goodbooks-strong", "anime-strong")
METRICS = ("auc", "ndcg@20")
FIXED = {"dim": 64, "epochs": 40} | PLAIN_SGD | {"schedule": "linear"}
Ranges = dict[str, tuple[float, float] | list[Any]]  # of logarithms; or values
PAIRWISE: Ranges = {
    "learning_rate": (0.02, 0.5),
    "regularization": (1e-4, 0.03),
    "n_negatives": [1, 4],
    "positive_context_exponent": [0.0, -0.4],
}
SPACES: dict[str, Ranges] = {
    "BPR": PAIRWISE,
    "AdaptiveBPR": PAIRWISE | {"gamma": (20.0, 5000.0)},
    "WARP": PAIRWISE | {"learning_rate": (0.005, 0.2), "regularization": (1e-6, 3e-3), "margin": (0.2, 2.0)},
    "LambdaMF": PAIRWISE
    | {
        "learning_rate": (3.0, 100.0),
        "regularization": (1e-6, 1e-3),
        "positive_context_exponent": [0.0, 0.5],
        "sampler": ["Uniform()", "AdaptiveRank(gamma=300)"],
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["ml-1m-strong", "goodbooks-strong"])
    parser.add_argument("--trials", type=int, default=12)
    args = parser.parse_args()
    describe("scipy", "numba")
    lines: list[list[str]] = []
    for name in args.sets:
        for row in compared(name, args.data, args.trials):
            figures = [one for metric in METRICS for one in (figure(row[metric]), told(row["differences"][metric]))]
            lines.append([name, row["method"], row["by"], *figures])
            print(f"{name}: {row['method']} by {row['by']}: {row['settings']}", flush=True)
    head = ["data", "method", "chosen by", *(one for metric in METRICS for one in (metric, "to BPR"))]
    print(table(head, lines))


def told(ends: tuple[float, float]) -> str:
    """An interval of a difference."""
    return f"{signed(ends[0])} to {signed(ends[1])}" if any(ends) else ""


def compared(name: str, data: Path, trials: int) -> list[dict[str, Any]]:
    """Each method, by the two choices: its figures on the test part, and the differences to BPR."""
    validation, test = (published.strong(data / name, part) for part in ("valid", "test"))
    rows, first = [], {}
    for method, ranges in SPACES.items():
        tried = tried_out(method, ranges, validation, trials)
        for by in METRICS:
            settings = max(tried, key=lambda one: one[by])["settings"]
            result = sl.evaluate(model_of(method, settings).fit(test.train, progress=False), test, METRICS)
            base = first.setdefault(by, result)
            differences = {metric: interval(result.of(metric) - base.of(metric)) for metric in METRICS}
            figures = {metric: float(result[metric]) for metric in METRICS}
            rows.append({"method": method, "by": by, **figures, "differences": differences, "settings": settings})
    return rows


def tried_out(method: str, ranges: Ranges, validation: sl.splits.Split, trials: int) -> list[dict[str, Any]]:
    """Fits with random settings, and what they are worth on the validation part."""
    rng = np.random.default_rng(0)
    found, began = [], time.perf_counter()
    while len(found) < trials:
        settings = {key: drawn(rng, one) for key, one in ranges.items()}
        try:
            model = model_of(method, settings).fit(validation.train, progress=False)
        except sl.ShortlistError:  # its steps were too long
            continue
        result = sl.evaluate(model, validation, METRICS)
        found.append({"settings": settings, **{metric: float(result[metric]) for metric in METRICS}})
    print(f"  {method}: {trials} trials, {time.perf_counter() - began:.0f} s", flush=True)
    return found


def model_of(method: str, settings: dict[str, Any]) -> Any:
    """A recommender with these settings; steps of WARP are those of Adagrad."""
    optimizer = {"optimizer": "adagrad"} if method == "WARP" else {}
    return getattr(sl, method)(**FIXED | optimizer | settings)


def drawn(rng: np.random.Generator, one: tuple[float, float] | list[Any]) -> Any:
    if isinstance(one, list):
        return one[rng.integers(len(one))]
    return float(f"{np.exp(rng.uniform(*np.log(one))):.3g}")


def interval(differences: np.ndarray) -> tuple[float, float]:
    """95 % of the mean, by drawing the contexts again and again."""
    if not differences.any():
        return 0.0, 0.0
    rng = np.random.default_rng(0)
    means = [differences[rng.integers(len(differences), size=len(differences))].mean() for _ in range(2000)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


if __name__ == "__main__":
    main()
