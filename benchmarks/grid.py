"""Which settings are best on validation? Tries a grid and keeps every trial.

    python benchmarks/grid.py ItemKNN --data ../shared/data [--only similarity=tfidf]

Fits on gowalla's train without its validation subset and evaluates on the subset; the test split is not read. Each
trial is a line of benchmarks/studies/gowalla-<model>.csv, written when it is done: a run that was stopped goes on where
it was. `benchmarks/quality.py` takes the settings with the best ndcg@20.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from pathlib import Path
from typing import Any

import shortlist as sl
from published import gowalla
from shortlist.recommenders.registry import recommender_class

STUDIES = Path(__file__).parent / "studies"
METRICS = ("recall@20", "ndcg@20")
GRIDS: dict[str, list[dict[str, list[Any]]]] = {
    "ItemKNN": [
        {
            "similarity": ["cosine", "tfidf"],
            "shrinkage": [0.0, 3.0, 10.0, 30.0, 100.0, 300.0],
            "asymmetry": [0.1, 0.2, 0.3, 0.4, 0.5],
            "neighbours": [100, 300],
        },
        {"similarity": ["bm25"], "k1": [1.2, 10.0, 100.0], "b": [0.25, 0.5, 0.75], "neighbours": [100, 300]},
    ],
    "UserKNN": [
        {
            "similarity": ["cosine", "tfidf"],
            "shrinkage": [0.0, 10.0],
            "asymmetry": [0.5, 0.6],
            "neighbours": [100, 300, 600],
        },
        {"similarity": ["bm25"], "b": [0.25, 0.5, 0.75], "neighbours": [100, 300, 600]},
    ],
    "SLIM": [{"l1": [2.0, 1.0, 0.5, 0.25], "l2": [100.0, 30.0, 10.0, 3.0]}],
}


def trials(model: str, data: str = "gowalla") -> list[dict[str, Any]]:
    """Every trial so far, with its settings as numbers and words."""
    path = STUDIES / f"{data}-{model.lower()}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{name: _value(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def best(model: str, data: str = "gowalla") -> dict[str, Any]:
    """The settings with the best ndcg on validation."""
    found = trials(model, data)
    metric = next(name for name in found[0] if name.startswith("ndcg@"))
    winner = max(found, key=lambda trial: trial[metric])
    return {name: value for name, value in winner.items() if "@" not in name and name != "fit_seconds"}


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=GRIDS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[], metavar="NAME=VALUE")
    args = parser.parse_args()
    split = gowalla(args.data, validation=True)
    names = list(dict.fromkeys(name for grid in GRIDS[args.model] for name in grid))
    path = STUDIES / f"gowalla-{args.model.lower()}.csv"
    path.parent.mkdir(exist_ok=True)
    done = [{name: trial.get(name) for name in names} for trial in trials(args.model)]
    only = {name: _value(value) for name, value in (one.split("=") for one in args.only)}
    for grid in GRIDS[args.model]:
        for values in itertools.product(*grid.values()):
            settings = dict(zip(grid, values))
            if {**dict.fromkeys(names), **settings} in done or any(settings.get(k) != v for k, v in only.items()):
                continue
            began = time.perf_counter()
            model = recommender_class(args.model)(**settings).fit(split.train, progress=False)
            seconds = time.perf_counter() - began
            result = sl.evaluate(model, split, METRICS)
            figures = {metric: f"{result[metric]:.5f}" for metric in METRICS} | {"fit_seconds": f"{seconds:.1f}"}
            new = not path.exists()
            with path.open("a", newline="") as file:
                writer = csv.DictWriter(file, [*names, *figures])
                if new:
                    writer.writeheader()
                writer.writerow(settings | figures)
            print(settings, figures, flush=True)


if __name__ == "__main__":
    main()
