"""Matrix factorization: what its recommenders promise beyond what every recommender does."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings

import shortlist as sl
from recommenders.factorizations import events, same, settings_of_ials
from shortlist.data.synthetic import synthetic_codes
from shortlist.solvers.normal_equations import solve_rows_reference


@settings(max_examples=40)
@given(settings_of_ials())
def test_folding_in_a_training_context_gives_its_row(chosen):
    data = events(30, 18, weighted=True)
    model = sl.IALS(**chosen).fit(data)
    history = [dict(zip(data.items.ids(row := data.by_context.row(c)),
                        data.by_context.values[data.by_context.indptr[c]:][:len(row)].tolist()))
               for c in range(data.n_contexts)]  # fmt: skip
    np.testing.assert_allclose(model.fold_in(history), model.context_embeddings_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.fold_in(data), model.context_embeddings_, rtol=1e-3, atol=1e-4)


@settings(max_examples=40)
@given(settings_of_ials())
def test_folding_in_a_training_item_gives_the_row_of_an_item_half_step(chosen):
    data = events(30, 18, weighted=True)
    model = sl.IALS(**chosen).fit(data)
    objective = model.objective()
    contexts, items = objective.omegas(data.by_context)
    terms = objective.terms(data.by_item, items.values, contexts.values)
    expected = solve_rows_reference(data.by_item, terms, model.context_embeddings_)
    rows = data.by_item
    given_contexts = [
        dict(zip(data.contexts.ids(rows.row(i)), rows.values[rows.indptr[i] : rows.indptr[i + 1]].tolist()))
        for i in range(data.n_items)
    ]
    np.testing.assert_allclose(model.fold_in_items(given_contexts), expected, rtol=2e-3, atol=2e-4)


def test_a_new_item_is_near_those_that_its_contexts_like():
    data = events(90, 30)
    model = sl.IALS(dim=8, epochs=6).fit(data)
    (item,) = model.fold_in_items([data.contexts.ids()[0:60:3]])
    scores = model.item_embeddings_ @ item
    best = [int(data.items.ids([k])[0][1:]) % 3 for k in np.argsort(-scores)[:5]]
    assert best == [0] * 5
    (weighted,) = model.fold_in_items([{0: 1.0, 3: 1.0}])
    (plain,) = model.fold_in_items([[0, 3]])
    np.testing.assert_array_equal(weighted, plain)
    assert (model.fold_in_items([[]]) == 0).all()


def test_wrong_contexts_of_items():
    model = sl.IALS(dim=2, epochs=1).fit(events())
    with pytest.raises(sl.UnknownIdError, match=r"unknown context 999.*; pass unknown='skip' to drop them"):
        model.fold_in_items([[0, 999]])
    for listed in (np.array([[0, 3]]), (one for one in [[0, 3]]), ([0, 3],)):
        np.testing.assert_array_equal(model.fold_in_items(listed), model.fold_in_items([[0, 3]]))
    np.testing.assert_array_equal(model.fold_in_items([[0, 999]], unknown="skip"), model.fold_in_items([[0]]))
    for wrong in ("ab", {1: 2}, 5):
        with pytest.raises(sl.SettingError, match="expected a list with the contexts of each item"):
            model.fold_in_items(wrong)
    with pytest.raises(sl.SettingError, match="contexts of item 0 is 5"):
        model.fold_in_items([5])
    with pytest.raises(sl.NotFittedError):
        sl.IALS().fold_in_items([[1]])


@settings(max_examples=40)
@given(settings_of_ials())
def test_an_explanation_sums_to_the_score(chosen):
    data = events(30, 18, weighted=True)
    model = sl.IALS(**chosen).fit(data)
    for context, item in ((0, "i04"), (17, "i00")):
        why = model.explain(context, item, n=100)
        (score,) = model.score([context], [[item]])[0]
        assert abs(why.contributions.sum() - score) < 1e-3
        assert abs(why.score - score) < 1e-3
        assert sorted(why.ids) == sorted(set(data.history(context)))
        assert (np.diff(why.contributions) <= 0).all()


def test_an_explanation_names_what_counted_most():
    data = events(90, 30)
    model = sl.IALS(dim=12, epochs=6).fit(data)
    why = model.explain(None, "i03", n=2, history=["i00", "i06", "i01"])
    assert set(why.ids) == {"i00", "i06"}  # of the kind of i03
    assert abs(why.contributions.sum() + why.rest - why.score) < 1e-9
    assert why.to_polars().columns == ["product", "contribution"]
    assert why.to_polars()["product"].to_list() == why.ids
    assert repr(why).startswith("product i03 has the score")
    assert "the rest" in repr(why)
    for n in (3, 10):
        everything = model.explain(None, "i03", n=n, history=["i00", "i06", "i01"])
        assert everything.rest == 0
        assert "the rest" not in repr(everything)
    nothing = model.explain(None, "i03", history=[])
    assert nothing.score == 0
    assert len(nothing) == 0
    assert "the history is empty" in repr(nothing)
    with pytest.raises(sl.UnknownIdError, match="unknown item 'x'"):
        model.explain(0, "x")
    for wrong in ({"context": 0, "history": ["i00"]}, {"context": None}):
        with pytest.raises(sl.SettingError, match=r"pass either context .* or history=, exactly one of the two"):
            model.explain(item="i03", **wrong)
    with pytest.raises(sl.UnknownIdError, match=r"unknown context.*; explain a context of the training data, or pass"):
        model.explain(12345, "i03")
    with pytest.raises(sl.UnknownIdError, match=r"unknown item 'zz'.*; drop them from the history"):
        model.explain(None, "i03", history=["zz"])
    with pytest.raises(sl.SettingError, match=r"^history is 'i00'; expected a list of item ids, or"):
        model.explain(None, "i03", history="i00")
    with pytest.raises(sl.DataError, match=r"^history: expected weights from 0 to"):
        model.explain(None, "i03", history={"i00": -1})
    with pytest.raises(sl.NotFittedError):
        sl.IALS().explain(0, "i03")


def test_exponents_shift_weight_between_popular_and_rare_items():
    """Popular items that were not taken count for more with ρ > 0, so that their scores sink beside those of others."""
    data = events(200, 30, seed=2)
    popularity = np.bincount(data.by_context.indices, minlength=data.n_items)
    popular, rare = popularity >= np.median(popularity), popularity < np.median(popularity)
    ratio = []
    for exponent in (-2.0, 0.0, 2.0):
        model = sl.IALS(dim=3, epochs=6, unobserved_weight=1.0, unobserved_item_exponent=exponent).fit(data)
        scores = np.abs(model.context_embeddings_ @ model.item_embeddings_.T).mean(axis=0)
        ratio.append(scores[popular].mean() / scores[rare].mean())
    assert ratio[0] > ratio[1] > ratio[2]


def test_a_loaded_model_weighs_new_users_as_the_fitted_one(tmp_path):
    model = sl.IALS(dim=4, epochs=2, unobserved_item_exponent=0.5, unobserved_context_exponent=-1.0).fit(events())
    model.save(tmp_path / "model")
    loaded = sl.load(tmp_path / "model")
    told = [["i00", "i03"], ["i01"], []]
    np.testing.assert_array_equal(loaded.fold_in(told), model.fold_in(told))
    np.testing.assert_array_equal(loaded.fold_in_items([[1, 2]]), model.fold_in_items([[1, 2]]))
    assert loaded.explain(3, "i00").score == model.explain(3, "i00").score


@pytest.mark.parametrize("exponent", [12.0, 60.0, -60.0])
def test_a_model_that_can_be_saved_can_be_loaded(exponent, tmp_path):
    """Also where a stranger who had every item would weigh more than float32 can hold."""
    data = sl.Interactions.from_frame({"u": [0, 0, 1, *range(2, 6000)], "i": [0, 1, 0, *range(2, 6000)]},
                                      context="u", item="i")  # fmt: skip
    model = sl.IALS(dim=2, epochs=1, unobserved_context_exponent=exponent).fit(data)
    model.save(tmp_path / "model")
    assert sl.load(tmp_path / "model").recommend([0]).ids == model.recommend([0]).ids


def test_an_exponent_beyond_all_measure_is_refused_where_it_cannot_be_used():
    model = sl.IALS(dim=2, epochs=1, unobserved_context_exponent=400.0).fit(events(20, 12))
    with pytest.raises(sl.SettingError, match="exponent are too large"):
        model.fold_in([[f"i{k:02}" for k in range(12)]])


@pytest.mark.parametrize("wrong", [{"solver": "magic"}, {"block": 0}, {"unobserved_item_exponent": float("inf")}])
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(sl.SettingError, match=f"{next(iter(wrong))} is"):
        sl.IALS(**wrong)


def test_icd_is_ials_with_the_coordinate_solver():
    data = events()
    chosen = {"dim": 5, "epochs": 3, "unobserved_item_exponent": 0.5}
    same(sl.ICD(**chosen).fit(data), sl.IALS(solver="coordinate", **chosen).fit(data))
    with pytest.raises(sl.SettingError, match="ICD has no setting 'solver'; it has dim, "):
        sl.ICD(solver="exact")


def of_block(solver: str, size: int) -> dict[str, int]:
    """The size of blocks, for the solver that has some."""
    return {"block": size} if solver == "block" else {}


@pytest.mark.parametrize("solver", ["eigen", "exact", "block", "coordinate"])
def test_every_solver_comes_to_about_the_same_loss(solver):
    data = events(80, 40)
    model = sl.IALS(dim=6, epochs=40, regularization=0.02, solver=solver, seed=1, **of_block(solver, 2)).fit(data)
    best = sl.IALS(dim=6, epochs=40, regularization=0.02, seed=1).fit(data).training_[-1].loss.total
    losses = [epoch.loss.total for epoch in model.training_]
    assert all(b <= a * (1 + 1e-5) for a, b in itertools.pairwise(losses))
    assert losses[-1] < best * 1.05


@pytest.mark.parametrize(
    ("solver", "dim"), [("eigen", 7), ("eigen", 200), ("exact", 7), ("block", 7), ("coordinate", 7)]
)
def test_the_same_seed_gives_the_same_model_at_any_number_of_threads(solver, dim):
    data = events(300, 60)
    settings = {"dim": dim, "epochs": 3, "solver": solver, **of_block(solver, 3)}
    models = [sl.IALS(**settings).fit(data, threads=threads) for threads in (1, 2, 5)]
    for model in models[1:]:
        same(model, models[0])
        assert [epoch.loss for epoch in model.training_] == [epoch.loss for epoch in models[0].training_]


@pytest.mark.parametrize("solver", ["eigen", "exact", "block"])  # coordinate descent falls back to zero
@pytest.mark.filterwarnings("ignore:overflow encountered in matmul:RuntimeWarning")
def test_start_values_beyond_float32_are_refused(solver):
    with pytest.raises(sl.SettingError, match=r"embeddings are too large.*; lower init_scale, or raise regularization"):
        sl.IALS(dim=3, epochs=2, init_scale=1e20, solver=solver).fit(events())
    start = sl.IALS(dim=3, epochs=1).fit(events())
    start.item_embeddings_ = start.item_embeddings_ * np.float32(1e30)
    with pytest.raises(sl.SettingError, match="with start=, scale down its embeddings"):
        sl.IALS(dim=3, epochs=2, solver=solver).fit(events(), start=start)


@pytest.mark.parametrize("solver", ["eigen", "exact", "block", "coordinate"])
def test_memory_is_that_of_the_interactions_and_three_times_the_factors(solver):
    n_contexts, n_items, dim = 40_000, 5_000, 32
    contexts, items = synthetic_codes(n_contexts, n_items, 200_000, seed=0)
    ids = [sl.Vocabulary.of(np.arange(n), name) for n, name in ((n_contexts, "u"), (n_items, "i"))]
    data = sl.Interactions(*ids, contexts, items)
    views = sum(one.nbytes for rows in (data.by_context, data.by_item) for one in (rows.indptr, rows.indices))
    factors = 4 * dim * (n_contexts + n_items)
    sl.IALS(dim=4, epochs=1, solver=solver).fit(events(), threads=2)  # everything is imported and compiled
    tracemalloc.start()
    sl.IALS(dim=dim, epochs=2, solver=solver).fit(data, threads=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 3 * factors, f"{peak / factors:.1f} times the factors beside {views:,} bytes of interactions"


def test_an_explanation_where_the_system_is_singular():
    """λ = 0 and fewer pairs than dimensions: the smallest solution, as the embedding itself is."""
    data = events(20, 12)
    model = sl.IALS(dim=30, epochs=2, regularization=0.0, unobserved_weight=0.0, solver="exact").fit(data)
    for item in ("i00", "i01"):
        (score,) = model.score([0], [[item]])[0]
        assert model.explain(0, item).score == pytest.approx(score, abs=1e-2)


def test_contexts_end_where_they_fold_in_to_whatever_the_weights():
    """Weights from 1 to some 10,000, which make light directions hard to see for conjugate gradients."""
    rng = np.random.default_rng(0)
    n = 8000
    frame = {
        "user": rng.integers(0, 300, n),
        "product": rng.zipf(1.3, n) % 200,
        "amount": np.round(rng.lognormal(2, 2, n)) + 1,
    }
    data = sl.Interactions.from_frame(frame, context="user", item="product", weight="amount")
    model = sl.IALS(dim=16, weighting="raw", regularization=1e-4, epochs=8).fit(data)
    trained, folded = (
        side @ model.item_embeddings_.T for side in (model.context_embeddings_, model._fold_in(model.seen_))
    )
    np.testing.assert_allclose(trained, folded, atol=3e-4 * np.abs(folded).max())
