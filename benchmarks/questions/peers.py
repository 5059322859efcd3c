"""How does Shortlist compare with implicit, LightFM, RecTools, RecBole and LensKit?

    python -m benchmarks.questions.peers install [--libraries implicit ...] [--venvs FOLDER]
    python -m benchmarks.questions.peers measure [--libraries implicit ...] [--venvs FOLDER] [--only epoch ...]
    python -m benchmarks.questions.peers table [--short]

`install` makes an environment for each library and measures how much it grows by `pip install NAME`, without pip and
setuptools: bytes of all files, those compiled by pip included. PyTorch is installed first where a library needs it, so
that pip takes the CPU build: the plain command takes the one for CUDA.

`measure` runs every library in a worker inside its environment, two threads each, and keeps the figures in
benchmarks/results/peers. Ratios are within a turn, Shortlist directly before the peer; of the turns the median.

* `quality`: NDCG@20 of each library's default model on the bundled Online Retail, split by time as in the README. All
  get the same distinct pairs with the value 1. Workers write lists of 20 unseen items, Shortlist's metric judges them.
* `evaluation`: the library's own evaluation over the whole catalogue, 10,000 users of the synthetic data below and the
  same embeddings for all. They compute different metrics; `peers_libraries.py` says which.
* `epoch`: an epoch on synthetic data, 50,000 users × 20,000 items, 2.7 million pairs, d = 128. iALS where a library has
  it, else what is nearest; then there is also the ratio to the same loss of Shortlist. Set-up is not counted, nor is
  the step that ends a fit of Shortlist, which takes about as long as an epoch.

`table` prints the table of docs/benchmarks.md from what is kept, with `--short` that of the README. Epochs of
different libraries are not the same work: three
steps of conjugate gradients, a Cholesky solve and a pass of sampled pairs differ in what they learn.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.questions.peers_libraries import LIBRARIES, PEERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    install_options = commands.add_parser("install", help="make the environments and measure their size")
    install_options.add_argument("--libraries", nargs="+", choices=list(LIBRARIES), default=list(LIBRARIES))
    measure_options = commands.add_parser("measure", help="measure quality and speed")
    measure_options.add_argument("--libraries", nargs="+", choices=PEERS, default=list(PEERS))
    measure_options.add_argument("--turns", type=int, default=5)
    questions = ("quality", "evaluation", "epoch")
    measure_options.add_argument("--only", nargs="+", choices=questions, default=list(questions))
    for options in (install_options, measure_options):
        options.add_argument("--venvs", type=Path, default=Path(tempfile.gettempdir()) / "peers-venvs")
    table_options = commands.add_parser("table", help="print the table from what is kept")
    table_options.add_argument("--short", action="store_true", help="with the notes of the README only")
    arguments = parser.parse_args()
    if arguments.command == "install":
        from benchmarks.questions.peers_install import install

        install(arguments.libraries, arguments.venvs)
    elif arguments.command == "measure":
        from benchmarks.questions.peers_measure import measure

        measure(arguments.libraries, arguments.venvs.absolute(), arguments.turns, arguments.only)
    else:
        from benchmarks.questions.peers_table import short_table, table

        print(short_table() if arguments.short else table())


if __name__ == "__main__":
    main()
