"""Which settings are good on data that nobody has tuned for? The study behind the defaults.

    python benchmarks/defaults.py prepare --data ../shared/data --out defaults.npz
    python benchmarks/defaults.py search defaults.npz                (into benchmarks/studies/defaults-ials.csv)
    python benchmarks/defaults.py versus defaults.npz                (beside implicit, which must be installed)
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
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from machine import PLAIN_SGD

STUDIES = Path(__file__).parent / "studies"
CUT = 20
MOST_ASKED = 5000
Settings: TypeAlias = dict[str, Any]
Part: TypeAlias = dict[str, np.ndarray]
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


@dataclass(frozen=True)
class Task:
    """A fit on a variant."""

    file: Path
    name: str
    model: str
    settings: Settings
    device: str | None
    most: int | None


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
        if time_of == "timestamp":
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


def variant(loaded: Any, name: str, most: int | None = None) -> Part:
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
    for kappa, ridge in itertools.product((4, 6, 8, 10, 13, 16, 20), (0.004, 0.006, 0.008, 0.01, 0.013, 0.016)):
        yield {"dim": 256, "regularization": ridge, "unobserved_weight": f"{kappa}*n/I", "epochs": 16}
    for dim, epochs in ((256, 8), (128, 16), (512, 16)):
        yield {"dim": dim, "regularization": 0.01, "unobserved_weight": "10*n/I", "epochs": epochs}
    for exponent in (-0.25, 0.25):
        usual = {"dim": 256, "regularization": 0.01, "unobserved_weight": "10*n/I", "epochs": 16}
        yield usual | {"unobserved_item_exponent": exponent}
    yield {"dim": 256, "regularization": 0.01, "unobserved_weight": "200*1/I", "epochs": 16}


def bpr() -> Iterator[Settings]:
    """20 settings that are the same on all data; the first are those of before, the default is one of them."""
    svd, linear = {"init": "svd", "init_scale": 1.0}, {"schedule": "linear", "epochs": 30}
    adagrad = {"optimizer": "adagrad"} | svd | linear
    yield {"dim": 64, "optimizer": "sgd", "learning_rate": 0.05, "regularization": 0.01, "epochs": 50}
    yield {"dim": 64, "optimizer": "sgd", "learning_rate": 0.2, "regularization": 0.02} | linear
    for rate, ridge in ((0.03, 0.002), (0.03, 0.005), (0.03, 0.02), (0.01, 0.005), (0.1, 0.005), (0.1, 0.02)):
        yield {"dim": 128, "learning_rate": rate, "regularization": ridge} | adagrad
    for dim, ridge in itertools.product((64, 256), (0.005, 0.02)):
        yield {"dim": dim, "learning_rate": 0.03, "regularization": ridge} | adagrad
    for dim in (128, 256):
        yield {"dim": dim, "learning_rate": 0.03, "regularization": 0.01} | adagrad | {"epochs": 10}
    for rate, ridge in ((0.1, 0.02), (0.2, 0.01), (0.2, 0.02)):
        yield {"dim": 128, "optimizer": "sgd", "learning_rate": rate, "regularization": ridge} | svd | linear
    yield {"dim": 128, "optimizer": "adam", "learning_rate": 0.003, "regularization": 0.01} | svd | linear
    yield {"dim": 128, "optimizer": "adagrad", "learning_rate": 0.1, "regularization": 0.01} | linear
    yield {"dim": 128, "learning_rate": 0.03, "regularization": 0.005} | adagrad | {"init_scale": 0.3}


def warp() -> Iterator[Settings]:
    """20 settings that are the same on all data; the first are those of before, the default is one of them."""
    svd, linear = {"init": "svd", "init_scale": 1.0}, {"schedule": "linear", "epochs": 20}
    yield {"dim": 64, "optimizer": "adagrad", "learning_rate": 0.05, "epochs": 50}
    for dim, rate in itertools.product((64, 128), (0.01, 0.03, 0.1)):
        yield {"dim": dim, "learning_rate": rate} | svd | linear
    for rate, ridge in ((0.01, 0.002), (0.03, 0.002), (0.03, 0.01)):
        yield {"dim": 128, "learning_rate": rate, "regularization": ridge} | svd | linear
    for rate in (0.03, 0.1):
        yield {"dim": 64, "learning_rate": rate} | linear
    for rate in (0.003, 0.01, 0.03):
        yield {"dim": 256, "learning_rate": rate} | svd | linear
    for epochs in (5, 10):
        yield {"dim": 128, "learning_rate": 0.02} | svd | linear | {"epochs": epochs}
    yield {"dim": 128, "optimizer": "sgd", "learning_rate": 0.01} | svd | linear
    for scale in (0.3, 2.0):
        yield {"dim": 128, "learning_rate": 0.03} | svd | linear | {"init_scale": scale}


def adaptive_bpr() -> Iterator[Settings]:
    """The settings of before, and some that begin at singular vectors."""
    yield {"dim": 64, "epochs": 50}
    for rate, ridge in ((0.03, 0.01), (0.01, 0.01), (0.03, 0.02), (0.03, 0.005), (0.01, 0.005), (0.1, 0.02)):
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 10}
    yield {"dim": 128, "learning_rate": 0.03, "regularization": 0.01} | FROM_VECTORS | {"epochs": 10}
    for ridge in (0.01, 0.02):
        yield {"dim": 256, "learning_rate": 0.03, "regularization": ridge} | FROM_VECTORS | {"epochs": 20}


def lambda_mf() -> Iterator[Settings]:
    """The same for a loss with small weights."""
    yield {"dim": 64, "epochs": 50}
    rates = (
        *((0.03, 0.001), (0.01, 0.001), (0.03, 0.0001), (0.01, 0.0001), (0.03, 0.003), (0.1, 0.001), (0.01, 0.0003)),
        *((0.03, 0.00003), (0.02, 0.0001), (0.02, 0.00005), (0.01, 0.00003)),
    )
    for rate, ridge in rates:
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 10}
    for rate, ridge in ((0.01, 0.001), (0.01, 0.0001), (0.02, 0.0001)):
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 20}


def pointwise() -> Iterator[Settings]:
    """The same for pointwise losses."""
    yield {"dim": 64, "epochs": 50}
    rates = (
        *((0.03, 0.01), (0.01, 0.01), (0.03, 0.003), (0.01, 0.003), (0.03, 0.03), (0.1, 0.01), (0.1, 0.03)),
        *((0.02, 0.02), (0.02, 0.03)),
    )
    for rate, ridge in rates:
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 10}
    for rate, ridge in ((0.03, 0.01), (0.03, 0.003), (0.05, 0.01), (0.02, 0.02)):
        yield {"dim": 256, "learning_rate": rate, "regularization": ridge} | FROM_VECTORS | {"epochs": 20}
    yield {"dim": 256, "learning_rate": 0.03, "regularization": 0.01} | FROM_VECTORS | {"epochs": 40}


FROM_VECTORS: Settings = {"optimizer": "adagrad", "init": "svd", "init_scale": 1.0, "schedule": "linear"}
GRIDS = {
    "IALS": ials,
    "BPR": bpr,
    "WARP": warp,
    "AdaptiveBPR": adaptive_bpr,
    "LambdaMF": lambda_mf,
    "LogisticMF": pointwise,
    "HingeMF": pointwise,
    "SquareMF": pointwise,
}
OTHERS = ("AdaptiveBPR", "LambdaMF", "LogisticMF", "HingeMF", "SquareMF")
SAMPLED = PLAIN_SGD | {"learning_rate": 0.05, "regularization": 0.01}  # what these grids mean where they name nothing
UNNAMED: dict[str, Settings] = {
    "IALS": {},
    "WARP": SAMPLED | {"regularization": 0.0, "optimizer": "adagrad"},
    "LambdaMF": SAMPLED | {"learning_rate": 0.5, "regularization": 0.001},
}


def default_of(kind: str) -> Settings:
    """The settings of a grid that are the recommender's own."""
    import shortlist as sl

    own = getattr(sl, kind)().settings()
    for one in GRIDS[kind]():
        if own | UNNAMED.get(kind, SAMPLED) | one == own:
            return one
    raise SystemExit(f"none of the settings that the study tries is {kind}()")


