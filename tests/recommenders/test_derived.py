"""Settings that are left out and follow from the data: IALS and ICD."""

import json
import warnings

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from recommenders.factorizations import events
from shortlist.recommenders.derived import effective_rank

KINDS = [sl.IALS, sl.ICD]
LEFT_OUT = ("dim", "regularization", "unobserved_weight")


def by_hand(data, strength=1.0):
    """The rule, from its formula."""
    counts = np.bincount(data.item_codes, minlength=data.n_items) if data.n_pairs == len(data) else data.by_item.lengths
    pairs, mean = data.n_pairs, data.n_pairs / data.n_items
    evenness = mean**2 / np.mean(counts.astype(float) ** 2)
    ridge = 0.007 * (mean / 30) ** -0.2 * evenness**-0.3
    return 256, min(max(ridge, 0.004), 0.016), 10 * strength * pairs / (data.n_contexts * data.n_items)


@pytest.mark.parametrize("kind", KINDS)
def test_they_follow_from_the_data(kind):
    for data in (events(), events(200, 60), sl.datasets.synthetic(300, 50, 6000, seed=1)):
        model = kind(epochs=1).fit(data)
        assert tuple(model.derived_) == LEFT_OUT
        dim, ridge, alpha0 = by_hand(data)
        assert model.dim == dim
        assert model.regularization == pytest.approx(ridge, rel=0.006)  # three digits
        assert model.unobserved_weight == pytest.approx(alpha0, rel=0.006)
        assert model.item_embeddings_.shape[1] == dim


def test_lambda_differs_with_the_data():
    """The bounds are not all there is of the rule."""
    found = {kind.fit(data).regularization for kind, data in (
        (sl.IALS(epochs=1), sl.datasets.synthetic(300, 50, 6000, seed=1)),
        (sl.IALS(epochs=1), sl.datasets.synthetic(300, 500, 6000, seed=1)),
        (sl.IALS(epochs=1), sl.datasets.load("online-retail").interactions),
    )}  # fmt: skip
    assert len(found) == 3
    assert all(0.004 <= one <= 0.016 for one in found)


def test_what_is_set_stays():
    data = events()
    model = sl.IALS(dim=4, regularization=0.5, unobserved_weight=0.25, epochs=1).fit(data)
    assert model.derived_ == {}
    assert (model.dim, model.regularization, model.unobserved_weight) == (4, 0.5, 0.25)
    model = sl.IALS(dim=4, epochs=1).fit(data)
    assert tuple(model.derived_) == LEFT_OUT[1:]


def test_a_larger_unobserved_weight_has_less_regularization():
    data = sl.datasets.load("online-retail").interactions
    usual = sl.IALS(dim=4, epochs=1).fit(data)
    more = sl.IALS(dim=4, epochs=1, unobserved_weight=10 * usual.unobserved_weight).fit(data)
    assert more.regularization == pytest.approx(usual.regularization / 10, rel=0.01)
    less = sl.IALS(dim=4, epochs=1, unobserved_weight=usual.unobserved_weight / 10).fit(data)
    assert less.regularization == usual.regularization


def test_the_mean_context_has_the_same_ridge_at_every_exponent():
    data = sl.datasets.load("online-retail").interactions

    def ridge(nu):
        model = sl.IALS(dim=4, epochs=1, regularization_exponent=nu).fit(data)
        size = data.n_pairs / data.n_contexts + model.unobserved_weight * data.n_items
        return model.regularization * size**nu

    assert ridge(0.0) == pytest.approx(ridge(1.0), rel=0.02)
    assert ridge(0.5) == pytest.approx(ridge(1.0), rel=0.02)


def test_weights_that_count_raise_the_unobserved_weight():
    data = events(weighted=True)
    binary = sl.IALS(dim=4, epochs=1, weighting="binary").fit(data)
    raw = sl.IALS(dim=4, epochs=1, weighting="raw", observed_weight=3.0).fit(data)
    mean = float(np.mean(data.by_context.values, dtype=np.float64))
    assert raw.unobserved_weight == pytest.approx(3 * mean * binary.unobserved_weight, rel=0.02)


def test_where_they_are_shown(tmp_path, capsys):
    data = events()
    model = sl.IALS(epochs=1)
    assert "dim=None" in repr(model)
    model.fit(data, progress=True)
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("IALS: dim=256, regularization=0.0")
    assert first.endswith("from the data")
    assert "dim=256" in repr(model)
    assert repr(model).endswith("dim, regularization and unobserved_weight from the data")
    model.save(tmp_path / "model")
    loaded = sl.load(tmp_path / "model")
    assert loaded.derived_ == model.derived_
    assert repr(loaded) == repr(model)
    assert loaded.settings() == model.settings()
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    assert "derived" in json.dumps(manifest)


