"""Features: what they say of items nobody has had, of contexts, and how they are kept."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import shortlist as sl

KINDS = [sl.FeatureIALS, sl.FactorizationMachine]


def planted(seed=0, users=120, items=90, tags=9):
    """Items have two of some tags, users like two of them and what has them; every third item has no events."""
    rng = np.random.default_rng(seed)
    of_items = np.array([rng.permutation(tags)[:2] for _ in range(items)])
    of_users = np.array([rng.permutation(tags)[:2] for _ in range(users)])
    likes = np.array([[len(set(a) & set(b)) for b in of_items] for a in of_users])
    rows, truth = [], {}
    for u in range(users):
        best = np.flatnonzero(likes[u] + 0.05 * rng.random(items) > 0.98)
        cold = [i for i in best if i % 3 == 0]
        rows += [(f"u{u}", int(i)) for i in best if i % 3]
        truth[f"u{u}"] = set(map(int, cold))
    frame = pl.DataFrame(rows, schema=["user", "product"], orient="row")
    table = pl.DataFrame({
        "product": list(range(items)),
        "tags": [[f"t{t}" for t in one] for one in of_items],
        "price": (10 + 5 * rng.random(items)).tolist(),
    })  # fmt: skip
    who = pl.DataFrame({"user": list(truth), "taste": [[f"t{t}" for t in one] for one in of_users]})
    return sl.Interactions.from_frame(frame, context="user", item="product"), table, who, truth


def features(table, **more):
    return sl.Features.from_frame(table, id="product", multi_valued="tags", **more)


@pytest.mark.parametrize("settings", [
    (sl.FeatureIALS, {}), (sl.FactorizationMachine, {"same_side_pairs": False}), (sl.FactorizationMachine, {}),
    (sl.FactorizationMachine, {"item_ids": False, "same_side_pairs": False}),
    (sl.FactorizationMachine, {"solver": "cd"}),
    (sl.FactorizationMachine, {"loss": "pairwise", "same_side_pairs": False, "regularization": 0.03}),
])  # fmt: skip
def test_new_items_are_found_by_what_they_are(settings):
    kind, more = settings
    data, table, _, truth = planted()
    cold = [i for i in range(90) if i % 3 == 0]
    model = kind(**{"dim": 12, "epochs": 12, **more}).fit(data, item_features=features(table))
    assert set(cold) <= set(model.items_.ids())
    answer = model.recommend(list(truth), n=8, allow=cold).ids
    recall = np.mean([len(truth[u] & set(ids)) / min(8, len(truth[u])) for u, ids in zip(truth, answer) if truth[u]])
    by_chance = 8 / len(cold)
    assert recall > 2 * by_chance
    assert recall > 0.7
    plain = sl.IALS(dim=12, epochs=12).fit(data.extend(items=cold)).recommend(list(truth), n=8, allow=cold).ids
    blind = np.mean([len(truth[u] & set(ids)) / min(8, len(truth[u])) for u, ids in zip(truth, plain) if truth[u]])
    assert recall > 1.7 * blind


@pytest.mark.parametrize("kind", KINDS)
def test_items_without_events_are_not_learnt_from(kind):
    data, table, _, _ = planted()
    warm = table.filter(pl.col("product") % 3 != 0)
    few = features(warm)
    model = kind(dim=6, epochs=4).fit(data, item_features=few)
    more = kind(dim=6, epochs=4).fit(
        data, item_features=few.append(few.encode(table.filter(pl.col("product") % 3 == 0)))
    )
    assert len(more.items_) == 90
    items = data.items.ids()
    np.testing.assert_allclose(
        more.score(["u1", "u2"], [items, items]), model.score(["u1", "u2"], [items, items]), rtol=1e-4, atol=1e-5
    )
    again = model.add_items(few.encode(table.filter(pl.col("product") % 3 == 0)))
    assert again is model
    new = [0, 3, 6]
    np.testing.assert_allclose(model.score(["u1"], [new]), more.score(["u1"], [new]), rtol=1e-4, atol=1e-5)


def test_the_score_of_a_machine_is_the_textbook_one():
    data, table, who, _ = planted()
    items = features(table, numeric="price")
    users = sl.Features.from_frame(who, id="user", multi_valued="taste")
    model = sl.FactorizationMachine(dim=5, epochs=3).fit(data, item_features=items, context_features=users)
    layout = model._layout
    V, W = model._of_contexts()[0], model._of_items()[0]
    w0 = model._of_contexts()[1].item()
    for u, i in ((0, 0), (5, 20), (17, 61)):
        entries = []
        for rows, r, values in ((layout.of_contexts.X, u, V), (layout.of_items.X, i, W)):
            span = slice(rows.indptr[r], rows.indptr[r + 1])
            entries += zip(rows.values[span].astype(np.float64), values[rows.indices[span]].astype(np.float64))
        score = w0 + sum(x * one[-1] for x, one in entries)
        for a in range(len(entries)):
            for b in range(a):
                score += entries[a][0] * entries[b][0] * (entries[a][1][:-1] @ entries[b][1][:-1])
        got = model.context_embeddings_[u] @ model.item_embeddings_[i]
        assert got == pytest.approx(score, rel=1e-3, abs=1e-4)
    v, w = model.feature_embeddings("item")
    assert v.shape == (items.n_features, 5)
    assert w.shape == (items.n_features,)


def test_features_that_only_new_items_have_say_nothing():
    data, table, _, _ = planted()
    marked = table.with_columns(
        pl.when(pl.col("product") == 0).then(pl.lit(["odd"])).otherwise(pl.col("tags")).alias("tags")
    )
    for kind in KINDS:
        model = kind(dim=4, epochs=2).fit(data, item_features=features(marked))
        place = model.item_features_.feature_names.index("tags=odd")
        of_feature = (
            model.feature_embeddings("item")[0][place]
            if kind is sl.FactorizationMachine
            else model._of_items()[1][1 + place]
        )
        assert not of_feature.any()


def test_a_cold_item_is_where_the_map_says():
    data, table, _, _ = planted()
    items = features(table)
    model = sl.FeatureIALS(dim=6, epochs=5).fit(data, item_features=items)
    A = model._of_items()[1].astype(np.float64)
    X = np.zeros((90, items.n_features))
    rows = items.rows
    X[np.repeat(np.arange(90), rows.lengths), rows.indices] = rows.values
    told = A[0] + X @ A[1:]
    cold = [i for i in range(90) if i % 3 == 0]
    codes = model.items_.encode(cold)
    np.testing.assert_allclose(model.item_embeddings_[codes], told[cold], rtol=1e-4, atol=1e-5)
    # The map is the ridge regression of the embeddings on the features.
    counts = np.bincount(data.by_context.indices, minlength=data.n_items)
    ridge = 0.003 * (counts + 0.1 * data.n_contexts)
    Z = np.concatenate([np.ones((data.n_items, 1)), X[data.items.ids()]], axis=1)
    penalty = np.diag([0, *[float(ridge.mean())] * items.n_features])
    H = model.item_embeddings_[: data.n_items].astype(np.float64)
    best = np.linalg.lstsq((Z.T * ridge) @ Z + penalty, (Z.T * ridge) @ H, rcond=None)[0]
    np.testing.assert_allclose(Z @ best, Z @ A, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_new_contexts_are_answered_by_what_they_are(kind):
    data, _table, who, _truth = planted()
    known = data.select(np.flatnonzero(data.context_codes % 4 != 0), compact=True)
    new = [u for u in data.contexts.ids() if u not in known.contexts]
    users = sl.Features.from_frame(who, id="user", multi_valued="taste")
    model = kind(dim=12, epochs=12).fit(known, context_features=users)
    assert set(new) <= set(model.contexts_.ids())
    answer = model.recommend(new, n=10).ids
    hits = np.mean([len(set(data.history(u)) & set(ids)) / 10 for u, ids in zip(new, answer)])
    popular = sl.Popularity().fit(known).recommend(history=[[]] * len(new), n=10).ids
    assert hits > 1.5 * np.mean([len(set(data.history(u)) & set(ids)) / 10 for u, ids in zip(new, popular)])
    late = users.encode({"user": ["later"], "taste": [["t1", "t2"]]})
    assert len(model.add_contexts(late).recommend(["later"], n=3).ids[0]) == 3


def test_features_of_a_part_of_the_context():
    data, _table, who, _ = planted()
    frame = data.to_polars().with_columns(day=pl.col("product") % 2)
    events = sl.Interactions.from_frame(frame, context=["user", "day"], item="product")
    users = sl.Features.from_frame(who, id="user", multi_valued="taste")
    model = sl.FactorizationMachine(dim=6, epochs=5).fit(events, context_features=users)
    assert len(model.recommend([("u1", 0), ("u1", 1)], n=4).ids[1]) == 4
    lonely = sl.Features.from_frame({"shop": ["a"], "size": [1]}, id="shop", numeric="size")
    with pytest.raises(sl.DataError, match="the features are for shop, but contexts have no column 'shop'"):
        sl.FactorizationMachine(dim=2, epochs=1).fit(events, context_features=lonely)


@pytest.mark.parametrize("kind", KINDS)
def test_kept_on_disk_with_its_features(kind, tmp_path):
    data, table, who, truth = planted()
    items = features(table, numeric={"price": "log"}, min_count=2)
    users = sl.Features.from_frame(who, id="user", multi_valued="taste")
    model = kind(dim=6, epochs=3).fit(data, item_features=items, context_features=users)
    model.save(tmp_path / "m")
    loaded = sl.load(tmp_path / "m")
    everyone = list(truth)
    assert loaded.recommend(everyone, n=5).ids == model.recommend(everyone, n=5).ids
    assert loaded.item_features_[3] == items[3]
    new = loaded.item_features_.encode({"product": [500], "tags": [["t1", "new"]], "price": [11.0]}, unknown="missing")
    assert 500 in loaded.add_items(new).items_
    assert loaded.similar_items([500], n=3).ids[0]
    loaded.save(tmp_path / "m")
    assert sl.load(tmp_path / "m").recommend(["u1"], allow=[500]).ids == [[500]]
    more = sl.load(tmp_path / "m").partial_fit(
        sl.Interactions.from_frame({"user": ["u1", "u2"], "product": [500, 500]}, context="user", item="product")
    )
    assert more.popularity_[more.items_.encode([500])[0]] == 2
    assert more.item_features_ is not None


def test_features_where_they_make_no_sense():
    data, table, _who, _ = planted()
    items = features(table)
    with pytest.raises(sl.SettingError, match="IALS learns from ids only and does not accept item_features"):
        sl.IALS().fit(data, item_features=items)
    with pytest.raises(sl.SettingError, match="item_features is of type DataFrame; expected Features"):
        sl.FeatureIALS().fit(data, item_features=table)
    with pytest.raises(sl.SettingError, match="item_ids is False and there are no item_features"):
        sl.FactorizationMachine(item_ids=False).fit(data)
    model = sl.FeatureIALS(dim=2, epochs=1).fit(data)
    with pytest.raises(sl.SettingError, match="was fitted without features of items"):
        model.add_items(items)
    model = sl.FeatureIALS(dim=2, epochs=1).fit(data, item_features=items)
    other = sl.Features.from_frame({"product": [900], "tags": [["x"]]}, id="product", multi_valued="tags")
    with pytest.raises(sl.SettingError, match=r"make the others with \.encode"):
        model.add_items(other)
    text = sl.Features.from_frame(
        table.with_columns(pl.col("product").cast(pl.String)), id="product", multi_valued="tags"
    )
    with pytest.raises(sl.DataError, match="ids of 'product' are text here"):
        sl.FeatureIALS(dim=2, epochs=1).fit(data, item_features=text)


def test_a_checkpoint_of_other_features_is_refused(tmp_path):
    data, table, _, _ = planted()
    some = features(table, ignore="price")
    sl.FeatureIALS(dim=2, epochs=1).fit(data, item_features=some, checkpoint=tmp_path / "c")
    with pytest.raises(sl.StorageError, match="the features of items changed"):
        sl.FeatureIALS(dim=2, epochs=2).fit(data, item_features=features(table), checkpoint=tmp_path / "c")


def test_validation_with_features():
    data, table, _, _ = planted()
    split = sl.splits.held_out_contexts(data, 20, fold_in=0.6)
    for kind in KINDS:
        model = kind(dim=6, epochs=6).fit(split.train, validation=split, item_features=features(table))
        assert 1 <= model.best_epoch_ <= 6
