"""Do the tags of new items tell who will like them, better than neighbours by the same tags do?

    python -m benchmarks.questions.cold_items [--data ../shared/data] [--trials 20] [--seeds 3]

On citeulike-a's cold split. The articles of the three parts are different ones. Models are fitted to the training part
with the tags of all articles, and rank the articles of the validation or the test part alone, for every user who has
some of them. Those without a tag (a fifth) can be found by none of the models; they count as missed.

The neighbours are TF-IDF vectors of the tags and their cosine: a user's score of an article is the sum over the user's
own articles, all of them or only near ones. Every model gets as many trials, the neighbours, which are quick, twice as
many. They are judged on the validation part by Recall@100 (hits / articles held out), and by Recall@43: 43 places are
as large a share of its candidates as 100 are of the test part's. The best by each of the two is measured on the test
part. Training is `cold_train` for both parts. Intervals are of the difference to the neighbours that were chosen in the
same way, over the same users, who are drawn again and again.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

import shortlist as sl
from benchmarks.lib.bootstrap import interval
from benchmarks.lib.halton_search import SQUARE, Ranges, best, searched
from benchmarks.lib.paths import DATA
from benchmarks.lib.results import MULTILINEAR, store

N = 100
HEAD = 20
METRIC = "recall@100"
NEIGHBOURS = "content neighbours"
DESCRIBED: Ranges = SQUARE | {"dim": [64, 128, 256], "min_count": [2, 3, 5, 10], "normalize": ["norm"]}
NEAR = ["all", "of catalogue 100", "of catalogue 300", "of user 3", "of user 10"]
SPACES: dict[str, Ranges] = {
    NEIGHBOURS: {
        "min_count": [1, 2, 3, 5],
        "idf_exponent": [0.5, 1.0, 1.5],
        "norm_exponent": [0.5, 0.75, 1.0],  # how much of a new article's length is divided out; 1: cosine
        "similarity_exponent": [0.5, 1.0, 1.5, 2.0],
        "near": NEAR,
    },
    "FeatureIALS": DESCRIBED | {"feature_strength": (0.01, 100.0)},
    "FactorizationMachine": DESCRIBED | {"item_ids": [True, False]},
}


@dataclass
class Cold:
    """What is learnt from, and a part to be answered."""

    train: pl.DataFrame
    tags: pl.DataFrame  # item and its tags
    truth: dict[int, set[int]]  # of a user
    candidates: list[int]

    @property
    def users(self) -> list[int]:
        """Those who are asked about."""
        return list(self.truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    validation, test = (read(args.data, part) for part in ("valid", "test"))
    depths = {f"recall@{n}": n for n in (N, round(N * len(validation.candidates) / len(test.candidates)))}
    rows: list[dict[str, Any]] = []
    base: dict[str, np.ndarray] = {}
    users = np.asarray(test.users)
    for model, ranges in SPACES.items():

        def judged(settings: dict[str, Any], model: str = model) -> dict[str, float]:
            lists = answers(model, settings, validation)
            return {metric: float(recalls(lists, validation, n).mean()) for metric, n in depths.items()}

        found = searched(model, ranges, judged, args.trials * (2 if model == NEIGHBOURS else 1))
        for by in depths:
            settings = best(found, by)
            seeds = [{}] if model == NEIGHBOURS else [{"seed": seed} for seed in range(args.seeds)]
            lists = [answers(model, settings | seed, test) for seed in seeds]
            values = {n: np.mean([recalls(one, test, n) for one in lists], axis=0) for n in (HEAD, N)}
            apart = {n: values[n] - base.setdefault(f"{by}, {n}", values[n]) for n in values}
            row = {
                "model": model,
                "by": by,
                "settings": settings,
                "trials": len(found),
                "validation": max(one[by] for one in found),
                "seeds": [float(recalls(one, test, N).mean()) for one in lists],
                "capped": float(np.mean([recalls(one, test, N, capped=True) for one in lists])),
            }
            for n, own in values.items():
                row[f"recall@{n}"] = {
                    "mean": float(own.mean()),
                    "interval": interval(own, users),
                    "difference": float(apart[n].mean()),
                    "difference_interval": interval(apart[n], users),
                }
            rows.append(row | {"all_trials": found if by == METRIC else []})
            print(f"{model} by {by}: {row[METRIC]} {settings}", flush=True)
    parts = {name: told(part) for name, part in (("valid", validation), ("test", test))}
    store("cold", {"rows": rows, "parts": parts, "trials": args.trials}, MULTILINEAR)


def read(data: Path, part: str) -> Cold:
    folder = data / "citeulike-a"
    train, asked = (pl.read_parquet(folder / f"cold_{name}.parquet") for name in ("train", part))
    tags = pl.read_parquet(folder / "item_tags.parquet").group_by("item").agg(pl.col("tag").unique().sort())
    truth = {user: set(items) for user, items in asked.group_by("user").agg("item").sort("user").iter_rows()}
    return Cold(train, tags.sort("item"), truth, asked["item"].unique().sort().to_list())


def told(part: Cold) -> dict[str, float]:
    """How large a part is, and what could be reached in it."""
    tagged = set(part.candidates) & set(part.tags["item"])
    return {
        "users": len(part.users),
        "candidates": len(part.candidates),
        "tagged": len(tagged),
        "random": N / len(part.candidates),
        "random_tagged": float(np.mean([len(one & tagged) / len(one) for one in part.truth.values()]))
        * N
        / len(tagged),
        "most": float(np.mean([min(N, len(one & tagged)) / len(one) for one in part.truth.values()])),
    }


def recalls(lists: list[list[int]], part: Cold, n: int, *, capped: bool = False) -> np.ndarray:
    """Of every user, within n places: hits / held out, or capped: / the most that n places can hold."""
    found = zip(lists, part.truth.values(), strict=True)
    return np.array(
        [len(truth.intersection(one[:n])) / min(len(truth), n if capped else len(truth)) for one, truth in found]
    )


# --- models ----------------------------------------------------------------------------------------------------------


def answers(model: str, settings: dict[str, Any], part: Cold) -> list[list[int]]:
    if model == NEIGHBOURS:
        return neighbours(part, **settings)
    settings = dict(settings)
    features = sl.Features.from_frame(
        part.tags.select("item", "tag"),
        id="item",
        multi_valued="tag",
        min_count=settings.pop("min_count"),
        normalize=settings.pop("normalize"),
    )
    fixed = {"within": False} if model == "FactorizationMachine" else {}
    events = sl.Interactions.from_frame(part.train, context="user", item="item")
    fitted = getattr(sl, model)(**fixed | settings).fit(events, item_features=features, progress=False)
    return fitted.recommend(part.users, n=N, allow=part.candidates, exclude_seen=False).ids


def neighbours(
    part: Cold, min_count: int, idf_exponent: float, norm_exponent: float, similarity_exponent: float, near: str
) -> list[list[int]]:
    """Articles without a tag that counts are in no list."""
    X = vectors(part, min_count, idf_exponent)
    lengths = np.sqrt(X.multiply(X).sum(axis=1))
    with np.errstate(divide="ignore"):
        inverse = np.where(lengths > 0, 1 / lengths, 0)
        partly = np.where(lengths > 0, lengths**-norm_exponent, 0)
    candidates = np.array([item for item in part.candidates if lengths[item] > 0])
    old = sp.diags_array(inverse) @ X
    new = (sp.diags_array(partly) @ X)[candidates]
    S = (new @ old.T).toarray().astype(np.float32) ** similarity_exponent  # candidates × all articles
    had = histories(part, X.shape[0])
    how, k = near.rsplit(" ", 1) if near != "all" else (near, "0")
    if how == "of catalogue":
        S[:, had.sum(axis=0) == 0] = 0  # neighbours are articles that someone has had
        least = np.partition(S, -int(k), axis=1)[:, -int(k)]
        S[least[:, None] > S] = 0
    if how == "of user":
        scores = np.empty((len(part.users), len(candidates)), np.float32)
        for row in range(len(scores)):
            own = S[:, had.indices[had.indptr[row] : had.indptr[row + 1]]]
            cut = max(0, own.shape[1] - int(k))
            scores[row] = np.partition(own, cut, axis=1)[:, cut:].sum(axis=1)
    else:
        scores = had @ S.T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :N]
    return candidates[order].tolist()


def vectors(part: Cold, min_count: int, idf_exponent: float) -> sp.csr_array:
    """Articles × tags, by idf."""
    flat = part.tags.explode("tag")
    n_items = 1 + max(part.train["item"].max(), part.tags["item"].max(), part.candidates[-1])
    counts = np.bincount(flat["tag"].to_numpy())
    idf = np.where(counts >= min_count, np.log(len(part.tags) / np.maximum(counts, 1)) ** idf_exponent, 0)
    X = sp.csr_array((idf[flat["tag"]], (flat["item"], flat["tag"])), shape=(n_items, len(counts)))
    X.eliminate_zeros()
    return X


def histories(part: Cold, n_items: int) -> sp.csr_array:
    """Users who are asked about × articles."""
    row = {user: k for k, user in enumerate(part.users)}
    mine = part.train.filter(pl.col("user").is_in(part.users))
    rows = np.array([row[user] for user in mine["user"]])
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, mine["item"].to_numpy())), shape=(len(row), n_items))


if __name__ == "__main__":
    main()
