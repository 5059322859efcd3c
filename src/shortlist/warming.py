"""Compile kernels ahead of time, by doing on tiny data what users do."""

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
from shortlist._kernel_cache import require_kept
from shortlist.data import splits
from shortlist.data.features.table import Features
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.errors import SettingError, ShortlistWarning
from shortlist.evaluation import evaluate
from shortlist.metrics import Lists
from shortlist.metrics.beyond_accuracy import distance
from shortlist.online import UserState
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.batch import write_lists
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.fit_progress import steps
from shortlist.recommenders.neighbours import ItemKNN
from shortlist.recommenders.registry import REGISTRY, load, recommender_class
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
    """What warming up one recommender took.

    Attributes:
        model: its name.
        kernels: how many were compiled, once for each combination of argument types; 0 if all of them were there.
        cpu_seconds: spent on compiling them.
    """

    model: str
    kernels: int
    cpu_seconds: float


def warm_up(models: Models | None = None, *, progress: bool | None = None) -> list[WarmUpResult]:
    """Compile all kernels that a recommender needs, so that no later process has to wait for that.

    Shortlist compiles a kernel when it is first called, and keeps it in a folder. `warm_up` does on tiny data what
    users do: fit, evaluate, answer known and new users, pick slates, make and search indexes, save and load, follow a
    `UserState`, write lists. What is already in the folder is not compiled again. Call it where a container image is
    built, on the kind of processor that will run it.

    Args:
        models: recommenders by name, by class, or as an object whose settings are used, such as
            `IALS(solver="exact")`; one or several. By default all of them, with their default settings, and a second
            stage, if LightGBM is installed.
        progress: show a progress bar; by default where standard error is a terminal.

    Where no folder can be written, that is an error, since a later process would compile again.

    >>> import shortlist as sl
    >>> [one.model for one in sl.warm_up("popularity")]
    ['Popularity']
    """
    chosen: list[Recommender | None] = [*_templates(models)]
    if models is None and find_spec("lightgbm") is not None:
        chosen.append(None)  # for a second stage
    done: list[WarmUpResult] = []
    with silent(), steps("warming up", "recommenders", progress) as step:
        for model in chosen:
            kernels, _, seconds = compiled()
            if model is None:
                _use_two_stages()
            else:
                _use(model)
            after = compiled()
            name = "TwoStage" if model is None else type(model).__name__
            done.append(WarmUpResult(name, after.kernels - kernels, after.cpu_seconds - seconds))
            require_kept()
            step(len(done), len(chosen))
    return done


def _templates(models: Models | None) -> list[Recommender]:
    """Return the recommenders that are asked for, with few epochs."""
    if models is None:
        models = sorted(REGISTRY)
    if isinstance(models, str | type | Recommender):
        models = [models]
    if not isinstance(models, Iterable):
        raise SettingError(f"models is {models!r:.80}; expected names, classes or objects of recommenders")
    found = []
    for one in models:
        if isinstance(one, str):
            model: Any = recommender_class(one)()
        elif isinstance(one, type) and issubclass(one, Recommender):
            model = one()
        elif isinstance(one, Recommender):
            model = one
        else:
            raise SettingError(f"models has {one!r:.80}; expected names, classes or objects of recommenders")
        found.append(_with(model, **(model._ending_at(2) if model._in_epochs else {})))
    return found


def _with(model: Recommender, **settings: Any) -> Any:
    """Return a copy with other settings."""
    other = copy.copy(model)
    for name, value in settings.items():
        setattr(other, name, value)
    return other


