"""The fits whose answers are kept: every recommender, two epochs, one seed, one thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shortlist as sl
from golden.names import today
from shortlist.recommenders.registry import REGISTRY, recommender_class

HERE = Path(__file__).parent
SAVED = sorted(REGISTRY)  # a subject of the name of each recommender is saved
INTERRUPTED = ["ICD", "IALS, block", "BPR", "SoftmaxMF", "PARAFAC", "RankALS", "FeatureIALS"]
SUBJECTS: dict[str, dict[str, Any]] = json.loads((HERE / "subjects.json").read_text())
NEW_HISTORIES = [["p03"], ["p01", "p07", "p04"], ["p29", "p00", "p11", "p02"]]


def events(*, days: bool = False, weights: bool = False) -> sl.Interactions:
    """The events; with `days` a context is a pair of user and day."""
    return sl.Interactions.read(
        HERE / "events.csv",
        context=["user", "day"] if days else "user",
        item="product",
        time="when",
        weight="quantity" if weights else None,
    )


def features(side: str) -> sl.Features:
    key = {"item": "product", "context": "user"}[side]
    return sl.Features.from_frame(pl.read_csv(HERE / f"{side}_features.csv"), id=key)


def data_of(subject: dict[str, Any]) -> sl.Interactions:
    return events(days=subject.get("days", False), weights=subject.get("weights", False))


def fit_options(subject: dict[str, Any]) -> dict[str, Any]:
    return {f"{side}_features": features(side) for side in subject.get("features", [])}


def make(subject: dict[str, Any]) -> Any:
    return recommender_class(subject["model"])(**today(subject.get("settings", {})))


def fit(subject: dict[str, Any]) -> Any:
    return make(subject).fit(data_of(subject), threads=1, progress=False, **fit_options(subject))


def two_stage() -> Any:
    """A second stage over two first models."""
    split = sl.splits.by_time(events(), test=0.3, repeats="keep")
    first = sl.IALS(dim=4, epochs=2).fit(split.train, threads=1)
    second = sl.ItemKNN(neighbours=5).fit(split.train, threads=1)
    reranker = sl.LambdaMART(trees=5, leaves=3, min_leaf=2, validation=0.0)
    return sl.TwoStage(first, reranker, candidates=12, models=[second]).fit(split, threads=1)


class Interrupted(BaseException):
    """What ends a fit after its first epoch."""


def fit_in_folder(subject: dict[str, Any], checkpoint: Path, *, interrupt: bool = False) -> Any:
    """Fit with a checkpoint and with early stopping; with `interrupt` only one epoch."""

    def after_epoch(epoch: Any) -> None:
        if interrupt and epoch.number == 1:
            raise Interrupted

    split = sl.splits.by_time(data_of(subject), test=0.2, repeats="keep")
    return make(subject).fit(
        split.train,
        validation=split,
        metric="recall@5",
        checkpoint=checkpoint,
        callbacks=after_epoch,
        threads=1,
        progress=False,
        **fit_options(subject),
    )


def answers(model: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the scores of a fitted model by question, and facts: derived settings and refused questions."""
    contexts, items = model.contexts_.ids(), model.items_.ids()
    scores = {"known": np.stack(model.score(contexts, [items] * len(contexts)))}
    facts: dict[str, Any] = {"derived": dict(getattr(model, "derived_", {})), "refused": []}
    questions = {
        "history": lambda: np.stack(model.score(None, [items] * len(NEW_HISTORIES), history=NEW_HISTORIES)),
        "similar": lambda: _similarities(model, items),
    }
    for question, answer in questions.items():
        try:
            scores[question] = answer()
        except sl.ShortlistError:
            facts["refused"].append(question)
    return scores, facts


def two_stage_answers(model: Any) -> dict[str, np.ndarray]:
    """Scores of the candidates of each user, by item; NaN for what is no candidate."""
    items = model.first.items_.ids()
    place = {item: k for k, item in enumerate(items)}
    users = model.first.contexts_.ids()
    table = np.full((len(users), len(items)), np.nan, np.float32)
    for k, user in enumerate(users):
        listed = model.recommend([user], n=12)
        for item, score in zip(listed.ids[0], listed.scores[0]):
            table[k, place[item]] = score
    return {"known": table}


def _similarities(model: Any, items: list[Any]) -> np.ndarray:
    """Similarities of all pairs of items; 0 where a pair is not listed."""
    place = {item: k for k, item in enumerate(items)}
    table = np.zeros((len(items), len(items)), np.float32)
    listed = model.similar_items(items, n=len(items))
    for k, (ids, values) in enumerate(zip(listed.ids, listed.scores)):
        for item, value in zip(ids, values):
            table[k, place[item]] = value
    return table
