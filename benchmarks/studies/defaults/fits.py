"""How good is a setting on held-out pairs? Fits a grid on every variant of every data set."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.defaults.data import Part, names_of, variant
from benchmarks.studies.defaults.grids import GRIDS, SAMPLED, UNNAMED, Settings, default_of, filled
from benchmarks.studies.defaults.lines import keep, read, text_of

CUT = 20


@dataclass(frozen=True)
class Task:
    """A fit on a variant."""

    file: Path
    name: str
    model: str
    settings: Settings
    device: str | None
    most: int | None


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
    best = []
    for some in np.array_split(part["asked"], len(part["asked"]) // 500 + 1):
        scores = contexts[torch.tensor(some, device=device)] @ items.T
        seen = [part["indices"][part["indptr"][row] : part["indptr"][row + 1]] for row in some]
        rows = np.repeat(np.arange(len(some)), [len(row) for row in seen])
        columns = np.concatenate(seen).astype(np.int64)
        scores[torch.tensor(rows, device=device), torch.tensor(columns, device=device)] = -torch.inf
        best.append(scores.topk(CUT).indices.cpu().numpy())
    return np.concatenate(best)


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
            grid = [settings for settings in grid if text_of(settings) in (text_of(grid[0]), text_of(default_of(kind)))]
        some = (Task(args.file, name, kind, settings, args.device, args.most) for name in names for settings in grid)
        tasks += [(out, task) for task in some if (task.name, text_of(task.settings)) not in done]
    if args.workers > 1:
        tasks.sort(key=lambda pair: names.index(pair[1].name))
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        running = {pool.submit(line_of, task): out for out, task in tasks}
        for each in as_completed(running):
            keep(running[each], each.result())
            print(running[each].stem, *each.result().values(), flush=True)
