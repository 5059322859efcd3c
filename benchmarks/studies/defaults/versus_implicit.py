"""Is `IALS()` better than implicit with its default settings?"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.studies.defaults.data import names_of, variant
from benchmarks.studies.defaults.fits import CUT, Task, error_of, events_and_part, tried, values_of
from benchmarks.studies.defaults.lines import keep, read


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
