"""Which settings of a recommender are best on validation?

    python -m benchmarks.studies.tune gowalla SLIM --data FOLDER [--minutes 3] [--trials 40]
        [--study gowalla-slim.study]
    python -m benchmarks.studies.tune settings

The first runs `shortlist.tune` (extra `tune`) on the validation part of a data set; the test part is not read. Its
trials become benchmarks/studies/trials/<set>-<model>.csv: the settings, the best epoch where it learns in epochs, how
the trial ended, the validation metric, and its seconds. With `--study` the search is kept in a file, and the same
command goes on with it.

The second copies the best settings of every study into benchmarks/settings, where the board takes them from.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import shortlist as sl
from benchmarks.lib import published
from benchmarks.lib.paths import SETTINGS, TRIALS
from benchmarks.lib.trials import best, trials
from benchmarks.quality.rows import SETS, DataSet, data_set
from shortlist.recommenders.registry import recommender_class


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    if sys.argv[1:] == ["settings"]:
        for name in SETS:
            refresh(name)
        return
    parser.add_argument("set", choices=SETS)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--trials", type=int, help="stop after so many, if the minutes are not over before")
    parser.add_argument("--study", type=Path, help="keep the search in this file, or go on with the one that is there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dim", type=int, help="keep the dimension at this; by default the search lets it grow")
    parser.add_argument("--workers", type=int, default=1, help="trials at a time")
    parser.add_argument("--out", metavar="NAME.csv", help="in benchmarks/studies/trials; <set>-<model>.csv by default")
    args = parser.parse_args()
    measured, model = data_set(args.set), recommender_class(args.model)
    path = TRIALS / (args.out or f"{args.set}-{model.__name__.lower()}.csv")
    if (there := trials(path)) and "state" not in there[0]:
        raise SystemExit(f"{path.name} is there and was made in another way; name another file of studies with --out")
    with tempfile.TemporaryDirectory() as folder:
        tuned = sl.tune(
            model if args.dim is None else model(dim=args.dim),
            validation(measured, args.data),
            metric=measured.validation,
            trials=args.trials,
            seconds=60 * args.minutes,
            study=args.study or Path(folder) / "study",
            seed=args.seed,
            space=None if args.dim is None else {"dim": None},
            workers=args.workers,
            refit=False,
        )
    print(tuned)
    export(tuned, path, {} if args.dim is None else {"dim": args.dim})
    print(f"benchmarks/studies/trials/{path.name} has its trials; now: python -m benchmarks.studies.tune settings")


def validation(measured: DataSet, data: Path) -> sl.splits.Split:
    """The validation part of a data set, with what may be learnt from beside it."""
    if measured.protocol == "ncf":
        return published.ncf_validation(data / measured.name)
    if measured.protocol == "weak":
        return published.gowalla(data, validation=True)
    return published.strong(data / measured.name, "valid")


def export(tuned: sl.Tuned, path: Path, fixed: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Write the trials as a table, without those that were not begun or not ended when the time was up.

    `fixed` are settings that all of them had.
    """
    ended = [trial for trial in tuned.trials if trial.ended]
    names = list(dict.fromkeys([*fixed, *(name for trial in ended for name in trial.settings)]))
    if any(trial.epoch is not None for trial in ended):
        names.append("epochs")
    if any(trial.start is not None for trial in ended):
        names = ["trial", "start", *names]
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*names, "state", tuned.metric, "seconds"], lineterminator="\n")
        writer.writeheader()
        for trial in ended:
            row = dict(fixed) | dict(trial.settings) | {"state": trial.state, "seconds": f"{trial.seconds:.1f}"}
            row |= {"trial": trial.number, "start": trial.start} if names[0] == "trial" else {}
            row |= {} if trial.epoch is None else {"epochs": trial.epoch}
            row |= {} if trial.value is None else {tuned.metric: f"{trial.value:.6f}"}
            writer.writerow(row)


def refresh(name: str, folder: Path = SETTINGS) -> None:
    """Write the best settings of each study into a data set's file; rows whose study is not there stay as they are."""
    path = folder / f"{name}.toml"
    head, *blocks = path.read_text(encoding="utf-8").split("\n[[row]]\n")
    written = [head]
    for row, block in zip(data_set(name, folder).rows, blocks):
        lines = block.rstrip("\n").split("\n")
        if row.trials:
            chosen = best(row.trials, row.validation)
            lines = [line for line in lines if not line.startswith("settings = ")]
            place = next(k for k, line in enumerate(lines) if line.startswith("study = ")) + 1
            lines.insert(place, f"settings = {inline(chosen)}")
            if chosen != row.settings:
                print(f"{row.key}: {lines[place]}")
        elif row.tuned:
            print(f"{row.key}: no study yet")
        written.append("\n".join(lines) + "\n")
    path.write_text("\n[[row]]\n".join(written), encoding="utf-8")


def inline(settings: dict[str, Any]) -> str:
    """Settings as an inline table of TOML.

    >>> inline({"similarity": "bm25", "positive": True, "b": 0.75})
    '{ similarity = "bm25", positive = true, b = 0.75 }'
    """
    told = {True: "true", False: "false"}
    values = (
        told[value] if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else repr(value)
        for value in settings.values()
    )
    return "{ " + ", ".join(f"{name} = {value}" for name, value in zip(settings, values)) + " }"


if __name__ == "__main__":
    main()
