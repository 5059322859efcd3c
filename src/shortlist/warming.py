"""Compile kernels ahead of time, by running typical calls on tiny data."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from shortlist._clock import compiled
from shortlist._compile_notes import silent
from shortlist._kernel_cache import require_cached
from shortlist._progress import steps
from shortlist.batch import write_lists
from shortlist.data import splits
from shortlist.data.features.table import Features
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.errors import SettingError, ShortlistWarning
from shortlist.evaluation import evaluate
from shortlist.loading import load
from shortlist.metrics import Lists
from shortlist.metrics.beyond_accuracy import distance
from shortlist.online import UserState
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.neighbours import ItemKNN
from shortlist.recommenders.registry import REGISTRY, recommender_class
from shortlist.reranking import LambdaMART, TwoStage
from shortlist.retrieval.slates import SLATES

Models: TypeAlias = "str | type[Recommender] | Recommender | Iterable[str | type[Recommender] | Recommender]"
_METRICS = (
    *("recall@5", "ndcg@5", "precision@5", "capped_recall@5", "ap@5", "hit@5", "mrr@5", "mrr", "auc"),
    *("coverage@5", "gini@5", "popularity@5", "novelty@5", "distance@5", "cold_share@5", "miscalibration@5"),
)
_N = 5
_CONTEXTS, _ITEMS = 40, 25


@dataclass(frozen=True)
class WarmUpResult:
    """The result of warming up one recommender.

    Attributes:
        model: name of the recommender.
        kernels: number of kernels compiled, counted once per combination of argument types; 0 if all were cached.
        cpu_seconds: CPU time of compiling them.
    """

    model: str
    kernels: int
    cpu_seconds: float


def warm_up(models: Models | None = None, *, progress: bool | None = None) -> list[WarmUpResult]:
    """Compile all kernels that a recommender needs, so that later processes need not wait for compilation.

    Shortlist compiles a kernel on its first call and caches it in a folder. `warm_up` makes typical calls on tiny data:
    fit, evaluate, recommend to known and new users, pick slates, build and search indexes, save and load, update a
    `UserState`, write lists. Cached kernels are not compiled again. Call it when you build a container image, on the
    type of processor that will run it.

    If the cache folder cannot be written, that is an error, because later processes would compile again.

    Args:
        models: one or several recommenders, each as a name, a class, or an object with settings such as
            `IALS(solver="exact")`. Default: all recommenders with default settings, and `TwoStage` if LightGBM is
            installed.
        progress: show a progress bar; by default only if standard error is a terminal.

    >>> import shortlist as sl
    >>> [result.model for result in sl.warm_up("popularity")]
    ['Popularity']
    """
    chosen: list[Recommender | None] = [*_templates(models)]
    if models is None and find_spec("lightgbm") is not None:
        chosen.append(None)  # stands for TwoStage
    done: list[WarmUpResult] = []
    with silent(), steps("warming up", "recommenders", progress) as step:
        for model in chosen:
            kernels, _, seconds = compiled()
            if model is None:
                _exercise_two_stage()
            else:
                _exercise(model)
            after = compiled()
            name = "TwoStage" if model is None else type(model).__name__
            done.append(WarmUpResult(name, after.kernels - kernels, after.cpu_seconds - seconds))
            require_cached()
            step(len(done), len(chosen))
    return done


def _templates(models: Models | None) -> list[Recommender]:
    """Return the requested recommenders, with few epochs."""
    if models is None:
        models = sorted(REGISTRY)
    if isinstance(models, str | type | Recommender):
        models = [models]
    if not isinstance(models, Iterable):
        raise SettingError(
            f"models is {models!r:.80}; expected names, classes or objects of recommenders", field="models"
        )
    templates = []
    for given in models:
        if isinstance(given, str):
            model: Any = recommender_class(given)()
        elif isinstance(given, type) and issubclass(given, Recommender):
            model = given()
        elif isinstance(given, Recommender):
            model = given
        else:
            raise SettingError(
                f"models has {given!r:.80}; expected names, classes or objects of recommenders", field="models"
            )
        templates.append(_with(model, **(model.settings_ending_at(2) if model.learns_in_epochs else {})))
    return templates


def _with(model: Recommender, **settings: Any) -> Any:
    """Return a copy with other settings."""
    other = copy.copy(model)
    vars(other).update(settings)
    return other


def _exercise(model: Recommender) -> None:
    """Call everything that users call on a recommender."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        warnings.simplefilter("ignore", ShortlistWarning)  # warnings about models of tiny data mean nothing
        for k, (split, settings, features) in enumerate(_variants(model)):
            fitted = _with(model, **settings)
            if model.learns_in_epochs:
                fitted.fit(split.train, validation=split, metric="ndcg@5", progress=False, **features)
            else:
                fitted.fit(split.train, progress=False, **features)
            _exercise_queries(fitted, split)
            place = Path(folder) / str(k)
            fitted.save(place)
            _exercise_queries(load(place), split)
        if model.learns_in_epochs and isinstance(fitted, DotProduct):
            with suppress(SettingError):  # some cannot start from another model
                _with(model).fit(split.train, start=fitted, progress=False)
        if hasattr(model, "partial_fit"):
            fitted.partial_fit(split.train, progress=False)
        if hasattr(model, "neighbours"):
            _exercise_large_catalogue(model)
        _exercise_large_lists()


