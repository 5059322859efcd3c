"""Which settings of SoftmaxMF are good on data that nobody has tuned for, and in what time?

    python -m benchmarks.studies.defaults prepare --data ../shared/data --out defaults.npz
    python -m benchmarks.studies.defaults.softmax fit defaults.npz    (into studies/trials/softmaxmf-defaults.csv)
    python -m benchmarks.studies.defaults.softmax fit defaults.npz --before       (the defaults of before)
    python -m benchmarks.studies.defaults.softmax table               (from there)

`fit` fits every setting of a grid on the random split of some data sets, on one thread of a CPU, and writes NDCG@20
over the whole catalogue and the CPU-seconds of the fit, a line a fit; it goes on where it was stopped. Lines whose
products are "blas" were fitted with those of NumPy, the others with those of `shortlist.solvers.row_products`, which
take about two thirds of the time on a processor with AVX-512. `table` prints each setting's share of the NDCG of the
defaults of before, set by set.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.paths import TRIALS
from benchmarks.studies.defaults.data import variant
from benchmarks.studies.defaults.lines import keep, read, text_of

STUDY = TRIALS / "softmaxmf-defaults.csv"
SETS = ["online-retail", "ml-1m-ncf", "lastfm-hetrec2011", "citeulike-a", "s3rec-beauty", "videogames-sasrec"]
SETS += ["gowalla", "goodbooks-10k-v1"]
VARIED = ("epochs", "batch", "schedule", "learning_rate", "temperature", "init", "init_scale", "optimizer")
BEFORE = (30, 1024, "constant", 0.003, 0.085, "random", 0.05, "adam")
NOW = (9, 512, "constant", 0.006, 0.095, "svd", 0.05, "adagrad")
TRIED: list[tuple[Any, ...]] = [
    (10, 256, "linear", 0.006, 0.085, "random", 0.05, "adam"),
    (10, 256, "linear", 0.003, 0.085, "svd", 0.05, "adam"),
    (10, 256, "linear", 0.003, 0.085, "random", 0.05, "adam"),
    (10, 256, "linear", 0.006, 0.085, "svd", 0.05, "adam"),
    (10, 256, "linear", 0.0015, 0.085, "svd", 0.05, "adam"),
    (10, 512, "linear", 0.003, 0.085, "svd", 0.05, "adam"),
    (10, 1024, "linear", 0.003, 0.085, "svd", 0.05, "adam"),
    (10, 512, "linear", 0.003, 0.085, "svd", 0.05, "adam", {"positive_item_exponent": 0.2}),
    (10, 512, "constant", 0.003, 0.085, "svd", 0.05, "adam"),
    (10, 512, "linear", 0.003, 0.1, "svd", 0.05, "adam"),
    (10, 512, "linear", 0.003, 0.085, "svd", 0.1, "adam"),
    (10, 512, "linear", 0.003, 0.072, "svd", 0.05, "adam"),
    (10, 512, "constant", 0.003, 0.1, "svd", 0.05, "adam"),
    (10, 256, "constant", 0.001, 0.1, "svd", 0.05, "adam"),
    (10, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam"),
    (10, 512, "constant", 0.004, 0.1, "svd", 0.05, "adam"),
    (8, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam"),
    (8, 256, "constant", 0.0015, 0.1, "svd", 0.05, "adam"),
    (8, 512, "constant", 0.002, 0.11, "svd", 0.05, "adam"),
    (8, 1024, "constant", 0.003, 0.1, "svd", 0.05, "adam"),
    (6, 512, "constant", 0.003, 0.1, "svd", 0.05, "adam"),
    (8, 512, "constant", 0.003, 0.1, "svd", 0.1, "adam"),
    (8, 256, "constant", 0.0015, 0.11, "svd", 0.05, "adam"),
    (8, 512, "constant", 0.002, 0.125, "svd", 0.05, "adam"),
    (8, 512, "constant", 0.003, 0.11, "svd", 0.05, "adam"),
    (8, 256, "constant", 0.0015, 0.11, "svd", 0.05, "adam", {"positive_item_exponent": 0.1}),
    (9, 512, "constant", 0.002, 0.105, "svd", 0.05, "adam"),
    (9, 512, "cosine", 0.004, 0.1, "svd", 0.05, "adam"),
    (9, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam", {"positive_context_exponent": 0.0}),
    (12, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam"),
    (12, 512, "constant", 0.002, 0.09, "svd", 0.05, "adam"),
    (9, 128, "constant", 0.001, 0.1, "svd", 0.05, "adam"),
    (9, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam", {"exclude": "positive"}),
    (9, 256, "constant", 0.002, 0.09, "svd", 0.05, "adam"),
    (9, 512, "constant", 0.01, 0.1, "svd", 0.05, "adagrad"),
    (9, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam", {"positive_context_exponent": -0.5}),
    (9, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam", {"positive_context_exponent": -0.8}),
    (9, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam", {"positive_item_exponent": -0.15}),
    (9, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam", {"positive_context_exponent": -0.5, "exclude": "positive"}),
    (9, 512, "constant", 0.0015, 0.1, "svd", 0.03, "adam"),
    (9, 512, "constant", 0.002, 0.1, "svd", 0.05, "adam", {"dim": 192}),
    (9, 512, "constant", 0.015, 0.1, "svd", 0.05, "adagrad"),
    (9, 512, "constant", 0.006, 0.1, "svd", 0.05, "adagrad"),
    (9, 512, "constant", 0.01, 0.1, "svd", 0.05, "adagrad", {"exclude": "positive"}),
    (9, 256, "constant", 0.01, 0.1, "svd", 0.05, "adagrad"),
    (9, 512, "constant", 0.01, 0.1, "svd", 0.1, "adagrad"),
    (9, 512, "constant", 0.003, 0.1, "svd", 0.05, "adagrad"),
    (9, 512, "constant", 0.006, 0.1, "svd", 0.1, "adagrad"),
    (9, 512, "constant", 0.006, 0.088, "svd", 0.05, "adagrad"),
    (9, 1024, "constant", 0.006, 0.1, "svd", 0.05, "adagrad"),
    (7, 512, "constant", 0.006, 0.1, "svd", 0.05, "adagrad"),
    (12, 512, "constant", 0.002, 0.095, "svd", 0.05, "adam"),
]
CUT = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    fit = commands.add_parser("fit")
    fit.add_argument("file", type=Path, help="of `python -m benchmarks.studies.defaults prepare`")
    fit.add_argument("--only", nargs="+", default=SETS, help="data sets")
    fit.add_argument("--before", action="store_true", help="the defaults of before, with the products of NumPy")
    fit.add_argument("--now", action="store_true", help="the defaults alone")
    fit.add_argument("--study", type=Path, default=STUDY)
    table = commands.add_parser("table")
    table.add_argument("--study", type=Path, default=STUDY)
    args = parser.parse_args()
    if args.command == "table":
        print_table(args.study)
        return
    tried = [BEFORE] if args.before else [NOW] if args.now else [*TRIED, NOW]
    fit_defaults(args.file, args.only, [*map(settings_of, tried)], "blas" if args.before else "tiles", args.study)


def settings_of(tried: tuple[Any, ...]) -> dict[str, Any]:
    """Settings from a line of `TRIED`."""
    return dict(zip(VARIED, tried)) | (tried[len(VARIED)] if len(tried) > len(VARIED) else {})


def fit_defaults(file: Path, sets: list[str], grid: list[dict[str, Any]], products: str, study: Path) -> None:
    """A line for every setting and set that has none."""
    import scipy.sparse as sp

    import shortlist as sl
    from shortlist.solvers import softmax

    softmax.OURS = softmax.OURS and products == "tiles"
    loaded = np.load(file)
    done = {(line["variant"], line["settings"], line["products"]) for line in read(study)}
    for name in [f"{source} random" for source in sets]:
        part = variant(loaded, name)
        pairs = np.ones(len(part["indices"]), np.float32), part["indices"], part["indptr"]
        events = sl.Interactions.from_csr(sp.csr_array(pairs, shape=tuple(part["shape"])))
        sl.SoftmaxMF(dim=128, epochs=1, batch=len(part["indptr"])).fit(events, threads=1)  # compiles
        for settings in grid:
            if (name, text_of(settings), products) in done:
                continue
            began = time.process_time()
            model = sl.SoftmaxMF(**settings).fit(events, threads=1)
            seconds = time.process_time() - began
            values = ndcg(model, part)
            error = values.std() / np.sqrt(len(values))
            line = {"variant": name, "settings": text_of(settings), "products": products}
            keep(study, line | {"ndcg": f"{values.mean():.5f}", "error": f"{error:.5f}", "seconds": f"{seconds:.2f}"})
            print(name, text_of(settings), f"{values.mean():.5f} {seconds:.1f} s", flush=True)


def ndcg(model: Any, part: dict[str, np.ndarray]) -> np.ndarray:
    """NDCG@20 of each context that is asked for, what it had in training left out."""
    asked, starts, gains = part["asked"], part["truth_indptr"], 1 / np.log2(np.arange(CUT) + 2)
    ideal, values = np.concatenate([[0], np.cumsum(gains)]), np.zeros(len(part["asked"]))
    for begin in range(0, len(asked), 1000):
        for row, ids in enumerate(model.recommend(asked[begin : begin + 1000], n=CUT, threads=1).ids, begin):
            truth = part["truth_indices"][starts[row] : starts[row + 1]]
            values[row] = gains[: len(ids)][np.isin(ids, truth)].sum() / ideal[min(CUT, len(truth))]
    return values


def print_table(study: Path) -> None:
    """Shares of the NDCG of `BEFORE`, and of its CPU-seconds, by setting and set."""
    lines = read(study)
    before = {line["variant"]: line for line in lines if line["settings"] == text_of(settings_of(BEFORE))}
    names = list(before)
    print("| settings |", " | ".join(name.removesuffix(" random") for name in names), "| mean | worst | CPU-seconds |")
    print("|---" * (len(names) + 4) + "|")
    for settings in dict.fromkeys(line["settings"] for line in lines):
        tried = {line["variant"]: line for line in lines if line["settings"] == settings and line["variant"] in before}
        share = {name: float(line["ndcg"]) / float(before[name]["ndcg"]) for name, line in tried.items()}
        spent = [sum(float(of[name]["seconds"]) for name in tried) for of in (tried, before)]
        told = [f"{share[name]:.3f}" if name in share else "" for name in names]
        told += [f"{np.mean(list(share.values())):.3f}", f"{min(share.values()):.3f}", f"{spent[0] / spent[1]:.2f}"]
        print("|", settings, "|", " | ".join(told), "|")


if __name__ == "__main__":
    main()
