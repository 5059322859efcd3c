"""Which settings of IALS are good on data that nobody has tuned for? The study behind its defaults.

    python benchmarks/defaults.py prepare --data ../shared/data --out defaults.npz
    python benchmarks/defaults.py search defaults.npz                (into benchmarks/studies/defaults-ials.csv)
    python benchmarks/defaults.py table                              (from there)

`prepare` holds out a part of every data set: 20 % of the pairs at random; where there are times, also the newest 10 %
of the events; where there are sequences, also the last item of each. `search` fits every setting of a grid on every
such variant and writes NDCG@20 over the whole catalogue, a line a fit; it asks for 5,000 contexts at most, the same for
all settings, and goes on where it was stopped. `table` prints each rule's share of the best fixed setting by variant,
and the share of the rule that is best without the variants of the same source.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

STUDIES = Path(__file__).parent / "studies"
CUT = 20
MOST_ASKED = 5000
Settings: TypeAlias = dict[str, Any]
SOURCES = {  # data sets that come from the same place leave together
    "ml-1m-ncf": "ml-1m",
    "ml-1m-sasrec": "ml-1m",
    "ml-1m-strong": "ml-1m",
    "anime-30pct": "anime",
    "anime-strong": "anime",
    "goodbooks-10k-v1": "goodbooks",
    "goodbooks-strong": "goodbooks",
    "beauty-bert4rec": "beauty",
    "s3rec-beauty": "beauty",
    "lastfm-hetrec2011": "lastfm",
    "s3rec-lastfm": "lastfm",
}


# --- data ------------------------------------------------------------------------------------------------------------


def events_of(folder: Path) -> Any:
    """All events of a data set, whatever its published parts are."""
    import polars as pl

    names = ("interactions", "ratings", "sequences", "train", "test", "test_foldin", "test_heldout")
    names += ("valid_foldin", "valid_heldout")
    frames = [pl.read_parquet(folder / f"{name}.parquet") for name in names if (folder / f"{name}.parquet").exists()]
    time_of = next((name for name in ("timestamp", "position") if name in frames[0].columns), None)
    columns = ["user", "item", *([time_of] if time_of else [])]
    return pl.concat([one.select(columns) for one in frames]), time_of


def prepare(data: Path, out: Path) -> None:
    """Every data set as pairs sorted by context, and for each variant which pairs train and which are asked for."""
    import polars as pl

    arrays: dict[str, np.ndarray] = {}
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        events, time_of = events_of(folder)
        codes = [events[name].rank("dense").to_numpy().astype(np.int64) - 1 for name in ("user", "item")]
        when = events[time_of].to_numpy() if time_of else np.zeros(len(events), np.int64)
        whole = pl.DataFrame({"c": codes[0], "i": codes[1], "t": when})
        pairs = whole.group_by("c", "i").agg(pl.col("t").min()).sort("c", "i")
        contexts, items, times = (pairs[name].to_numpy() for name in "cit")
        held = {"random": np.random.default_rng(0).random(len(pairs)) < 0.2}
        if time_of == "timestamp" and folder.name != "ml-1m-sasrec":
            held["time"] = times >= np.quantile(when, 0.9)
        if folder.name == "ml-1m-sasrec" or time_of == "position":
            last = pairs.with_columns(last=(pl.col("t").rank("ordinal").over("c") == pl.len().over("c")))
            held["last"] = last["last"].to_numpy()
        name = folder.name
        arrays[f"{name} lengths"] = np.bincount(contexts).astype(np.int32)
        arrays[f"{name} items"] = items.astype(np.uint16 if items.max() < 1 << 16 else np.int32)
        for how, mask in held.items():
            arrays[f"{name} {how}"] = np.packbits(mask)
        print(name, len(pairs), list(held), flush=True)
    np.savez_compressed(out, **arrays)


def names_of(loaded: Any) -> list[str]:
    """Of the variants: data set and kind of split."""
    return [name for name in loaded.files if name.rpartition(" ")[2] in ("random", "time", "last")]


def variant(loaded: Any, name: str, most: int | None = None) -> dict[str, np.ndarray]:
    """Train, and what is asked for, by codes of the contexts and items of train.

    `most`: of how many pairs at most, of contexts drawn at random.
    """
    source = name.rpartition(" ")[0]
    lengths, items = loaded[f"{source} lengths"], loaded[f"{source} items"].astype(np.int64)
    held = np.unpackbits(loaded[name], count=len(items)).astype(bool)
    contexts = np.repeat(np.arange(len(lengths)), lengths)
    if most is not None and most < len(items):
        order = np.random.default_rng(1).permutation(len(lengths))
        drawn = np.zeros(len(lengths), bool)
        drawn[order[: np.searchsorted(np.cumsum(lengths[order]), most)]] = True
        contexts, items, held = (one[drawn[contexts]] for one in (contexts, items, held))
    place = []
    for one, size in ((contexts, len(lengths)), (items, int(items.max()) + 1)):
        known = np.bincount(one[~held], minlength=size) > 0
        place.append(np.where(known, np.cumsum(known) - 1, -1))
    contexts, items = place[0][contexts], place[1][items]
    n_contexts, n_items = (int(one.max()) + 1 for one in place)
    train, truth = ~held, held & (contexts >= 0) & (items >= 0)
    asked = np.unique(contexts[truth])
    if len(asked) > MOST_ASKED:
        asked = np.sort(np.random.default_rng(0).choice(asked, MOST_ASKED, replace=False))
    truth &= np.isin(contexts, asked)
    size = np.bincount(contexts[truth], minlength=n_contexts)[asked]
    return {
        "shape": np.array([n_contexts, n_items]),
        "indptr": np.concatenate([[0], np.cumsum(np.bincount(contexts[train], minlength=n_contexts))]),
        "indices": items[train].astype(np.int32),
        "asked": asked,
        "truth_indptr": np.concatenate([[0], np.cumsum(size)]),
        "truth_indices": items[truth],
    }


# --- grids -----------------------------------------------------------------------------------------------------------


def ials() -> Iterator[Settings]:
    """30 settings that are the same on all data, at 8 epochs; then rules for what follows from the data, at 16."""
    alphas = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    wide = {0.01: alphas, 0.003: alphas[2:5], 0.03: alphas[:3]}
    for dim, ridge, alpha0 in (
        *((256, ridge, alpha0) for ridge, some in wide.items() for alpha0 in some),
        *((64, ridge, alpha0) for ridge in wide for alpha0 in alphas),
    ):
        yield {"dim": dim, "regularization": ridge, "unobserved_weight": alpha0, "epochs": 8}
    for kappa, ridge in ((6, 0.01), (10, 0.01), (16, 0.01), (10, 0.006), (10, 0.016)):
        yield {"dim": 256, "regularization": ridge, "unobserved_weight": f"{kappa}*n/I", "epochs": 16}
    yield {"dim": 256, "regularization": 0.01, "unobserved_weight": "200*1/I", "epochs": 16}


def bpr() -> Iterator[Settings]:
    """The settings of before, then 20 that are the same on all data."""
    yield {}
    svd, linear = {"init": "svd", "init_scale": 1.0}, {"schedule": "linear", "epochs": 30}
    for rate, ridge in itertools.product((0.1, 0.2), (0.005, 0.01, 0.02, 0.04)):
        yield {"learning_rate": rate, "regularization": ridge, **svd, **linear}
    for ridge in (0.002, 0.005, 0.01, 0.02):
        yield {"optimizer": "adagrad", "learning_rate": 0.03, "regularization": ridge, **svd, **linear}
    for rate in (0.03, 0.1):
        yield {"optimizer": "adagrad", "learning_rate": rate, "regularization": 0.01, **linear}
    for ridge in (0.002, 0.01):
        yield {"optimizer": "adam", "learning_rate": 0.003, "regularization": ridge, **svd, **linear}
    yield {"learning_rate": 0.2, "regularization": 0.005, **linear}
    yield {"learning_rate": 0.2, "regularization": 0.02, **linear}
    yield {"learning_rate": 0.2, "regularization": 0.01, "dim": 128, **svd, **linear}
    yield {"optimizer": "adagrad", "learning_rate": 0.03, "regularization": 0.005, "dim": 128, **svd, **linear}


def warp() -> Iterator[Settings]:
    """The settings of before, then 20 that are the same on all data."""
    yield {}
    svd, linear = {"init": "svd", "init_scale": 1.0}, {"schedule": "linear", "epochs": 20}
    for rate, ridge in itertools.product((0.01, 0.03, 0.1), (0.0, 0.002)):
        yield {"learning_rate": rate, "regularization": ridge, **svd, **linear}
        yield {"learning_rate": rate, "regularization": ridge, **linear}
    for rate, ridge in itertools.product((0.02, 0.05), (0.0, 0.005)):
        yield {"optimizer": "sgd", "learning_rate": rate, "regularization": ridge, **svd, **linear}
    yield {"learning_rate": 0.03, "init": "svd", "init_scale": 0.3, **linear}
    yield {"learning_rate": 0.03, "init": "svd", "init_scale": 2.0, **linear}
    yield {"learning_rate": 0.03, "dim": 128, **svd, **linear}
    yield {"learning_rate": 0.03, **svd, "schedule": "linear", "epochs": 8}


GRIDS = {"IALS": ials, "BPR": bpr, "WARP": warp}


def filled(settings: Settings, part: dict[str, np.ndarray]) -> Settings:
    """The settings, where one is a rule for the data, with its value: "10*n/I" is 10 · mean history / items."""
    n_contexts, n_items = (int(one) for one in part["shape"])
    known = {"n": len(part["indices"]) / n_contexts, "1": 1.0}
    values = dict(settings)
    if isinstance(rule := settings.get("unobserved_weight"), str):
        constant, _, of = rule.removesuffix("/I").partition("*")
        values["unobserved_weight"] = float(constant) * known[of] / n_items
    return values


# --- search ----------------------------------------------------------------------------------------------------------


def by_context(model: Any, part: dict[str, np.ndarray]) -> np.ndarray:
    """NDCG@20 of each context that is asked for, what it had in training left out."""
    asked, starts = part["asked"], part["truth_indptr"]
    gains = 1 / np.log2(np.arange(CUT) + 2)
    best = np.concatenate([[0], np.cumsum(gains)])
    found = np.zeros(len(asked))
    for begin in range(0, len(asked), 1000):
        answer = model.recommend(asked[begin : begin + 1000], n=CUT, threads=1)
        for row, ids in enumerate(answer.ids, begin):
            truth = part["truth_indices"][starts[row] : starts[row + 1]]
            hits = np.isin(ids, truth)
            found[row] = gains[: len(hits)][hits].sum() / best[min(CUT, len(truth))]
    return found


def search(args: argparse.Namespace) -> None:
    """Fit the grid on every variant, smallest first; keep the lines."""
    import scipy.sparse as sp

    import shortlist as sl

    loaded = np.load(args.file)
    names = sorted(names_of(loaded), key=lambda name: len(loaded[f"{name.rpartition(' ')[0]} items"]))
    if args.only:
        names = [name for name in names if any(part in name for part in args.only)]
    out = args.out or STUDIES / f"defaults-{args.model.lower()}.csv"
    done = {(line["variant"], line["settings"]) for line in read(out)}
    for name in names:
        todo = [settings for settings in GRIDS[args.model]() if (name, text_of(settings)) not in done]
        if not todo:
            continue
        part = variant(loaded, name, args.most)
        pairs = np.ones(len(part["indices"]), np.float32), part["indices"], part["indptr"]
        events = sl.Interactions.from_csr(sp.csr_array(pairs, shape=tuple(part["shape"])))
        for settings in todo:
            began = time.process_time()
            model = getattr(sl, args.model)(**filled(settings, part)).fit(events, threads=1)
            seconds = time.process_time() - began
            values = by_context(model, part)
            error = values.std() / np.sqrt(len(values))
            line = {"variant": name, "settings": text_of(settings), "ndcg": f"{values.mean():.5f}"}
            line |= {"error": f"{error:.5f}", "seconds": f"{seconds:.2f}"}
            keep(out, line)
            print(*line.values(), flush=True)


def text_of(settings: Settings) -> str:
    """Settings as they stand in the file."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def read(path: Path) -> list[dict[str, str]]:
    """The lines of a study; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def keep(path: Path, line: dict[str, Any]) -> None:
    """Add a line to the file."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, line.keys(), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one = commands.add_parser("search")
    one.add_argument("file", type=Path)
    one.add_argument("--model", choices=list(GRIDS), default="IALS")
    one.add_argument("--most", type=int, help="pairs of a data set, of contexts drawn at random")
    one.add_argument("--out", type=Path, help="by default benchmarks/studies/defaults-MODEL.csv")
    one.add_argument("--only", nargs="+", help="variants whose name has one of these in it")
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
    else:
        search(args)


if __name__ == "__main__":
    main()
