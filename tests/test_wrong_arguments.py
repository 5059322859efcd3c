"""Public functions asked with nonsense: whatever is refused is refused in words, as a ShortlistError."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import shortlist as sl
from shortlist import metrics, objectives, sampling, tuning
from shortlist.recommenders.registry import REGISTRY

WRONG = [
    *(None, "x", "", b"x", -1, 0, 2**70, -(2**70), 1.5, float("nan"), float("inf"), True, object(), len, int),
    *([], [None], [1.5], ["x"], [[1]], [2**70], [[1, 2], 3], (1, 2), {}, {"a": 1}, {1: 2}, {1, 2}),
    *(np.array([1.0, 2.0]), np.array(3), np.zeros((2, 2)), np.array([]), np.array(["2020"], "datetime64[s]")),
    *(pd.DataFrame({"a": [1]}), pd.Series([1]), pl.DataFrame({"a": [1]}), pl.Series([1]), pd.NaT, np.float32(2)),
]
EVENTS = sl.Interactions.from_frame(
    {"u": [1, 1, 2, 2, 3, 3] * 4, "i": [1, 2, 1, 3, 2, 3] * 4, "t": range(24)}, context="u", item="i", time="t"
)
SPLIT = sl.splits.by_time(EVENTS, repeats="keep")
FRAME = EVENTS.to_polars()
ROWS = EVENTS.by_context
NEGATIVES = sampling.Uniform(exclude="positive").bind(ROWS)
RANKS = metrics.Ranks.from_lists([[1, 3], [2]], n_items=5)
LISTS = metrics.Lists.from_lists([[2, 0], [1]], trained=[[0, 1], [0]], n_items=4)
FEATURES = {"i": [1, 2, 3], "kind": ["a", "b", "a"]}
MODEL = sl.Popularity().fit(SPLIT.train)
RESULT = sl.evaluate(MODEL, SPLIT)


def k_fold(events, **more):
    return list(sl.splits.k_fold_contexts(events, **{"k": 2} | more))


# By name: the function, arguments it takes, and the names of further ones.
CALLS = {
    "by_time": (sl.splits.by_time, {"events": EVENTS}, "test repeats"),
    "leave_last_out": (sl.splits.leave_last_out, {"events": EVENTS}, "n repeats"),
    "at_random": (sl.splits.at_random, {"events": EVENTS}, "test seed repeats"),
    "held_out_contexts": (sl.splits.held_out_contexts, {"events": EVENTS}, "test fold_in by seed"),
    "k_fold_contexts": (k_fold, {"events": EVENTS}, "k fold_in by seed"),
    "given": (sl.splits.given, {"train": SPLIT.train, "truth": SPLIT.truth}, "history repeats"),
    "from_frame": (
        sl.Interactions.from_frame,
        {"frame": FRAME, "context": "u", "item": "i"},
        "weight time aggregate on_bad",
    ),
    "read": (
        sl.Interactions.read,
        {"path": "nothing.csv", "context": "u", "item": "i"},
        "weight time aggregate on_bad format separator",
    ),
    "from_csr": (sl.Interactions.from_csr, {"matrix": sp.csr_array(np.eye(3))}, "contexts items weighted"),
    "select": (EVENTS.select, {"keep": [1]}, "compact"),
    "history": (EVENTS.history, {"context": 1}, ""),
    "aggregated": (EVENTS.aggregated, {"how": "sum"}, ""),
    "extend": (EVENTS.extend, {}, "contexts items"),
    "Vocabulary": (sl.Vocabulary, {"frame": FRAME.select("i").unique()}, ""),
    "Vocabulary.of": (sl.Vocabulary.of, {"ids": [1, 2]}, "name"),
    "Vocabulary.encode": (EVENTS.items.encode, {"ids": [1, 2]}, "unknown"),
    "Vocabulary.ids": (EVENTS.items.ids, {"codes": [1, 2]}, ""),
    "Vocabulary.take": (EVENTS.items.take, {"codes": [1, 2]}, ""),
    "Vocabulary.parse": (EVENTS.items.parse, {"text": "1"}, ""),
    "Features.from_frame": (
        sl.Features.from_frame,
        {"frame": FEATURES, "id": "i"},
        "categorical multi_valued numeric on_bad",
    ),
    "Features.select": (sl.Features.from_frame(FEATURES, id="i").select, {"fields": "kind"}, ""),
    "datasets.load": (sl.datasets.load, {"name": "nothing"}, ""),
    "datasets.read": (sl.datasets.read, {"path": "nothing"}, "layout min_rating on_bad"),
    "load": (sl.load, {"path": "nothing"}, ""),
    "save": (MODEL.save, {"path": 0}, ""),
    "evaluate": (sl.evaluate, {"model": MODEL, "split": SPLIT}, "metrics seed"),
    "compare": (lambda other, **more: sl.compare(RESULT, other, **more), {"other": RESULT}, "names confidence seed"),
    "Evaluation.of": (RESULT.of, {"metric": "recall@20"}, ""),
    "Comparison.best": (sl.compare(RESULT, RESULT).best, {"metric": "recall@20"}, ""),
    "recommend": (MODEL.recommend, {"contexts": [1]}, "n exclude_seen allow deny unknown"),
    "fit": (sl.Popularity().fit, {"interactions": EVENTS}, "progress"),
    "tune": (sl.tune, {"model": "popularity", "data": 3}, "metric"),
    "contest": (tuning.compare_tuned, {"split": 3}, "models"),
    "Choice": (lambda one: tuning.Choice("a", one), {"one": "b"}, ""),
    "Grows": (lambda one: tuning.Increasing(8, one), {"one": 16}, ""),
    "expected_rank": (sampling.expected_rank, {"p": 0.5, "n_items": 10}, "rounds"),
    "rounds_law": (sampling.rounds_law, {"p": 0.5, "rounds": 10}, ""),
    "implied_weight": (
        sampling.implied_weight,
        {"kind": "pairwise", "negatives": NEGATIVES, "context": 0, "positive": 1},
        "step_weight n_negatives",
    ),
    "step_weight_for": (
        sampling.step_weight_for,
        {"kind": "pairwise", "wanted": 1.0, "negatives": NEGATIVES, "context": 0, "positive": 1},
        "n_negatives",
    ),
    "over": (sampling.Uniform().bind, {"histories": ROWS}, ""),
    "draw": (
        NEGATIVES.draw,
        {"contexts": [0], "positives": [1], "n": 2, "rng": np.random.default_rng(0)},
        "log_q",
    ),
    "probabilities": (NEGATIVES.probabilities, {"context": 0}, "positive"),
    "loss_values": (objectives.loss_values, {"loss": "logistic", "scores": [1.0, 2.0], "labels": [1, 0]}, ""),
    "loss_slopes": (objectives.loss_slopes, {"loss": "logistic", "scores": [1.0, 2.0], "labels": [1, 0]}, ""),
    "strengths": (objectives.strengths, {"values": np.ones(2), "weighting": "log"}, "confidence"),
    "change": (
        objectives.LambdaRank().change,
        {"positive": 1, "negative": 3, "positives": [1], "n_items": 10},
        "",
    ),
    "Ranks.from_lists": (metrics.Ranks.from_lists, {"ranks": [[1, 3], [2]], "n_items": 5}, ""),
    "Ranks.select": (RANKS.select, {"contexts": [0]}, ""),
    "Lists.from_lists": (
        metrics.Lists.from_lists,
        {"lists": [[2, 0]], "trained": [[0, 1]], "n_items": 4},
        "histories",
    ),
    "Lists.lengths": (LISTS.lengths, {"n": 2}, ""),
    "parse_metric": (metrics.parse_metric, {"text": "ndcg@3"}, ""),
    "parse_metrics": (metrics.parse_metrics, {"texts": "ndcg@3"}, ""),
    "auc": (metrics.auc, {"ranks": RANKS}, ""),
    **{
        name: (getattr(metrics, name), {"ranks": RANKS, "n": 2}, "") for name in ("ndcg", "recall", "average_precision")
    },
    **{name: (getattr(metrics, name), {"lists": LISTS, "n": 2}, "") for name in ("coverage", "popularity", "distance")},
}
SETTINGS = {
    one.__name__: one
    for module in (sampling, objectives, metrics, tuning, sl.slates)
    for one in map(module.__dict__.get, module.__all__)
    if isinstance(one, type)
    and dataclasses.is_dataclass(one)
    and one not in (tuning.Choice, tuning.Increasing, tuning.When)
} | {name: getattr(sl, name) for name in REGISTRY}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_functions(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, right, more = CALLS[name]
    for argument in [*right, *more.split()]:
        for wrong in WRONG:
            answered(f"{name}({argument}={wrong!r:.40})", function, right | {argument: wrong})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETTINGS)
def test_settings(name):
    kind = SETTINGS[name]
    for field in dataclasses.fields(kind):
        for wrong in WRONG if field.init else ():
            required = {one.name for one in dataclasses.fields(kind) if one.default is one.default_factory} - {
                field.name
            }
            if not required:
                answered(f"{name}({field.name}={wrong!r:.40})", kind, {field.name: wrong})


def answered(what, function, arguments):
    """It answers, or says what is wrong."""
    try:
        function(**arguments)
    except sl.ShortlistError:
        pass
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