def test_another_fit_derives_them_again():
    model = sl.IALS(epochs=1).fit(events())
    first = dict(model.derived_)
    model.fit(sl.datasets.synthetic(300, 50, 6000, seed=1))
    assert model.derived_["unobserved_weight"] != first["unobserved_weight"]
    model.fit(events())
    assert model.derived_ == first


def test_a_failed_fit_leaves_them_out():
    def stop(epoch):
        raise KeyboardInterrupt

    model = sl.IALS(epochs=2)
    with pytest.raises(KeyboardInterrupt):
        model.fit(events(), callbacks=stop)
    assert model.dim is None
    assert model.derived_ == {}


def test_what_needs_them_before_the_fit_says_so():
    with pytest.raises(
        sl.NotFittedError, match="regularization is derived from the data; fit the IALS first, or set regularization"
    ):
        sl.IALS().objective()
    for name in LEFT_OUT:
        with pytest.raises(sl.SettingError, match=name):
            sl.IALS(**{name: -1})


def test_learning_on_keeps_them():
    """More events do not move λ and α₀ under the embeddings."""
    data = events(60, 30)
    model = sl.IALS(epochs=2).fit(data)
    before = dict(model.derived_)
    more = pl.DataFrame({"user": [0, 1, 2], "product": ["i03", "i04", "i05"]})
    model.partial_fit(sl.Interactions.from_frame(more, context="user", item="product"))
    assert model.derived_ == before
    start = sl.IALS(dim=300, epochs=1).fit(data)
    assert sl.IALS(epochs=1).fit(data, start=start).dim == 300  # as many as those that it starts from


def test_tune_tries_them_first():
    split = sl.splits.by_time(events(120, 36), test=0.2)
    tuned = sl.tune("ials", split, trials=2, progress=False)
    usual = sl.IALS(epochs=1).fit(split.train)
    assert tuned.trials[0].settings["regularization"] == pytest.approx(usual.regularization, rel=1e-6)
    assert tuned.trials[0].settings["unobserved_weight"] == pytest.approx(usual.unobserved_weight, rel=1e-6)


def shop():
    """A synthetic shop: few popular items, many of which few buy."""
    return sl.datasets.synthetic(2000, 2000, 30_000, seed=0)


def test_embeddings_that_shrink_are_warned_of():
    """λ = 0.01 beside α₀ = 1 is in a range that was once advised, and leaves little but popularity."""
    data = shop()
    with pytest.warns(sl.ShortlistWarning, match=r"the item embeddings have collapsed from 64 dimensions to about \d"):
        poor = sl.IALS(dim=64, regularization=0.01, unobserved_weight=1.0, seed=0).fit(data)
    assert effective_rank(poor.item_embeddings_) < 2.5


def test_advised_values_do_not_shrink():
    """Half and twice what follows from the data: the way that the docstring says to go."""
    for data in (shop(), sl.datasets.load("online-retail").interactions):
        usual = sl.IALS(dim=64).fit(data)
        for ridge in (0.5, 1, 2):
            for alpha0 in (0.5, 1, 2):
                settings = {
                    "regularization": ridge * usual.regularization,
                    "unobserved_weight": alpha0 * usual.unobserved_weight,
                }
                with warnings.catch_warnings():
                    warnings.simplefilter("error", sl.ShortlistWarning)
                    sl.IALS(dim=64, epochs=8, **settings).fit(data)


def test_the_default_is_better_than_what_it_was():
    """On the bundled data, by time: d = 64, λ = 0.003, α₀ = 0.1 were the settings of before."""
    split = sl.splits.by_time(sl.datasets.load("online-retail").interactions, test=0.1, repeats="drop")
    usual = sl.evaluate(sl.IALS().fit(split.train), split, ["ndcg@20"])
    before = sl.IALS(dim=64, regularization=0.003, unobserved_weight=0.1).fit(split.train)
    assert usual["ndcg@20"] > sl.evaluate(before, split, ["ndcg@20"])["ndcg@20"] + 0.005


def test_effective_rank():
    assert effective_rank(np.zeros((3, 2), np.float32)) == 0
    assert effective_rank(np.diag([2.0, 1.0]).astype(np.float32)) == pytest.approx(25 / 17)