def _use(model: Recommender) -> None:
    """Do with a recommender what users do with it."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        warnings.simplefilter("ignore", ShortlistWarning)  # tiny data teaches nothing
        for k, (split, settings, features) in enumerate(_worlds(model)):
            fitted = _with(model, **settings)
            if model._in_epochs:
                fitted.fit(split.train, validation=split, metric="ndcg@5", progress=False, **features)
            else:
                fitted.fit(split.train, progress=False, **features)
            _ask(fitted, split)
            place = Path(folder) / str(k)
            fitted.save(place)
            _ask(load(place), split)
        if model._in_epochs and isinstance(fitted, DotProduct):
            with suppress(SettingError):  # some do not begin from another model
                _with(model).fit(split.train, start=fitted, progress=False)
        if hasattr(model, "partial_fit"):
            fitted.partial_fit(split.train, progress=False)
        if hasattr(model, "neighbours"):
            _look_far(model)
        _list_far()


def _use_two_stages() -> None:
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        warnings.simplefilter("ignore", ShortlistWarning)
        test = splits.by_time(_events("weighted"), 0.2)
        held = splits.by_time(test.train, 0.2)
        first, second = (ItemKNN(neighbours=5).fit(one, progress=False) for one in (held.train, test.train))
        two = TwoStage(first, LambdaMART(trees=2, min_leaf=1), candidates=15, models=[first])
        two.fit(held)
        two = two.with_first(second, models=[second])
        evaluate(two, test)
        two.save(Path(folder) / "two")
        for one in (two, load(Path(folder) / "two")):
            known = test.train.contexts.ids()[:4]
            one.recommend(known, n=_N)
            one.recommend(history=[test.train.history(context) for context in known], n=_N)
            write_lists(one, Path(folder) / "lists.parquet", n=_N, progress=False, overwrite=True)


def _worlds(model: Recommender) -> Iterator[tuple[Split, dict[str, Any], dict[str, Any]]]:
    """Yield splits with settings and features: with and without weights, text and numbers as ids, and so on."""
    plain, weighted, parts = _events("plain"), _events("weighted"), _events("parts")
    if model._described:
        yield splits.at_random(plain, 0.2), {}, {"item_features": _features("product", "i", _ITEMS)}
        yield splits.at_random(plain, 0.2), {}, {"context_features": _features("user", "u", _CONTEXTS)}
    yield splits.by_time(weighted, 0.2), {}, {}
    if hasattr(model, "weighting"):
        yield splits.by_time(weighted, 0.2), {"weighting": "log"}, {}
    # Embeddings are padded to whole tiles, where their length does not fit.
    yield splits.held_out_contexts(weighted, 0.2), {"dim": 24} if hasattr(model, "dim") else {}, {}
    yield splits.at_random(parts, 0.2), {"dim": 32} if hasattr(model, "dim") else {}, {}
    yield splits.at_random(plain, 0.2), {}, {}


def _far() -> Interactions:
    """Return more contexts and items than codes of two bytes can number."""
    many = np.arange(2**16 + 2)
    return Interactions.from_frame({"user": many, "product": many}, context="user", item="product")


def _look_far(model: Recommender) -> None:
    fitted = _with(model).fit(_far(), progress=False)
    fitted.recommend([1, 2], n=_N)
    fitted.recommend(history=[[1, 2]], n=_N)


def _list_far() -> None:
    events = _far()
    distance(Lists(np.arange(events.n_items, dtype=np.int32).reshape(-1, 2), events.by_context), 2)


def _events(kind: str) -> Interactions:
    """Return some 8 events for each of the contexts, which like every other item."""
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(_CONTEXTS), 8)
    items = (2 * rng.integers(0, _ITEMS, len(users)) + users) % _ITEMS
    if kind == "plain":
        frame: dict[str, Any] = {"user": [f"u{one}" for one in users], "product": [f"i{one}" for one in items]}
        return Interactions.from_frame(frame, context="user", item="product")
    if kind == "parts":
        frame = {"user": users // 2, "day": users % 2, "product": items}
        return Interactions.from_frame(frame, context=["user", "day"], item="product")
    frame = {"user": users, "product": items, "weight": rng.uniform(1, 3, len(users)), "time": np.arange(len(users))}
    rng.shuffle(frame["time"])
    return Interactions.from_frame(frame, context="user", item="product", weight="weight", time="time")


def _features(name: str, letter: str, n: int) -> Features:
    rng = np.random.default_rng(4)
    frame = {name: [f"{letter}{one}" for one in range(n)], "kind": rng.integers(0, 4, n), "price": rng.uniform(1, 9, n)}
    return Features.from_frame(frame, id=name, categorical="kind", numeric="price")


def _ask(model: Any, split: Split) -> None:
    """Ask everything."""
    train = split.train
    known, items = train.contexts.ids()[:4], train.items.ids()
    histories = [train.history(one) for one in known]
    evaluate(model, split)
    evaluate(model, split, _METRICS)  # with some that need all ranks
    for slate in (None, *(one(0.5, 10) for one in SLATES.values())):
        evaluate(model, split, ["ndcg@5", "distance@5", "miscalibration@5"], slate=slate)
        for how in ({}, {"deny": items[:2]}, {"allow": items[2:20]}, {"exclude_seen": False}):
            model.recommend(known, n=_N, slate=slate, **how)
            model.recommend(history=histories, n=_N, slate=slate, **how)
    for how in ({"deny": [items[:2]] * 4}, {"allow": [items[2:20]] * 4}):
        model.recommend(known, n=_N, **how)
    model.recommend(history=[dict.fromkeys(one, 2.0) for one in histories], n=_N)
    model.recommend(history=train, n=_N)
    model.score(known, [items[:3]] * 4)
    model.rank(known, [items[:3]] * 4)
    with suppress(SettingError):  # it has no notion of them
        model.similar_items(items[:3], n=_N)
    with tempfile.TemporaryDirectory(prefix="shortlist-") as folder:
        write_lists(model, Path(folder) / "lists.parquet", n=_N, progress=False)
    if hasattr(model, "explain"):
        model.explain(known[0], items[0])
    if isinstance(model, DotProduct):
        _move(model, histories, known, items)


def _move(model: DotProduct, histories: list[list[Any]], known: list[Any], items: list[Any]) -> None:
    """Fold in, search indexes, and let a user move."""
    model.fold_in(histories, confidence=[{one[0]: 0.5} for one in histories])
    hows: tuple[dict[str, Any], ...] = (
        {"kind": "exact"},
        {"kind": "exact", "precision": "int8"},
        {"kind": "quantized"},
    )
    with suppress(SettingError):  # those that learn from samples refuse
        model.fold_in_items([known])
    for how in hows:
        index = model.index(n=_N, progress=False, **how)
        for only in (index, index.only(deny=items[:2]), index.only(allow=items[2:20])):
            only.search(known, n=_N)
            only.search(history=histories, n=_N)
            only.search(model.fold_in(histories), n=_N)
        state = UserState(model, histories[0][:2], half_life=5, decay_by="events")
        state.add(items[0])
        state.recommend(n=_N)
        state.recommend(n=_N, index=index)
