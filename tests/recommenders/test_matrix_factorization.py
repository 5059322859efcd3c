"""Factorizations by sampling as recommenders: presets, parts, biases, going on, stopping."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import shortlist as sl
from recommenders.factorizations import events, same
from recommenders.test_checkpoint import fit_with_a_break
from shortlist.objectives import LambdaRank, Linear, Pairwise, Pointwise, Reciprocal, Softmax, Step, TopN
from shortlist.recommenders.search_space import Choice, Increasing, Integer, Real
from shortlist.recommenders.sgd_factorization import SGDFactorization
from shortlist.sampling import AdaptiveRank, AllItems, InBatch, Popularity, Rejection, Uniform

# weights are beside the point here
pytestmark = pytest.mark.filterwarnings("ignore:the weights of column:shortlist.errors.ShortlistWarning")

SMALL = {"dim": 4, "epochs": 3, "learning_rate": 0.1}
PRESETS = [
    (sl.BPR(**SMALL), {}),
    (sl.BPR(**SMALL, normalize=True, temperature=0.3), {"objective": Pairwise("logistic", 0.3)}),
    (sl.AdaptiveBPR(**SMALL, gamma=7.0), {"sampler": AdaptiveRank(7.0)}),
    (
        sl.WARP(**SMALL, rounds=9, margin=0.5, penalty=TopN(4)),
        {"objective": Pairwise("hinge", 0.5), "sampler": Rejection(0.5, 9), "weight": TopN(4)},
    ),
    (sl.LambdaMF(**SMALL, metric="ap@5", candidates=6), {"weight": LambdaRank("ap@5", "sampled", 6)}),
    (
        sl.LambdaMF(**SMALL, sampler="AdaptiveRank(gamma=7)"),
        {"sampler": AdaptiveRank(7.0), "weight": LambdaRank("ndcg", "sampled")},
    ),
    (sl.LambdaMF(**SMALL, ranks="exact"), {"weight": LambdaRank("ndcg", "exact")}),
    (sl.LogisticMF(**SMALL), {"objective": Pointwise("logistic")}),
    (sl.LogisticMF(**SMALL, exclude="positive"), {"objective": Pointwise("logistic"), "sampler": Uniform("positive")}),
    (sl.HingeMF(**SMALL, temperature=2.0), {"objective": Pointwise("hinge", temperature=2.0)}),
    (sl.SquareMF(**SMALL), {"objective": Pointwise("square")}),
    (
        sl.SoftmaxMF(**SMALL, exclude="history", temperature=0.2),
        {"objective": Softmax(0.2), "sampler": AllItems("history"), "n_negatives": 1},
    ),
    (
        sl.SoftmaxMF(**SMALL, n_negatives=8, beta=0.75, exclude="positive", temperature=0.2),
        {"objective": Softmax(0.2), "sampler": Popularity(0.75, "positive")},
    ),
]
ALL = [sl.BPR, sl.AdaptiveBPR, sl.WARP, sl.LambdaMF, sl.LogisticMF, sl.HingeMF, sl.SquareMF, sl.SoftmaxMF]


FIRST = {type(preset): k for k, (preset, _) in reversed([*enumerate(PRESETS)])}  # of each class; the others are slow


@pytest.mark.parametrize(
    ("preset", "parts"),
    [
        pytest.param(preset, parts, marks=() if FIRST[type(preset)] == k else pytest.mark.slow)
        for k, (preset, parts) in enumerate(PRESETS)
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_preset_is_a_composition(preset, parts):
    data = events(weighted=True)
    names = {one.name for one in fields(sl.MatrixFactorization)} - {"objective", "sampler", "weight"}
    others = {name: value for name, value in preset.settings().items() if name in names}
    composed = sl.MatrixFactorization(**{**others, **parts})
    assert composed.recipe() == preset.recipe()
    same(preset.fit(data, threads=1), composed.fit(data, threads=1))
    assert preset.recommend([0], n=3).ids == composed.recommend([0], n=3).ids


def test_every_preset_is_tested_here():
    tested = {type(preset) for preset, _ in PRESETS}
    assert tested == set(ALL) == {
        one for name in sl.__all__ if isinstance(one := getattr(sl, name), type) and issubclass(one, SGDFactorization)
    } - {sl.MatrixFactorization}  # fmt: skip


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "as_text"),
    [
        ({}, (repr(Pairwise()), "Uniform(exclude='history')", None)),
        (
            {"objective": "pointwise('square', 0.5)", "sampler": "POPULARITY", "weight": "None"},
            (repr(Pointwise("square", 0.5)), "Popularity(beta=0.5, exclude='history')", None),
        ),
        (
            {"objective": Pairwise("hinge"), "sampler": Rejection(np.float32(0.5), np.int64(9)), "weight": "step(3)"},
            (repr(Pairwise("hinge")), "Rejection(margin=0.5, rounds=9, exclude='history')", "Step(n=3)"),
        ),
        (
            {"weight": LambdaRank("ap@5")},
            (
                repr(Pairwise()),
                "Uniform(exclude='history')",
                "LambdaRank(metric='ap@5', ranks='sampled', candidates=32)",
            ),
        ),
    ],
)
def test_parts_are_text_in_settings_and_in_files(given, as_text, tmp_path):
    model = sl.MatrixFactorization(**SMALL, **given).fit(events(), threads=1)
    settings = model.settings()
    assert tuple(settings[name] for name in ("objective", "sampler", "weight")) == as_text
    again = sl.MatrixFactorization(**settings)
    assert again.settings() == settings
    assert again.recipe() == model.recipe()
    same(again.fit(events(), threads=1), model)
    model.save(tmp_path / "model")
    loaded = sl.load(tmp_path / "model")
    assert loaded.settings() == settings
    same(loaded, model)
    history = [["i03", "i09"]]
    np.testing.assert_array_equal(loaded.fold_in(history), model.fold_in(history))


def test_the_penalty_of_warp_is_text_too(tmp_path):
    for given in (Step(4), "Step(4)", "step(n=4)"):
        assert sl.WARP(penalty=given).settings()["penalty"] == "Step(n=4)"
    sl.WARP(**SMALL, penalty=Linear()).fit(events()).save(tmp_path / "model")
    assert sl.load(tmp_path / "model").recipe().weight == Linear()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"objective": "Pairwize()"}, r"objective is 'Pairwize\(\)'; did you mean Pairwise\? expected one of Po"),
        ({"sampler": "Pairwise()"}, r"sampler is 'Pairwise\(\)'; expected one of Uniform, Popularity"),
        ({"weight": 3}, r"weight is 3; expected one of Reciprocal, Linear"),
        ({"sampler": "Popularity(beta=-1)"}, "beta is -1; expected a number ≥ 0"),
        ({"strength_as": "label"}, r"is 'label', but Pairwise\(.*\) has no labels; use"),
        (
            {"objective": Softmax(), "sampler": AllItems(), "strength_as": "label"},
            r"strength_as is 'label', but Softmax\(temperature=1.0\) has no labels",
        ),
        ({"sampler": AllItems()}, r"AllItems\(.*\) is for Softmax; .* use a sampler such as U"),
        (
            {"objective": Pointwise(), "weight": LambdaRank()},
            r"LambdaRank\(.*\) weights pairs of items, but Pointwise\(.*\) has none; omit weight",
        ),
        ({"weight": Reciprocal()}, r"Reciprocal\(\) needs the ranks that Rejection.* is Uniform.*; use Rejection"),
        ({"objective": Softmax(), "sampler": AdaptiveRank()}, r"AdaptiveRank.* for Softmax use AllItems\(\)"),
        ({"objective": Softmax(), "sampler": Rejection()}, r"Rejection.* for Softmax use AllItems\(\)"),
        ({"n_negatives": 0}, "n_negatives is 0; expected an integer ≥ 1"),
        ({"learning_rate": -0.1}, "learning_rate is -0.1; expected a number ≥ 0"),
        ({"item_regularization": -1}, "item_regularization is -1; expected"),
        ({"regularization_exponent": np.nan}, "regularization_exponent is nan; expected"),
        ({"positive_item_exponent": np.inf}, "positive_item_exponent is inf; expected a finite number"),
        ({"biases": 1}, "biases is 1; expected True or False"),
        ({"normalize": "yes"}, "normalize is 'yes'; expected True or False"),
        ({"optimizer": "lion"}, "optimizer is 'lion'; expected one of 'sgd', 'adagrad', 'adam'"),
        ({"schedule": "step"}, "schedule is 'step'; expected one of 'constant', 'linear'"),
        ({"fold_in_epochs": 0}, "fold_in_epochs is 0; expected"),
        ({"weighting": "sqrt"}, "weighting is 'sqrt'; expected one of"),
        ({"batch": 0}, "batch is 0; expected"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_does_not_go_together_is_refused(settings, told):
    with pytest.raises(sl.SettingError, match=told):
        sl.MatrixFactorization(**settings)


def test_presets_check_their_own():
    for make, told in (
        (lambda: sl.AdaptiveBPR(gamma=0), "gamma is 0; expected a number > 0"),
        (lambda: sl.WARP(rounds=0), "rounds is 0; expected"),
        (
            lambda: sl.WARP(penalty="LambdaRank()"),
            r"penalty is 'LambdaRank\(\)'; expected one of Reciprocal, .* TopN, as",
        ),
        (lambda: sl.LambdaMF(metric="hit@5"), "metric is 'hit@5'; expected 'ndcg'"),
        (lambda: sl.LambdaMF(ranks="near"), "ranks is 'near'; expected"),
        (lambda: sl.SoftmaxMF(temperature=0), "temperature is 0; expected a number > 0"),
        (lambda: sl.SoftmaxMF(n_negatives=-1), "n_negatives is -1; expected an integer ≥ 0"),
        (lambda: sl.SoftmaxMF(exclude="all"), "exclude is 'all'; expected"),
        (lambda: sl.BPR(strength_as="label"), "has no labels"),
    ):
        with pytest.raises(sl.SettingError, match=told):
            make()


def tried(dimension, rng):
    """Some value of a search space: its ends among them."""
    if isinstance(dimension, Choice):
        return rng.choice(np.array(dimension.options, object))
    if isinstance(dimension, Increasing):
        return int(rng.choice(dimension.values))
    share = rng.choice([0.0, 1.0, rng.random()])
    low, high = (np.log(one) if dimension.log else one for one in (dimension.low, dimension.high))
    value = low + share * (high - low)
    value = float(np.clip(np.exp(value) if dimension.log else value, dimension.low, dimension.high))
    return round(value) if isinstance(dimension, Integer) else value


@pytest.mark.parametrize("kind", [*ALL, sl.MatrixFactorization])
def test_spaces_are_of_settings_that_there_are(kind):
    space, names = kind.space(), {one.name for one in fields(kind)}
    assert space.keys() <= names
    assert all(isinstance(one, Real | Integer | Choice | Increasing) for one in space.values())
    rng = np.random.default_rng(0)
    for _ in range(20):
        chosen = {name: tried(dimension, rng) for name, dimension in space.items()}
        assert kind(**chosen).settings().items() >= chosen.items()


# --- weights of pairs ------------------------------------------------------------------------------------------------


def test_weights_of_the_data_count_where_they_are_asked_for():
    data, plain = events(weighted=True), events()
    for kind in (sl.BPR, sl.SquareMF):
        same(kind(**SMALL).fit(data, threads=1), kind(**SMALL).fit(plain, threads=1))
        fits = [
            kind(**{**SMALL, "learning_rate": 0.02}, weighting=one).fit(data, threads=1)
            for one in ("binary", "log", "raw")
        ]
        assert not np.array_equal(fits[0].item_embeddings_, fits[1].item_embeddings_)
        assert not np.array_equal(fits[1].item_embeddings_, fits[2].item_embeddings_)


def test_strengths_may_be_labels():
    """Of the square loss: what was bought more is to score more."""
    data = events(120, 30, weighted=True)
    model = sl.SquareMF(
        dim=8, epochs=150, learning_rate=0.03, regularization=0.001, weighting="raw", strength_as="label"
    )
    model.fit(data, threads=1)
    rows = data.by_context
    context_of = np.repeat(np.arange(rows.n_rows), rows.lengths)
    y = np.einsum("ed,ed->e", model.context_embeddings_[context_of], model.item_embeddings_[rows.indices])
    assert np.corrcoef(y, rows.values)[0, 1] > 0.5
    ones = sl.SquareMF(dim=8, epochs=150, learning_rate=0.03, regularization=0.001).fit(data, threads=1)
    y = np.einsum("ed,ed->e", ones.context_embeddings_[context_of], ones.item_embeddings_[rows.indices])
    assert abs(np.corrcoef(y, rows.values)[0, 1]) < 0.3


# --- biases ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [sl.LogisticMF, sl.BPR, sl.SoftmaxMF])
@pytest.mark.parametrize("normalize", [False, True])
def test_biases_are_two_more_columns(kind, normalize):
    model = kind(**SMALL, biases=True, normalize=normalize).fit(events(), threads=1)
    W, H = model.context_embeddings_, model.item_embeddings_
    assert W.shape[1] == H.shape[1] == 6
    assert (W[:, 4] == 1).all()
    assert (H[:, 5] == 1).all()
    assert (H[:, 4] != 0).any()
    assert (W[:, 5] != 0).any() == (kind is sl.LogisticMF)  # of others it would change no order
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(W[:, :4], axis=1), 1, rtol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(H[:, :4], axis=1), 1, rtol=1e-5)
    (answer,) = model.recommend([0], n=1).scores
    assert answer[0] == pytest.approx(
        float((W[0] @ H.T)[model.items_.encode(model.recommend([0], n=1).ids[0])][0]), rel=1e-5
    )


def test_biases_follow_popularity():
    frame = {
        "u": [u for u in range(60) for _ in range(3)],
        "i": [(u * k) % 7 if k else 9 for u in range(60) for k in range(3)],
    }
    data = sl.Interactions.from_frame(frame, context="u", item="i")
    model = sl.LogisticMF(dim=2, epochs=60).fit(data, threads=1)
    popular = int(np.argmax(data.by_context.column_counts()))
    assert int(np.argmax(model.item_embeddings_[:, 2])) == popular


def test_similar_items_do_not_look_at_biases():
    model = sl.LogisticMF(**SMALL).fit(events(), threads=1)
    before = model.similar_items(["i04"], n=5)
    model.item_embeddings_[:, 4] += 100 * np.arange(len(model.item_embeddings_), dtype=np.float32)
    after = model.similar_items(["i04"], n=5)
    assert after.ids == before.ids
    H = model.item_embeddings_[:, :4]
    unit = H / np.linalg.norm(H, axis=1, keepdims=True)
    i = model.items_.encode(["i04"])[0]
    best = np.sort(np.delete(unit @ unit[i], i))[::-1][:5]
    np.testing.assert_allclose(after.scores[0], best, rtol=1e-5)


# --- going on --------------------------------------------------------------------------------------------------------


def halves():
    everything = events(120, 36)
    late = everything.times >= np.quantile(everything.times, 0.8)
    return everything.select(~late, compact=True), everything.select(late, compact=True)


@pytest.mark.parametrize("normalize", [False, True])
def test_more_events_keep_what_was_learnt(normalize):
    early, more = halves()
    fitted = sl.LogisticMF(dim=6, epochs=60, learning_rate=0.1, normalize=normalize).fit(early, threads=1)
    before = fitted.item_embeddings_.copy()
    assert before[:, 6].any()
    still = sl.LogisticMF(**{**fitted.settings(), "epochs": 1, "learning_rate": 0.0})
    model = still.fit(early, start=fitted, threads=1)
    model.partial_fit(more, epochs=1, threads=1)
    assert model.item_embeddings_.shape == (36, 8)
    np.testing.assert_allclose(model.item_embeddings_[: len(before)], before, rtol=1e-5, atol=1e-7)
    assert (model.item_embeddings_[:, 7] == 1).all()
    losses = [one.loss.observed + one.loss.unobserved for one in model.training_]
    cold = sl.LogisticMF(dim=6, epochs=1, learning_rate=0.0, normalize=normalize)
    cold.fit(sl.splits.by_time(events(120, 36), test=0.2).train, threads=1)
    assert losses[0] < 0.9 * (cold.training_[0].loss.observed + cold.training_[0].loss.unobserved)
    fitted.partial_fit(more, epochs=2, threads=1)
    assert (fitted.item_embeddings_[: len(before)] != before).any()


def test_beginning_from_others():
    data = events()
    ials = sl.IALS(dim=4, epochs=4).fit(data)
    biased = sl.LogisticMF(dim=4, epochs=5, learning_rate=0.1).fit(data, threads=1)
    still = {"learning_rate": 0.0, "epochs": 1}
    for kind in (sl.BPR, sl.LogisticMF):
        plain = kind(dim=6, **still).fit(data, start=ials, threads=1)
        np.testing.assert_array_equal(plain.item_embeddings_[:, :4], ials.item_embeddings_)
        assert plain.item_embeddings_[:, 4:6].any()
    np.testing.assert_array_equal(plain.item_embeddings_[:, 6:], np.tile([0, 1], (data.n_items, 1)))
    wider = sl.HingeMF(dim=6, **still).fit(data, start=biased, threads=1)
    np.testing.assert_array_equal(wider.item_embeddings_[:, :4], biased.item_embeddings_[:, :4])
    np.testing.assert_array_equal(wider.item_embeddings_[:, 6:], biased.item_embeddings_[:, 4:])
    without = sl.BPR(dim=4, **still).fit(data, start=biased, threads=1)
    np.testing.assert_array_equal(without.item_embeddings_, biased.item_embeddings_[:, :4])
    from_biased = sl.IALS(dim=4, epochs=2).fit(data, start=biased)
    assert from_biased.item_embeddings_.shape[1] == 4
    with pytest.raises(sl.SettingError, match="start has 4 dimensions, but dim is 3"):
        sl.BPR(dim=3).fit(data, start=biased)


def test_a_good_start_helps():
    data = events()
    start = sl.BPR(dim=4, epochs=40, learning_rate=0.1).fit(data, threads=1)
    warm = sl.BPR(**{**SMALL, "epochs": 1}).fit(data, start=start, threads=1)
    cold = sl.BPR(**{**SMALL, "epochs": 1}).fit(data, threads=1)
    assert warm.training_[0].loss.observed < 0.7 * cold.training_[0].loss.observed


CHECKPOINTED = [
    sl.BPR(dim=4, epochs=5, optimizer="adam"),
    sl.AdaptiveBPR(dim=4, epochs=5, gamma=5.0, optimizer="adagrad"),
    sl.WARP(dim=4, epochs=5),
    sl.LambdaMF(dim=4, epochs=5, ranks="exact", optimizer="adam"),
    sl.SquareMF(dim=4, epochs=5, schedule="linear", weighting="log"),
    sl.SoftmaxMF(dim=4, epochs=5, n_negatives=8),
]


@pytest.mark.parametrize("after", [2, 5])
@pytest.mark.parametrize("model", CHECKPOINTED, ids=lambda one: type(one).__name__)
def test_a_break_changes_nothing(model, after, tmp_path):
    data = events(weighted=True)
    whole = type(model)(**model.settings()).fit(data, threads=1)
    resumed = fit_with_a_break(type(model)(**model.settings()), data, tmp_path / "c", after, threads=1)
    same(resumed, whole)
    assert [one.loss for one in resumed.training_] == [one.loss for one in whole.training_]
    assert [one.samples for one in resumed.training_] == [one.samples for one in whole.training_]


def test_a_break_changes_nothing_of_early_stopping(tmp_path):
    split = sl.splits.by_time(events(120, 36), test=0.2)
    chosen = {"dim": 12, "epochs": 30, "learning_rate": 0.3}
    how = {"validation": split, "metric": "recall@3", "patience": 2, "threads": 1}
    whole = sl.BPR(**chosen).fit(split.train, **how)
    for after in (1, 7, len(whole.training_) - 1):
        resumed = fit_with_a_break(sl.BPR(**chosen), split.train, tmp_path / str(after), after, **how)
        same(resumed, whole)
        assert resumed.best_epoch_ == whole.best_epoch_
        assert [one.validation for one in resumed.training_] == [one.validation for one in whole.training_]


@pytest.mark.parametrize("schedule", ["linear", "cosine", "inverse"])
def test_a_schedule_is_for_so_many_epochs(schedule, tmp_path):
    data = events()
    sl.BPR(dim=4, epochs=2, schedule=schedule).fit(data, checkpoint=tmp_path / "c", threads=1)
    with pytest.raises(
        sl.StorageError, match="of another fit: the number of epochs, which the learning rate depends on"
    ):
        sl.BPR(dim=4, epochs=3, schedule=schedule).fit(data, checkpoint=tmp_path / "c", threads=1)
    short = {"dim": 4, "schedule": schedule, "schedule_epochs": 6}
    sl.BPR(**short, epochs=2).fit(data, checkpoint=tmp_path / "d", threads=1)
    longer = sl.BPR(**short, epochs=4).fit(data, checkpoint=tmp_path / "d", threads=1)
    same(longer, sl.BPR(**short, epochs=4).fit(data, threads=1))
    steady = {"dim": 4, "schedule": "constant"}
    sl.BPR(**steady, epochs=2).fit(data, checkpoint=tmp_path / "e", threads=1)
    longer = sl.BPR(**steady, epochs=3).fit(data, checkpoint=tmp_path / "e", threads=1)
    same(longer, sl.BPR(**steady, epochs=3).fit(data, threads=1))


def test_what_an_optimizer_remembers_must_fit(tmp_path):
    from dataclasses import replace

    from shortlist.storage import load_model, save_model

    data = events()
    model = {"dim": 4, "optimizer": "adam", "schedule": "constant"}
    sl.BPR(**model, epochs=2).fit(data, checkpoint=tmp_path / "c", threads=1)
    stored = load_model(tmp_path / "c")
    without = {name: array for name, array in stored.arrays.items() if "item_second" not in name}
    assert len(without) == len(stored.arrays) - 1
    save_model(tmp_path / "c", replace(stored, arrays=without))
    with pytest.raises(
        sl.StorageError, match=r"is not usable: there is no array item_second; expected .* another folder"
    ):
        sl.BPR(**model, epochs=3).fit(data, checkpoint=tmp_path / "c", threads=1)


def test_the_best_contexts_must_be_there(tmp_path):
    from dataclasses import replace

    from shortlist.storage import load_model, save_model

    split = sl.splits.by_time(events(120, 36), test=0.2)
    plan = {"validation": split, "checkpoint": tmp_path / "c", "every": 1, "threads": 1}
    sl.BPR(dim=4, epochs=2, schedule_epochs=5).fit(split.train, **plan)
    stored = load_model(tmp_path / "c")
    without = {name: array for name, array in stored.arrays.items() if name != "best.contexts"}
    assert len(without) == len(stored.arrays) - 1
    save_model(tmp_path / "c", replace(stored, arrays=without))
    with pytest.raises(sl.StorageError, match="is not usable: there is no array contexts"):
        sl.BPR(dim=4, epochs=3, schedule_epochs=5).fit(split.train, **plan)


# --- stopping and progress -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [sl.BPR, sl.WARP, sl.SoftmaxMF])
def test_the_best_epoch_is_what_remains(kind):
    split = sl.splits.by_time(events(120, 36), test=0.2)
    chosen = {"dim": 12, "learning_rate": 0.1, "schedule": "constant"}
    model = kind(epochs=13, **chosen)
    model.fit(split.train, validation=split, metric="recall@5", patience=10, every=2, threads=1)
    judged = {one.number: one.validation for one in model.training_ if one.validation is not None}
    assert list(judged) == [2, 4, 6, 8, 10, 12, 13]
    assert judged[model.best_epoch_] == max(judged.values())
    best = kind(epochs=model.best_epoch_, **chosen).fit(split.train, threads=1)
    np.testing.assert_allclose(model.item_embeddings_, best.item_embeddings_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.context_embeddings_, best.context_embeddings_, rtol=1e-4, atol=1e-5)
    assert sl.evaluate(model, split, "recall@5")["recall@5"] == pytest.approx(max(judged.values()), abs=1e-9)


def test_it_stops_when_it_gets_no_better():
    split = sl.splits.by_time(events(120, 36), test=0.2)
    model = sl.BPR(dim=12, epochs=200, learning_rate=0.3).fit(split.train, validation=split, patience=2, threads=1)
    assert len(model.training_) == model.best_epoch_ + 10 < 200  # twice five epochs
    assert {one.number % 5 for one in model.training_ if one.validation is not None} == {0}


def test_the_settings_that_end_at_an_epoch_are_those_of_its_model():
    """A schedule goes on as if there were more epochs to come."""
    split = sl.splits.by_time(events(120, 36), test=0.2)
    model = sl.BPR(dim=6, epochs=12, learning_rate=0.2, schedule="linear")
    model.fit(split.train, validation=split, metric="recall@5", patience=10, every=1, threads=1)
    again = sl.BPR(**{**model.settings(), **model.settings_ending_at(model.best_epoch_)}).fit(split.train, threads=1)
    np.testing.assert_allclose(again.item_embeddings_, model.item_embeddings_, rtol=1e-5, atol=1e-6)


def test_progress_tells_the_speed(capsys):
    sl.BPR(**SMALL).fit(events(), progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all("M samples/s" in line and "loss" in line for line in lines)
    sl.IALS(dim=2, epochs=1).fit(events(), progress=True)
    assert "samples/s" not in capsys.readouterr().err


def test_in_batch_folds_in_by_popularity():
    """InBatch folds in by popularity, of which it is a sample."""
    data = events()
    in_batch = sl.MatrixFactorization(**SMALL, sampler=InBatch()).fit(data, threads=1)
    popular = sl.MatrixFactorization(**SMALL, sampler=Popularity(1.0)).fit(data, threads=1)
    popular.item_embeddings_[:] = in_batch.item_embeddings_
    popular._folding = None
    np.testing.assert_array_equal(popular.fold_in([["i03", "i12"]]), in_batch.fold_in([["i03", "i12"]]))


def test_more_dimensions_from_where_it_was():
    model = sl.BPR(**SMALL).fit(events(), threads=1)
    wider = sl.BPR(**{**model.settings(), "dim": 8}).fit(events(), start=model, threads=1)
    assert wider.item_embeddings_.shape[1] == 8


def test_what_does_not_go_together():
    with pytest.raises(sl.SettingError, match=r"but Uniform.* may draw the history; use exclude='history'"):
        sl.MatrixFactorization(sampler=Uniform("positive"), weight=LambdaRank())
    with pytest.raises(sl.SettingError, match="does not support normalize and biases together"):
        sl.AdaptiveBPR(normalize=True, biases=True)
    with pytest.raises(sl.SettingError, match="margin is 0"):
        sl.WARP(margin=0)