def _exercise_two_stage() -> None:
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        warnings.simplefilter("ignore", ShortlistWarning)
        test = splits.by_time(_events("weighted"), 0.2)
        held = splits.by_time(test.train, 0.2)
        first, second = (ItemKNN(neighbours=5).fit(events, progress=False) for events in (held.train, test.train))
        two = TwoStage(first, LambdaMART(trees=2, min_leaf=1), candidates=15, models=[first])
        two.fit(held)
        two = two.with_first(second, models=[second])
        evaluate(two, test)
        two.save(Path(folder) / "two")
        for model in (two, load(Path(folder) / "two")):
            known = test.train.contexts.ids()[:4]
            model.recommend(known, n=_N)
            model.recommend(history=[test.train.history(context) for context in known], n=_N)
            write_lists(model, Path(folder) / "lists.parquet", n=_N, progress=False, overwrite=True)


def _variants(model: Recommender) -> Iterator[tuple[Split, dict[str, Any], dict[str, Any]]]:
    """Yield splits with settings and features: with and without weights, with text and integer ids, and so on."""
    plain, weighted, parts = _events("plain"), _events("weighted"), _events("parts")
    if model.uses_features:
        yield splits.at_random(plain, 0.2), {}, {"item_features": _features("product", "i", _ITEMS)}
        yield splits.at_random(plain, 0.2), {}, {"context_features": _features("user", "u", _CONTEXTS)}
    yield splits.by_time(weighted, 0.2), {}, {}
    if hasattr(model, "weighting"):
        yield splits.by_time(weighted, 0.2), {"weighting": "log"}, {}
    # Embeddings whose length is not a multiple of the tile size are padded.
    yield splits.held_out_contexts(weighted, 0.2), {"dim": 24} if hasattr(model, "dim") else {}, {}
    yield splits.at_random(parts, 0.2), {"dim": 32} if hasattr(model, "dim") else {}, {}
    yield splits.at_random(plain, 0.2), {}, {}


def _large_catalogue() -> Interactions:
    """Return more contexts and items than two-byte codes can represent."""
    many = np.arange(2**16 + 2)
    return Interactions.from_frame({"user": many, "product": many}, context="user", item="product")


def _exercise_large_catalogue(model: Recommender) -> None:
    fitted = _with(model).fit(_large_catalogue(), progress=False)
    fitted.recommend([1, 2], n=_N)
    fitted.recommend(history=[[1, 2]], n=_N)


