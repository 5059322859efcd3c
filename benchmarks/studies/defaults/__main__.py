"""Which settings are good on data that nobody has tuned for?

    python -m benchmarks.studies.defaults prepare --data ../shared/data --out defaults.npz
    python -m benchmarks.studies.defaults search defaults.npz                (into studies/trials/defaults-ials.csv)
    python -m benchmarks.studies.defaults versus defaults.npz                (beside implicit, which must be installed)
    python -m benchmarks.studies.defaults table                              (from there)

`prepare` holds out a part of every data set: 20 % of the pairs at random; where there are times, also the newest 10 %
of the events; where there are sequences, also the last item of each. `search` fits every setting of a grid on every
such variant and writes NDCG@20 over the whole catalogue, a line a fit; it asks for 5,000 contexts at most, the same for
all settings, and goes on where it was stopped. `table` prints each rule's share of the best fixed setting by variant,
and the share of the rule that is best without the variants of the same source. `--model` prints those of another model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.lib.paths import TRIALS
from benchmarks.studies.defaults.data import prepare
from benchmarks.studies.defaults.fits import search
from benchmarks.studies.defaults.grids import GRIDS
from benchmarks.studies.defaults.tables import table
from benchmarks.studies.defaults.versus_implicit import versus


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.defaults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    prepare_ = commands.add_parser("prepare")
    prepare_.add_argument("--data", type=Path, required=True)
    prepare_.add_argument("--out", type=Path, required=True)
    search_ = commands.add_parser("search")
    search_.add_argument("file", type=Path)
    search_.add_argument("--models", choices=list(GRIDS), nargs="+", default=["IALS"])
    search_.add_argument("--workers", type=int, default=1, help="processes; each fits with one thread")
    search_.add_argument("--device", help="for IALS: a GPU, such as cuda")
    search_.add_argument("--most", type=int, help="pairs of a data set, of contexts drawn at random")
    search_.add_argument("--out", type=Path, default=TRIALS, help="a folder for the files, defaults-MODEL.csv")
    search_.add_argument("--short", action="store_true", help="only the default and the settings of before")
    search_.add_argument("--only", nargs="+", help="variants whose name has one of these in it")
    versus_ = commands.add_parser("versus")
    versus_.add_argument("file", type=Path)
    versus_.add_argument("--out", type=Path, default=TRIALS, help="a folder for the file, defaults-implicit.csv")
    table_ = commands.add_parser("table")
    table_.add_argument("--model", choices=[*GRIDS, "others"], default="IALS")
    table_.add_argument("--studies", type=Path, default=TRIALS)
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
    else:
        {"search": search, "versus": versus, "table": table}[args.command](args)


if __name__ == "__main__":
    main()