def filled(settings: Settings, part: Part) -> Settings:
    """The settings, where one is a rule for the data, with its value: "10*n/I" is 10 · mean history / items."""
    n_contexts, n_items = (int(one) for one in part["shape"])
    known = {"n": len(part["indices"]) / n_contexts, "1": 1.0}
    values = dict(settings)
    if isinstance(rule := settings.get("unobserved_weight"), str):
        constant, _, of = rule.removesuffix("/I").partition("*")
        values["unobserved_weight"] = float(constant) * known[of] / n_items
    return values


# --- search ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def events_and_part(file: Path, name: str, most: int | None) -> tuple[Any, Part]:
    """The events to learn from, and what is asked for."""
    import scipy.sparse as sp

    import shortlist as sl

    part = variant(np.load(file), name, most)
    pairs = np.ones(len(part["indices"]), np.float32), part["indices"], part["indptr"]
    return sl.Interactions.from_csr(sp.csr_array(pairs, shape=tuple(part["shape"]))), part


def best_items(model: Any, part: Part) -> np.ndarray:
    """The best items of each context that is asked for, what it had in training left out."""
    asked = np.array_split(part["asked"], len(part["asked"]) // 1000 + 1)
    ids = [list(row) + [-1] * (CUT - len(row)) for some in asked for row in model.recommend(some, n=CUT, threads=1).ids]
    return np.array(ids)


def best_items_on_device(model: Any, part: Part, device: str) -> np.ndarray:
    """As `best_items`, by a GPU."""
    import torch

    contexts, items = (
        torch.tensor(side, device=device) for side in (model.context_embeddings_, model.item_embeddings_)
    )
    found = []
    for some in np.array_split(part["asked"], len(part["asked"]) // 500 + 1):
        scores = contexts[torch.tensor(some, device=device)] @ items.T
        seen = [part["indices"][part["indptr"][row] : part["indptr"][row + 1]] for row in some]
        rows = np.repeat(np.arange(len(some)), [len(row) for row in seen])
        columns = np.concatenate(seen).astype(np.int64)
        scores[torch.tensor(rows, device=device), torch.tensor(columns, device=device)] = -torch.inf
        found.append(scores.topk(CUT).indices.cpu().numpy())
    return np.concatenate(found)


def values_of(ids: np.ndarray, part: Part) -> np.ndarray:
    """NDCG@20 of each context that is asked for."""
    gains = 1 / np.log2(np.arange(CUT) + 2)
    ideal = np.concatenate([[0], np.cumsum(gains)])
    starts = part["truth_indptr"]
    values = np.zeros(len(ids))
    for row, best in enumerate(ids):
        truth = part["truth_indices"][starts[row] : starts[row + 1]]
        values[row] = gains[np.isin(best, truth)].sum() / ideal[min(CUT, len(truth))]
    return values


def error_of(values: np.ndarray) -> float:
    """The standard error of the mean."""
    return float(values.std() / np.sqrt(len(values)))


def tried(task: Task) -> tuple[np.ndarray, float]:
    """Fit: NDCG@20 of each context that is asked for, and the CPU-seconds of the fit."""
    import shortlist as sl

    events, part = events_and_part(task.file, task.name, task.most)
    on_device = {"device": task.device} if task.device else {}
    began = time.process_time()
    unnamed = UNNAMED.get(task.model, SAMPLED) if task.settings else {}
    settings = unnamed | filled(task.settings, part)
    model = getattr(sl, task.model)(**settings, **on_device).fit(events, threads=1)
    seconds = time.process_time() - began
    ids = best_items_on_device(model, part, task.device) if task.device else best_items(model, part)
    return values_of(ids, part), seconds


def line_of(task: Task) -> dict[str, str]:
    """A line of a study."""
    values, seconds = tried(task)
    line = {"variant": task.name, "settings": text_of(task.settings), "ndcg": f"{values.mean():.5f}"}
    return line | {"error": f"{error_of(values):.5f}", "seconds": f"{seconds:.2f}"}


def peer_tried(task: Task) -> tuple[np.ndarray, float]:
    """The same of implicit's AlternatingLeastSquares with its default settings."""
    import scipy.sparse as sp
    from implicit.als import AlternatingLeastSquares

    part = variant(np.load(task.file), task.name, task.most)
    pairs = np.ones(len(part["indices"]), np.float32), part["indices"], part["indptr"]
    matrix = sp.csr_matrix(pairs, shape=tuple(part["shape"]))
    began = time.process_time()
    model = AlternatingLeastSquares(num_threads=1, random_state=0)
    model.fit(matrix, show_progress=False)
    seconds = time.process_time() - began
    asked = np.array_split(part["asked"], len(part["asked"]) // 1000 + 1)
    return values_of(np.concatenate([model.recommend(some, matrix[some], N=CUT)[0] for some in asked]), part), seconds


def versus_line(task: Task) -> dict[str, str]:
    """The default beside implicit's: the difference, and the standard error of the paired difference."""
    (ours, seconds), (theirs, theirs_seconds) = tried(task), peer_tried(task)
    part = events_and_part(task.file, task.name, task.most)[1]
    counts = np.bincount(part["indices"], minlength=part["shape"][1]).astype(float)
    return {
        "variant": task.name,
        "item_pairs": f"{counts.mean():.2f}",
        "evenness": f"{counts.mean() ** 2 / np.square(counts).mean():.4f}",
        "ndcg": f"{ours.mean():.5f}",
        "implicit": f"{theirs.mean():.5f}",
        "difference": f"{(ours - theirs).mean():.5f}",
        "error": f"{error_of(ours - theirs):.5f}",
        "seconds": f"{seconds:.2f}",
        "implicit_seconds": f"{theirs_seconds:.2f}",
    }


def versus(args: argparse.Namespace) -> None:
    """IALS() and implicit's default on every variant."""
    out = args.out / "defaults-implicit.csv"
    done = {line["variant"] for line in read(out)}
    for name in names_of(np.load(args.file)):
        if name not in done:
            line = versus_line(Task(args.file, name, "IALS", {}, None, None))
            keep(out, line)
            print(*line.values(), flush=True)


def search(args: argparse.Namespace) -> None:
    """Fit the grid on every variant and keep the lines, the largest variants first where several processes do it."""
    loaded = np.load(args.file)
    names = sorted(names_of(loaded), key=lambda name: len(loaded[f"{name.rpartition(' ')[0]} items"]))
    names = [name for name in names if not args.only or any(part in name for part in args.only)]
    if args.workers > 1:
        names.reverse()
    tasks = []
    for kind in args.models:
        out = args.out / f"defaults-{kind.lower()}.csv"
        done = {(line["variant"], line["settings"]) for line in read(out)}
        grid = list(GRIDS[kind]())
        if args.short:
            grid = [one for one in grid if text_of(one) in (text_of(grid[0]), text_of(default_of(kind)))]
        some = (Task(args.file, name, kind, one, args.device, args.most) for name in names for one in grid)
        tasks += [(out, task) for task in some if (task.name, text_of(task.settings)) not in done]
    if args.workers > 1:
        tasks.sort(key=lambda pair: names.index(pair[1].name))
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        running = {pool.submit(line_of, task): out for out, task in tasks}
        for each in as_completed(running):
            keep(running[each], each.result())
            print(running[each].stem, *each.result().values(), flush=True)


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


# --- tables ----------------------------------------------------------------------------------------------------------


def source_of(name: str) -> str:
    """Where the data of a variant come from."""
    source = name.rpartition(" ")[0]
    return SOURCES.get(source, source)


def ndcgs(path: Path) -> dict[str, dict[str, float]]:
    """NDCG@20 by variant and settings."""
    found: dict[str, dict[str, float]] = {}
    for line in read(path):
        found.setdefault(line["variant"], {})[line["settings"]] = float(line["ndcg"])
    return found


def ials_table(studies: Path) -> None:
    """Each variant: the default, the best fixed setting, implicit; then the rules without each source."""
    found = ndcgs(studies / "defaults-ials.csv")
    fixed = [text_of(one) for one in ials() if "/I" not in text_of(one)]
    best = {name: max(values[one] for one in fixed) for name, values in found.items()}
    print("| data and split | `IALS()` | best of 30 | share | implicit | difference | standard error |")
    print("|---|---|---|---|---|---|---|")
    shares = []
    lines = sorted(read(studies / "defaults-implicit.csv"), key=lambda line: line["variant"])
    for line in lines:
        share = float(line["ndcg"]) / best[line["variant"]]
        shares.append(share)
        values = (float(line["ndcg"]), best[line["variant"]], share, float(line["implicit"]))
        both = float(line["difference"]), float(line["error"])
        print(f"| {line['variant']} | {' | '.join(figure(one) for one in values)} |", end=" ")
        print(f"{both[0]:+.4f} | {figure(both[1])} |".replace("+0.", "+.").replace("-0.", "−."))
    print(f"\nshare: mean {figure(np.mean(shares))}, least {figure(np.min(shares))}\n")
    print("| fixed settings and rules | mean share | least |\n|---|---|---|")
    every = {one: [values[one] / best[name] for name, values in found.items()] for one in map(text_of, ials())}
    for one in sorted(every, key=lambda one: -np.mean(every[one])):
        print(f"| {one} | {figure(np.mean(every[one]))} | {figure(np.min(every[one]))} |")
    print()
    shapes = {line["variant"]: (float(line["item_pairs"]), float(line["evenness"])) for line in lines}
    grid = itertools.product(
        (0.006, 0.007, 0.008, 0.009, 0.01, 0.011),
        (0.0, -0.1, -0.15, -0.2, -0.25, -0.3),
        (0.0, -0.1, -0.2, -0.3, -0.4),
        (8, 10, 12),
    )
    candidates = {rule: [rule_share(found[name], best[name], *shapes[name], *rule) for name in found] for rule in grid}
    values, rules = np.array(list(candidates.values())), list(candidates)
    sources = np.array([source_of(name) for name in found])
    left_out = np.zeros(len(sources))
    for source in dict.fromkeys(sources):
        own = sources == source
        chosen = int(values[:, ~own].mean(axis=1).argmax())
        left_out[own] = values[chosen, own]
        level, by_pairs, by_evenness, kappa = rules[chosen]
        print(f"without {source}: λ = {level}·(n̄ / 30)^{by_pairs}·e^{by_evenness}, κ = {kappa}")
    print(
        f"share of what was chosen without the source: mean {figure(left_out.mean())}, least {figure(left_out.min())}"
    )


def rule_share(
    found: dict[str, float], best: float, item_pairs: float, evenness: float, level: float, *rule: float
) -> float:
    """The share of λ = level·(n̄ / 30)^b·e^c and a κ, where `rule` is b, c and κ.

    Between the κ and λ of the study it is linear in their logarithms.
    """
    from scipy.interpolate import RegularGridInterpolator

    by_pairs, by_evenness, kappa = rule
    kappas, ridges = (4, 6, 8, 10, 13, 16, 20), (0.004, 0.006, 0.008, 0.01, 0.013, 0.016)
    usual = "dim=256 regularization={} unobserved_weight={}*n/I epochs=16"
    values = [[found[usual.format(ridge, kappa)] / best for ridge in ridges] for kappa in kappas]
    ridge = level * (item_pairs / 30) ** by_pairs * evenness**by_evenness
    point = np.log([kappa, np.clip(ridge, ridges[0], ridges[-1])])
    return float(RegularGridInterpolator((np.log(kappas), np.log(ridges)), np.array(values))(point)[0])


def measured(studies: Path, kind: str) -> tuple[dict[str, dict[str, float]], dict[tuple[str, str], float]]:
    """NDCG@20 by variant and settings, and the CPU-seconds of each fit."""
    path = studies / f"defaults-{kind.lower()}.csv"
    return ndcgs(path), {(line["variant"], line["settings"]): float(line["seconds"]) for line in read(path)}


def others_table(studies: Path) -> None:
    """The models that are told of together: each data set now and before; the shares where all settings were tried."""
    studied = {kind: measured(studies, kind) for kind in OTHERS}
    both = {kind: (text_of(default_of(kind)), text_of(next(GRIDS[kind]()))) for kind in OTHERS}
    names = list(studied[OTHERS[0]][0])
    print(
        "| data | "
        + " | ".join(f"`{kind}()` | before" for kind in OTHERS)
        + " |\n|---"
        + "|---" * 2 * len(OTHERS)
        + "|"
    )
    for name in names:
        values = (figure(studied[kind][0][name][one]) for kind in OTHERS for one in both[kind])
        print(f"| {name.removesuffix(' random')} | {' | '.join(values)} |")
    head = ["", "settings tried", "mean share", "least", "before", "CPU-seconds of all", "before"]
    print(f"\n| {' | '.join(head)} |\n" + "|---" * len(head) + "|")
    for kind, (found, seconds) in studied.items():
        tried = max(map(len, found.values()))
        complete = [values for values in found.values() if len(values) == tried]
        now, before = ([values[one] / max(values.values()) for values in complete] for one in both[kind])
        shares = " | ".join(map(figure, (np.mean(now), min(now), np.mean(before))))
        times = " | ".join(f"{sum(seconds[name, one] for name in names):.0f}" for one in both[kind])
        print(f"| `{kind}` | {tried} | {shares} | {times} |")


def sgd_table(studies: Path, kind: str, default: Settings) -> None:
    """Each data set: the default, the settings of before and the best; the mean share of every setting."""
    found, seconds = measured(studies, kind)
    settings = [text_of(one) for one in GRIDS[kind]()]
    chosen, before = text_of(default), settings[0]
    found = {name: values for name, values in found.items() if len(values) == len(settings)}
    print(f"| data | `{kind}()` | before | best of {len(settings)} | share | CPU-seconds | before |")
    print("|---|---|---|---|---|---|---|")
    for name, values in found.items():
        best = max(values.values())
        shown = (values[chosen], values[before], best, values[chosen] / best)
        times = (f"{seconds[name, one]:.1f}" for one in (chosen, before))
        print(f"| {name.removesuffix(' random')} | {' | '.join(map(figure, shown))} | {' | '.join(times)} |")
    print(f"\n| settings of `{kind}` | mean share | least | CPU-seconds |\n|---|---|---|---|")
    shares = {one: [values[one] / max(values.values()) for values in found.values()] for one in settings}
    for one in sorted(settings, key=lambda one: -np.mean(shares[one])):
        mark = " (default)" * (one == chosen) + " (before)" * (one == before)
        total = sum(seconds[name, one] for name in found)
        print(f"| {one}{mark} | {figure(np.mean(shares[one]))} | {figure(np.min(shares[one]))} | {total:.0f} |")


def figure(value: float) -> str:
    """As in the docs: without the zero before the point."""
    return f"{value:.4f}".replace("0.", ".", 1) if value < 1 else f"{value:.3f}"


def table(args: argparse.Namespace) -> None:
    """What docs/benchmarks.md shows."""
    if args.model == "IALS":
        ials_table(args.studies)
    elif args.model == "others":
        others_table(args.studies)
    else:
        sgd_table(args.studies, args.model, default_of(args.model))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--out", type=Path, required=True)
    one = commands.add_parser("search")
    one.add_argument("file", type=Path)
    one.add_argument("--models", choices=list(GRIDS), nargs="+", default=["IALS"])
    one.add_argument("--workers", type=int, default=1, help="processes; each fits with one thread")
    one.add_argument("--device", help="for IALS: a GPU, such as cuda")
    one.add_argument("--most", type=int, help="pairs of a data set, of contexts drawn at random")
    one.add_argument("--out", type=Path, default=STUDIES, help="a folder for the files, defaults-MODEL.csv")
    one.add_argument("--short", action="store_true", help="only the default and the settings of before")
    one.add_argument("--only", nargs="+", help="variants whose name has one of these in it")
    one = commands.add_parser("versus")
    one.add_argument("file", type=Path)
    one.add_argument("--out", type=Path, default=STUDIES, help="a folder for the file, defaults-implicit.csv")
    one = commands.add_parser("table")
    one.add_argument("--model", choices=[*GRIDS, "others"], default="IALS")
    one.add_argument("--studies", type=Path, default=STUDIES)
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.data, args.out)
    else:
        {"search": search, "versus": versus, "table": table}[args.command](args)


if __name__ == "__main__":
    main()