def _exercise_large_lists() -> None:
    events = _large_catalogue()
    distance(Lists(np.arange(events.n_items, dtype=np.int32).reshape(-1, 2), events.by_context), 2)


def _events(kind: str) -> Interactions:
    """Return up to 8 events for each context; even contexts have even items, odd contexts odd items."""
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(_CONTEXTS), 8)
    items = (2 * rng.integers(0, _ITEMS, len(users)) + users) % _ITEMS
    if kind == "plain":
        frame: dict[str, Any] = {"user": [f"u{user}" for user in users], "product": [f"i{item}" for item in items]}
        return Interactions.from_frame(frame, context="user", item="product")
    if kind == "parts":
        frame = {"user": users // 2, "day": users % 2, "product": items}
        return Interactions.from_frame(frame, context=["user", "day"], item="product")
    frame = {"user": users, "product": items, "weight": rng.uniform(1, 3, len(users)), "time": np.arange(len(users))}
    rng.shuffle(frame["time"])
    return Interactions.from_frame(frame, context="user", item="product", weight="weight", time="time")


def _features(name: str, letter: str, n: int) -> Features:
    rng = np.random.default_rng(4)
    frame = {name: [f"{letter}{k}" for k in range(n)], "kind": rng.integers(0, 4, n), "price": rng.uniform(1, 9, n)}
    return Features.from_frame(frame, id=name, categorical="kind", numeric="price")


def _exercise_queries(model: Any, split: Split) -> None:
    """Call every method that answers queries."""
    train = split.train
    known, items = train.contexts.ids()[:4], train.items.ids()
    histories = [train.history(context) for context in known]
    evaluate(model, split)
    evaluate(model, split, _METRICS)  # some need all ranks
    for slate in (None, *(kind(0.5, 10) for kind in SLATES.values())):
        evaluate(model, split, ["ndcg@5", "distance@5", "miscalibration@5"], slate=slate)
        for filters in ({}, {"deny": items[:2]}, {"allow": items[2:20]}, {"exclude_seen": False}):
            model.recommend(known, n=_N, slate=slate, **filters)
            model.recommend(history=histories, n=_N, slate=slate, **filters)
    for filters in ({"deny": [items[:2]] * 4}, {"allow": [items[2:20]] * 4}):
        model.recommend(known, n=_N, **filters)
    model.recommend(history=[dict.fromkeys(history, 2.0) for history in histories], n=_N)
    model.recommend(history=train, n=_N)
    model.score(known, [items[:3]] * 4)
    model.rank(known, [items[:3]] * 4)
    with suppress(SettingError):  # not all models support it
        model.similar_items(items[:3], n=_N)
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        write_lists(model, Path(folder) / "lists.parquet", n=_N, progress=False)
    if hasattr(model, "explain"):
        model.explain(known[0], items[0])
    if isinstance(model, DotProduct):
        _exercise_embeddings(model, histories, known, items)


def _exercise_embeddings(model: DotProduct, histories: list[list[Any]], known: list[Any], items: list[Any]) -> None:
    """Fold in, search indexes, and update a `UserState`."""
    model.fold_in(histories, confidence=[{history[0]: 0.5} for history in histories])
    kinds: tuple[dict[str, Any], ...] = (
        {"kind": "exact"},
        {"kind": "exact", "precision": "int8"},
        {"kind": "quantized"},
    )
    with suppress(SettingError):  # models with sampled negatives refuse
        model.fold_in_items([known])
    for settings in kinds:
        index = model.index(n=_N, progress=False, **settings)
        for only in (index, index.only(deny=items[:2]), index.only(allow=items[2:20])):
            only.search(known, n=_N)
            only.search(history=histories, n=_N)
            only.search(model.fold_in(histories), n=_N)
        state = UserState(model, histories[0][:2], half_life=5, decay_by="events")
        state.add(items[0])
        state.recommend(n=_N)
        state.recommend(n=_N, index=index)
