"""How good are the recommenders on published protocols?

    python -m benchmarks.quality.board measure --data FOLDER [--only gowalla ...] [--models SLIM ...] [--seeds 3]
    python -m benchmarks.quality.board render

`measure`: the recommenders with the settings of benchmarks/settings, which must be the best of the studies they name:
this is checked first. FOLDER is laid out as benchmarks/README.md says. Each row is stored in benchmarks/results/quality
when it is done, so a run that was stopped loses nothing, and the page is rendered from all rows that are stored.
Recommenders with a seed are fitted with each of them; the others once, and evaluated with as many orders of tied items.
Rows that need a GPU are not fitted: what is stored of them is shown, and marked.

`render`: docs/benchmarks.md once more from everything that is stored, ratios of speed among it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import shortlist as sl
from benchmarks.lib import published
from benchmarks.lib.machine import machine, versions
from benchmarks.lib.paths import QUALITY
from benchmarks.lib.trials import complete
from benchmarks.quality import page
from benchmarks.quality.rows import SETS, DataSet, Row, StudyError, data_set
from shortlist.recommenders.registry import recommender_class

Evaluated = Callable[[sl.Recommender, int], sl.Evaluation]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measure_ = commands.add_parser("measure")
    measure_.add_argument("--data", type=Path, required=True)
    measure_.add_argument("--only", nargs="+", choices=SETS, default=list(SETS))
    measure_.add_argument("--models", nargs="+", help="names or labels; all by default")
    measure_.add_argument("--seeds", type=int, default=3)
    commands.add_parser("render")
    args = parser.parse_args()
    if args.command == "measure":
        measure_all(args.data, args.only, args.models, args.seeds)
    page.write()


# --- rows ------------------------------------------------------------------------------------------------------------


def measure_all(data: Path, names: list[str], models: list[str] | None, seeds: int) -> None:
    wanted = None if models is None else {name.lower() for name in models}
    chosen: list[tuple[DataSet, list[Row]]] = []
    for measured in map(data_set, names):
        rows = [row for row in measured.rows if wanted is None or {row.model.lower(), row.label.lower()} & wanted]
        chosen.append((measured, rows))
    if not any(rows for _, rows in chosen):
        raise SystemExit(f"no row is called {' or '.join(models or [])}")
    check([row for _, rows in chosen for row in rows])
    for measured, rows in chosen:
        if not (data / measured.name).is_dir():
            print(f"{measured.name}: no such folder in {data}, left out")
            continue
        train, evaluated = PROTOCOLS[measured.protocol](measured, data)
        for row in rows:
            if row.gpu:
                print(f"{row.key}: needs a GPU; what is stored of it is shown", flush=True)
                continue
            result, values = measure(row, measured, train, evaluated, seeds)
            store(row, result, values)
            page.write()
            told = ", ".join(f"{metric} {values['mean']:.4f}" for metric, values in result["metrics"].items())
            print(f"{row.key}: {told}, fit {np.median(result['fit_seconds']):.1f} s", flush=True)


def check(rows: list[Row]) -> None:
    """Nothing is measured unless every row has the settings that its study chose."""
    wrong = []
    for row in rows:
        try:
            row.check()
        except StudyError as error:
            wrong.append(str(error))
    if wrong:
        raise SystemExit("\n".join(wrong))


def measure(
    row: Row, measured: DataSet, train: sl.Interactions, evaluated: Evaluated, seeds: int
) -> tuple[dict[str, Any], np.ndarray]:
    """The result of a row, and the values by context of the metric by which recommenders are compared."""
    kind, seconds, evaluations = recommender_class(row.model), [], []
    model = None
    for seed in range(seeds):
        if model is None or not page.deterministic(row.model):
            model = kind(**row.settings | ({} if page.deterministic(row.model) else {"seed": seed}))
            began = time.perf_counter()
            model.fit(train, progress=False)
            seconds.append(round(time.perf_counter() - began, 2))
        evaluations.append(evaluated(model, seed))
    metrics, by_context = {}, {}
    for metric in evaluations[0]:
        by_context[metric] = values = np.mean([evaluation.of(metric) for evaluation in evaluations], axis=0)
        metrics[metric] = {
            "seeds": [evaluation[metric] for evaluation in evaluations],
            "mean": float(values.mean()),
            "stderr": float(values.std(ddof=1) / len(values) ** 0.5),
        }
    study = None
    if row.trials:
        value = max(trial[row.validation] for trial in complete(row.trials, row.validation))
        study = {"file": row.study, "trials": len(row.trials), "metric": row.validation, "value": value}
    again = "python -m benchmarks.quality.board measure --data FOLDER"
    result = {
        "set": row.data,
        "model": row.model,
        "label": row.label,
        "settings": row.settings,
        "metrics": metrics,
        "contexts": len(by_context[measured.verdict]),
        "fit_seconds": seconds,
        "seeds": list(range(seeds)),
        "when": dt.date.today().isoformat(),
        "machine": machine(),
        "versions": versions("scipy", "numba", "polars"),
        "command": f"{again} --only {row.data} --models {shlex.quote(row.label)} --seeds {seeds}",
        "device": None,
        "study": study,
    }
    return result, by_context[measured.verdict]


def store(row: Row, result: dict[str, Any], values: np.ndarray) -> None:
    QUALITY.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(QUALITY / f"{row.key}.npz", values=values.astype(np.float32))
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    (QUALITY / f"{row.key}.json").write_text(text, encoding="utf-8")


# --- protocols -------------------------------------------------------------------------------------------------------


def ncf(measured: DataSet, data: Path) -> tuple[sl.Interactions, Evaluated]:
    """Leave-one-out with 99 published negatives (He et al. 2017).

    156 users have their true item once more among the negatives. The evaluation published with the split takes the two
    for one item; here it is a tie, settled at random (figures are means over ten orders of the ties). A second set of
    figures leaves those duplicates out.
    """
    train, truth, negatives = published.ncf(data / measured.name)
    distinct = published.pairs(negatives.to_polars().join(truth.to_polars(), on=["user", "item"], how="anti"))

    def evaluated(model: sl.Recommender, seed: int) -> sl.Evaluation:
        values: dict[str, np.ndarray] = {}
        for candidates, note in ((negatives, ""), (distinct, ", no duplicates")):
            orders = [
                sl.evaluate_candidates(model, truth, candidates, measured.metrics, seed=10 * seed + k)
                for k in range(10)
            ]
            for metric in measured.metrics:
                values[metric + note] = np.mean([evaluation.of(metric) for evaluation in orders], axis=0)
        return sl.Evaluation(orders[0].model, orders[0].protocol, orders[0].contexts, values)

    return train, evaluated


def weak(measured: DataSet, data: Path) -> tuple[sl.Interactions, Evaluated]:
    """The published split of NGCF and LightGCN, over the whole catalogue."""
    return over_catalogue(published.gowalla(data), measured)


def strong(measured: DataSet, data: Path) -> tuple[sl.Interactions, Evaluated]:
    """Contexts that nothing was learnt from, by their fold-in items, over the whole catalogue."""
    return over_catalogue(published.strong(data / measured.name), measured)


def over_catalogue(split: sl.splits.Split, measured: DataSet) -> tuple[sl.Interactions, Evaluated]:
    return split.train, lambda model, seed: sl.evaluate(model, split, measured.metrics, seed=seed)


PROTOCOLS = {"ncf": ncf, "weak": weak, "strong": strong}


if __name__ == "__main__":
    main()
