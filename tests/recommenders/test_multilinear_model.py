"""Contexts of several parts, the pairwise square loss, and the generic solver against `IALS`."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from recommenders.factorizations import events


def scores(model):
    return model.context_embeddings_ @ model.item_embeddings_.T


def shopping(seed=0, users=40, days=3, items=30):
    """Events of (user, day): tastes differ by day, and some combinations never occur."""
    rng = np.random.default_rng(seed)
    rows = []
    for u in range(users):
        for d in range(days):
            if (u + d) % 5 == 0 and u % 3 == 0:
                continue
            liked = [i for i in range(items) if i % 3 == d and (i // 3) % 2 == u % 2]
            rows += [(f"u{u}", d, f"i{i}") for i in rng.permutation(liked)[:3]]
    return pl.DataFrame(rows, schema=["user", "day", "product"], orient="row")


def tuples(frame=None):
    return sl.Interactions.from_frame(shopping() if frame is None else frame, context=["user", "day"], item="product")


@given(
    seed=st.integers(0, 1000),
    unobserved=st.sampled_from([0.05, 0.5]),
    convention=st.sampled_from(["added", "total"]),
    rho=st.sampled_from([0.0, 0.5]),
    weighting=st.sampled_from(["binary", "log"]),
)
@settings(max_examples=15, deadline=None)
def test_matrix_factorization_through_the_generic_solver_is_ials(seed, unobserved, convention, rho, weighting):
    data = events(seed=seed, weighted=True)
    common = {
        "dim": 5, "epochs": 3, "seed": seed, "unobserved_weight": unobserved, "convention": convention,
        "unobserved_item_exponent": rho, "unobserved_context_exponent": -rho / 2, "weighting": weighting,
        "regularization": 0.02,
    }  # fmt: skip
    exact = sl.IALS(solver="exact", **common).fit(data)
    for model in (sl.PARAFAC(steps=40, **common), sl.FeatureIALS(steps=40, **common)):
        model.fit(data)
        np.testing.assert_allclose(scores(model), scores(exact), rtol=1e-3, atol=2e-4)
        assert model.training_[-1].loss.total == pytest.approx(exact.training_[-1].loss.total, rel=1e-4)
        folded = model.fold_in(data) @ model.item_embeddings_.T
        np.testing.assert_allclose(folded, scores(exact), rtol=1e-3, atol=3e-4)


def test_coordinate_descent_is_icd():
    data = events()
    common = {"dim": 5, "epochs": 1, "regularization": 0.02, "unobserved_weight": 0.1}
    icd = sl.ICD(**common).fit(data)
    model = sl.PARAFAC(solver="cd", **common).fit(data)
    np.testing.assert_allclose(scores(model), scores(icd), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("exponent", [0.0, 0.7])
def test_the_solvers_of_rankals_have_the_same_minimum(exponent):
    data = events(weighted=True)
    common = {"dim": 4, "epochs": 60, "regularization": 0.1, "item_exponent": exponent, "weighting": "log"}
    ends = {solver: sl.RankALS(solver=solver, **common).fit(data) for solver in ("cg", "als", "cd")}
    total = {solver: model.training_[-1].loss.total for solver, model in ends.items()}
    assert total["als"] == pytest.approx(total["cg"], rel=2e-3)
    assert total["cd"] == pytest.approx(total["cg"], rel=5e-3)
    for model in ends.values():
        losses = [epoch.loss.total for epoch in model.training_]
        assert (np.diff(losses) <= 1e-5 * losses[0]).all()
        assert np.mean([len({*a} & {*b}) for a, b in zip(
            model.recommend(range(9), n=5).ids, ends["cg"].recommend(range(9), n=5).ids)]) > 4  # fmt: skip


def test_rankals_finds_what_is_liked():
    data = events(90)
    split = sl.splits.held_out_contexts(data, 20, fold_in=0.6)
    found = sl.evaluate(sl.RankALS(dim=8, epochs=10, regularization=0.1).fit(split.train), split)["ndcg@20"]
    assert found > 1.3 * sl.evaluate(sl.Popularity().fit(split.train), split)["ndcg@20"]


@pytest.mark.parametrize("model", [sl.PARAFAC(dim=6, epochs=8), sl.Tucker(dim=6, part_dim=3, epochs=30),
                                   sl.FactorizationMachine(dim=6, epochs=8)])  # fmt: skip
def test_combinations_that_were_never_seen(model, tmp_path):
    data = tuples()
    model.fit(data)
    new = [one for one in ((f"u{u}", d) for u in range(40) for d in range(3)) if one not in data.contexts]
    assert new
    answer = model.recommend([new[0], ("u1", 2), new[1]], n=4)
    assert answer.queries == [new[0], ("u1", 2), new[1]]
    assert answer.to_polars().columns == ["user", "day", "product", "rank", "score"]
    assert answer.to_polars()["day"].dtype == data.contexts.frame["day"].dtype
    assert answer.ids[1] == model.recommend([("u1", 2)], n=4).ids[0]
    model.save(tmp_path / "m")
    loaded = sl.load(tmp_path / "m")
    assert loaded.recommend([new[0], ("u1", 2), new[1]], n=4).ids == answer.ids
    # Those who like one kind of items on the days that are known like it on the others.
    right = [
        int(item[1:]) % 3 == d and (int(item[1:]) // 3) % 2 == int(u[1:]) % 2
        for (u, d), ids in zip(new, model.recommend(new, n=2).ids)
        for item in ids
    ]
    if not isinstance(model, sl.FactorizationMachine):  # whose day and item meet, and user and item, not all three
        assert np.mean(right) > 0.8
    rank = model.rank([new[0]], [answer.ids[0]])[0]
    assert rank.tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(model.score([new[0]], [answer.ids[0]])[0], answer.scores[0], rtol=1e-5)


def test_parts_that_are_not_known():
    model = sl.PARAFAC(dim=4, epochs=5).fit(tuples())
    for wrong in (("u1", 9), ("nobody", 1), ("nobody", 9)):
        with pytest.raises(sl.UnknownIdError, match=r"unknown context .*'skip'.*unknown='average'"):
            model.recommend([("u1", 1), wrong])
    answer = model.recommend([("u1", 9), ("u1", 1), ("nobody", 9)], unknown="skip")
    assert answer.queries == [("u1", 1)]
    assert answer.skipped == [("u1", 9), ("nobody", 9)]
    answer = model.recommend([("u1", 9), ("u2", 1), ("nobody", 2)], unknown="average", n=3)
    assert answer.queries == [("u1", 9), ("u2", 1), ("nobody", 2)]
    parts = model.part_embeddings_
    # An average day is the mean over the training contexts.
    codes = model.parts_["day"].encode(model.contexts_.frame.select("day"))
    mean = parts["day"][codes].mean(axis=0)
    expected = (parts["user"][model.parts_["user"].encode(["u1"])[0]] * mean) @ model.item_embeddings_.T
    np.testing.assert_allclose(
        model.recommend([("u1", 9)], unknown="average", n=1).scores[0], expected.max(), rtol=1e-4
    )
    with pytest.raises(sl.UnknownIdError, match="unknown context"):
        model.recommend([("nobody", 9)], unknown="average")
    for wrong in (("u1", "1"), ("u1",), "u1", ("u1", 1.0), 7, ("u1", True), ("u1", None), ("u1", 10**30)):
        with pytest.raises(sl.UnknownIdError, match=r"unknown context.* \(1 of 2 contexts"):
            model.recommend([("u1", 1), wrong])
    # What is wrong with one does not change the answers to others.
    unseen = ("u0", 0)
    assert unseen not in model.contexts_
    assert model.recommend([unseen, ("u1", "x")], unknown="skip").ids == model.recommend([unseen]).ids
    for stranger in (None, "nobody", 7, 10**30):
        answer = model.recommend([(stranger, 2), unseen], unknown="average", n=3)
        assert answer.queries == [(stranger, 2), unseen]
        assert answer.ids[0] == model.recommend([("nobody", 2)], unknown="average", n=3).ids[0]
        assert answer.to_polars().height == 6
    assert model.rank([("u1", 9)], [["i1"]], unknown="average")[0][0] >= 1
    assert len(model.score([("u1", 9)], [["i1"]], unknown="average")[0]) == 1
    with pytest.raises(sl.SettingError, match="unknown is 'skip'"):
        model.score([("u1", 9)], [["i1"]], unknown="skip")
    with pytest.raises(sl.UnknownIdError, match=r"\(2 of 3 contexts have an unknown part, here day 9"):
        model.recommend([("u1", 9), ("u1", 1), ("u2", 8)])
    assert model.recommend([("u1", "1"), ("u1", 1)], unknown="skip").queries == [("u1", 1)]
    with pytest.raises(sl.SettingError, match=r"write \[\('u1', 1\)\]"):
        model.recommend(("u1", 1))
    asked = pl.DataFrame({"day": [1, 2], "user": ["u1", "u2"]})
    assert model.recommend(asked).queries == [("u1", 1), ("u2", 2)]
    with pytest.raises(sl.SettingError, match="expected user, day"):
        model.recommend(asked.select("user"))
    with pytest.raises(sl.SettingError, match="which needs contexts of several parts"):
        sl.PARAFAC(dim=2, epochs=1).fit(events()).recommend([0], unknown="average")
    with pytest.raises(sl.SettingError, match="unknown is 'average'"):
        sl.IALS(dim=2, epochs=1).fit(tuples()).recommend([("u1", 9)], unknown="average")


def test_an_unknown_part_of_a_tucker_model_is_the_mean_of_the_known_ones():
    model = sl.Tucker(dim=4, part_dim=2, epochs=4).fit(tuples())
    asked = [(f"stranger {k}", day) for k in range(50) for day in (0, 1, 2)] + [("u1", 9)]
    codes = [model.parts_[name].encode(model.contexts_.frame.select(name)) for name in ("user", "day")]
    users, days = model.part_embeddings_["user"], model.part_embeddings_["day"]
    mean_user, mean_day = users[codes[0]].mean(axis=0), days[codes[1]].mean(axis=0)
    items = model.items_.ids()
    found = np.array(model.score(asked, [items] * len(asked), unknown="average"))
    for row, (user, day) in zip(found, asked):
        u = users[model.parts_["user"].encode([user])[0]] if user == "u1" else mean_user
        t = days[model.parts_["day"].encode([day])[0]] if day in (0, 1, 2) else mean_day
        expected = model.item_embeddings_ @ np.einsum("k,l,klf->f", u, t, model.core_)
        np.testing.assert_allclose(row, expected, rtol=1e-3, atol=1e-4)


def test_a_history_is_answered_beside_average_parts():
    data = tuples()
    for model in (sl.PARAFAC(dim=6, epochs=8), sl.Tucker(dim=6, part_dim=3, epochs=30)):
        model.fit(data)
        liked = ["i0", "i6", "i12"]
        (ids,) = model.recommend(history=[liked], n=2).ids
        assert set(ids) == {"i18", "i24"}
        assert not model.fold_in([[]]).any()


def test_unseen_combinations_are_evaluated():
    frame = shopping()
    late = pl.Series(np.random.default_rng(1).random(frame.height) < 0.3)
    train = tuples(frame.filter(~late))
    truth = sl.Interactions.from_frame(frame.filter(late), context=["user", "day"], item="product")
    asked = truth.contexts.ids()
    model = sl.PARAFAC(dim=6, epochs=8).fit(train)
    history = train.extend(contexts=asked)
    split = sl.splits.given(history, truth)
    assert any(one not in train.contexts for one in asked)
    contexts = sl.evaluate(model, split)["ndcg@20"]
    users = sl.Interactions.from_frame(frame.filter(~late), context="user", item="product")
    plain = sl.IALS(dim=6, epochs=8).fit(users)
    lists = plain.recommend([user for user, _ in asked], n=20, exclude_seen=False).ids
    assert contexts > 0.1
    assert len(lists) == len(asked)


def test_a_known_tensor_is_found_again():
    """Planted: contexts like the best items of a product of three factors, which no model of users alone can know."""
    rng = np.random.default_rng(0)
    U, T, H = (rng.standard_normal((n, 3)) for n in (150, 5, 120))
    rows, truth = [], {}
    for u in range(150):
        for d in range(5):
            best = rng.permutation(np.argsort(-(U[u] * T[d]) @ H.T)[:12])
            seen = 6 if rng.random() < 0.75 else 0
            rows += [(u, d, int(i)) for i in best[:seen]]
            truth[u, d] = (set(best[seen:].tolist()), seen)
    frame = pl.DataFrame(rows, schema=["user", "day", "product"], orient="row")

    def recall(lists, of_seen):
        found = [
            len(truth[one][0] & set(ids[: len(truth[one][0]) + truth[one][1]])) / len(truth[one][0])
            for one, ids in zip(truth, lists)
            if bool(truth[one][1]) == of_seen
        ]
        return np.mean(found)

    parafac = sl.PARAFAC(dim=6, epochs=40, part_strength=0.1).fit(tuples(frame))
    plain = sl.IALS(dim=6, epochs=15).fit(sl.Interactions.from_frame(frame, context="user", item="product"))
    ours = parafac.recommend(list(truth), n=12, exclude_seen=False).ids
    theirs = plain.recommend([u for u, _ in truth], n=12, exclude_seen=False).ids
    for of_seen in (True, False):
        assert recall(ours, of_seen) > 1.7 * recall(theirs, of_seen)
        assert recall(ours, of_seen) > 0.5


def test_what_tucker_tells():
    model = sl.Tucker(dim=5, first_dim=4, part_dim=2, epochs=2).fit(tuples())
    assert model.core_.shape == (4, 2, 5)
    assert model.part_embeddings_["user"].shape == (40, 4)
    assert model.part_embeddings_["day"].shape == (3, 2)
    u, t = (part[codes] for part, codes in zip(
        model.part_embeddings_.values(),
        (model.parts_["user"].encode(model.contexts_.frame.select("user")),
         model.parts_["day"].encode(model.contexts_.frame.select("day"))),
    ))  # fmt: skip
    np.testing.assert_allclose(np.einsum("ck,cl,klf->cf", u, t, model.core_), model.context_embeddings_, atol=1e-5)


@pytest.mark.parametrize("kind", [sl.PARAFAC, sl.Tucker, sl.FactorizationMachine, sl.RankALS, sl.FeatureIALS])
def test_a_fit_begins_from_another_and_goes_on_with_more_events(kind, tmp_path):
    frame = shopping()
    data = tuples(frame)
    small = kind(dim=3, epochs=6).fit(data)
    grown = kind(dim=5, epochs=1).fit(data, start=small)
    cold = kind(dim=5, epochs=1).fit(data)
    assert grown.training_[-1].loss.total < cold.training_[-1].loss.total
    with pytest.raises(sl.SettingError, match="start has 5 dimensions, but dim is 3"):
        kind(dim=3).fit(data, start=grown)
    with pytest.raises(sl.SettingError, match="expected a fitted recommender of the same type"):
        kind(dim=3).fit(data, start=sl.IALS(dim=3, epochs=1).fit(data))
    other = sl.Interactions.from_frame({"u": ["x"], "d": [1], "i": ["y"]}, context=["u", "d"], item="i")
    with pytest.raises(sl.DataError, match="start knows none of the"):
        kind(dim=3).fit(data, start=kind(dim=2, epochs=1).fit(other))
    early = kind(dim=4, epochs=8).fit(tuples(frame[:200]))
    early.save(tmp_path / "m")
    more = sl.load(tmp_path / "m").partial_fit(tuples(frame[200:]), epochs=4)
    assert set(more.contexts_.ids()) == set(data.contexts.ids())
    whole = kind(dim=4, epochs=12).fit(data)
    assert more.training_[-1].loss.total < 1.25 * whole.training_[-1].loss.total
    assert len(more.recommend([("u38", 1)], n=3).ids[0]) == 3


@pytest.mark.parametrize("kind", [sl.PARAFAC, sl.Tucker, sl.FactorizationMachine])
@pytest.mark.parametrize("solver", ["als", "cd"])
def test_the_pairwise_loss_of_multilinear_models(kind, solver):
    model = kind(dim=4, epochs=6, loss="pairwise", solver=solver, regularization=0.05).fit(tuples())
    losses = [epoch.loss.total for epoch in model.training_]
    assert (np.diff(losses) <= 1e-4 * losses[0]).all()
    assert losses[-1] < 0.8 * losses[0]
    assert isinstance(model.objective(), sl.objectives.PairwiseSquare)


def test_settings_that_make_no_sense():
    for settings_, match in (
        ({"solver": "sgd"}, "solver is 'sgd'"),
        ({"steps": 0}, "steps is 0"),
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"part_strength": -1.0}, "part_strength is -1"),
    ):
        with pytest.raises(sl.SettingError, match=match):
            sl.PARAFAC(**settings_)
    with pytest.raises(sl.SettingError, match="part_dim is 0"):
        sl.Tucker(part_dim=0)
    with pytest.raises(sl.SettingError, match="solver is 'eigen'"):
        sl.RankALS(solver="eigen")
    with pytest.raises(sl.SettingError, match="feature_strength is -1"):
        sl.FeatureIALS(feature_strength=-1)


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    data = tuples()
    model = sl.PARAFAC(dim=4, epochs=2).fit(data)
    before = model.recommend([("u1", 1)]).ids

    def stop(epoch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(tuples(shopping(1)[:50]), callbacks=stop)
    assert model.recommend([("u1", 1)]).ids == before


@pytest.mark.parametrize("kind", [sl.PARAFAC, sl.FactorizationMachine, sl.Tucker], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("loss", ["pointwise", "pairwise"])
def test_the_number_of_threads_changes_no_bit(kind, loss):
    """One day has 40 % of the pairs: how a block is solved must not depend on who could take the others."""
    rng = np.random.default_rng(4)
    n = 6000
    days = np.where(rng.random(n) < 0.4, 0, rng.integers(1, 9, n))
    frame = pl.DataFrame({"user": rng.integers(0, 400, n), "day": days, "product": rng.integers(0, 60, n)})
    data = tuples(frame.unique(maintain_order=True))
    alone, *others = (kind(dim=16, epochs=2, loss=loss).fit(data, threads=threads) for threads in (1, 2, 4))
    for other in others:
        np.testing.assert_array_equal(other.item_embeddings_, alone.item_embeddings_)
        np.testing.assert_array_equal(other.context_embeddings_, alone.context_embeddings_)


def small(items=12):
    rng = np.random.default_rng(0)
    mask = rng.random((40, items)) < 0.3
    mask[np.arange(40), rng.integers(0, items, 40)] = True
    users, products = np.nonzero(mask)
    return sl.Interactions.from_frame({"user": users, "product": products}, context="user", item="product")


@pytest.mark.parametrize(
    "model",
    [
        sl.IALS(dim=64, solver="exact", regularization=1e-10, epochs=8),
        sl.IALS(dim=64, solver="exact", regularization=1e-12, epochs=8),
        sl.IALS(dim=17, regularization=0, epochs=8),
        sl.IALS(dim=64, solver="block", regularization=0, epochs=8),
        sl.ICD(dim=17, regularization=0, epochs=8),
        sl.IALS(dim=17, regularization=0, epochs=8, device="torch-cpu"),
        sl.RankALS(dim=24, regularization=0, epochs=8),
        sl.FactorizationMachine(dim=24, regularization=1e-7, epochs=8, loss="pairwise"),
        sl.FactorizationMachine(dim=24, regularization=1e-10, epochs=8),
        sl.FeatureIALS(dim=24, regularization=0, epochs=8),
    ],
    ids=repr,
)
def test_a_fit_ends_where_its_loss_is_lowest_however_small_lambda_is(model):
    data = small()
    if getattr(model, "device", "cpu") != "cpu":
        pytest.importorskip("torch", reason="torch is not installed: pip install 'shortlist[torch]'")
    if isinstance(model, sl.FeatureIALS):
        frame = {"product": np.arange(12), "kind": np.arange(12) % 4}
        model.fit(data, item_features=sl.Features.from_frame(frame, id="product"))
    else:
        model.fit(data)
    losses = [epoch.loss.total for epoch in model.training_]
    assert 0 <= losses[-1] <= min(losses) * 1.001
    assert np.abs(scores(model)).max() < 100


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize(
    "model", [sl.FactorizationMachine(unobserved_weight=1e35), sl.RankALS(regularization=1e38)], ids=repr
)
def test_a_fit_that_load_would_refuse_is_refused(model):
    model.dim, model.epochs = 4, 2
    with pytest.raises(sl.SettingError, match=r"the fit diverged: scores could reach .* another regularization"):
        model.fit(events())
    with pytest.raises(sl.NotFittedError):
        model.recommend([0])
