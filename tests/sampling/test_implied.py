"""The implied weights against a count of who was the negative, and the way back."""

from __future__ import annotations

import numpy as np
import pytest

from sampling.draws import ITEMS, draw, embeddings, follows, histories
from shortlist.errors import SettingError
from shortlist.sampling import AdaptiveRank, Popularity, Rejection, Uniform, implied_weight, step_weight_for

SAMPLERS = [
    Uniform(),
    Uniform("positive"),
    Popularity(),
    Popularity(1.0, "positive"),
    AdaptiveRank(gamma=4.0),
    AdaptiveRank(gamma=4.0, exclude="positive"),
    Rejection(margin=0.5, rounds=3),
    Rejection(margin=0.5, rounds=3, exclude="positive"),
]
SWEEPS = 20_000
W, H = embeddings(4)


def bound(sampler):
    negatives = sampler.bind(histories())
    negatives.refresh(H)
    return negatives


def model(context):
    return {"context_embedding": W[context], "scores": W[context] @ H.T}


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_pointwise_weights_are_the_mean_of_the_steps(sampler):
    """Each positive of the context once a sweep, two negatives each: Σ of the step weights on j, over the sweeps."""
    negatives, context, m = bound(sampler), 4, 2
    positives = negatives.histories.row(context)
    step = np.linspace(0.5, 2, ITEMS)
    alpha = implied_weight("pointwise", negatives, context, step_weight=step, n_negatives=m, **model(context))
    counts = np.zeros(ITEMS)
    for i in positives:
        items, _ = draw("kernel", negatives, [context], [i], SWEEPS * m, W=W, H=H, seed=int(i) + 1)
        counts += np.bincount(items[items >= 0], minlength=ITEMS)
    np.testing.assert_allclose(step * counts / SWEEPS, alpha, atol=5 * step.max() * np.sqrt(alpha.max() / SWEEPS))
    expected = alpha / step
    assert follows(counts, expected / expected.sum())


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_pairwise_weights_are_the_mean_of_the_steps(sampler):
    negatives, context, positive = bound(sampler), 0, 3
    alpha = implied_weight("pairwise", negatives, context, positive=positive, step_weight=3.0, **model(context))
    items, _ = draw("kernel", negatives, [context], [positive], SWEEPS, W=W, H=H)
    counts = np.bincount(items.ravel() + 1, minlength=ITEMS + 1)
    assert follows(counts, [1 - alpha.sum() / 3, *(alpha / 3)])


def test_uniform_weights_are_not_what_the_article_prints():
    negatives = Uniform().bind(histories())
    unobserved = np.setdiff1d(np.arange(ITEMS), negatives.histories.row(0))
    alpha = implied_weight("pointwise", negatives, 0, n_negatives=5)
    np.testing.assert_allclose(alpha[unobserved], 5 * 3 / (ITEMS - 3))  # m·|I_c|/(|I| − |I_c|), not m
    assert (alpha[negatives.histories.row(0)] == 0).all()
    bpr = implied_weight("pairwise", negatives, 0, positive=3)
    np.testing.assert_allclose(bpr[unobserved], 1 / (ITEMS - 3))  # not 1


@pytest.mark.parametrize("kind", ["pointwise", "pairwise"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_there_and_back(sampler, kind):
    negatives, context = bound(sampler), 4
    more = {"positive": None if kind == "pointwise" else 1, "n_negatives": 3, **model(context)}
    reachable = implied_weight(kind, negatives, context, **more) > 0
    wanted = np.where(reachable, np.linspace(0.1, 4, ITEMS), 0)
    step = step_weight_for(kind, wanted, negatives, context, **more)
    np.testing.assert_allclose(implied_weight(kind, negatives, context, step_weight=step, **more), wanted, rtol=1e-12)
    everywhere = step_weight_for(kind, 1.0, negatives, context, **more)
    np.testing.assert_allclose(
        implied_weight(kind, negatives, context, step_weight=everywhere, **more), reachable, rtol=1e-12
    )


def test_a_weight_that_no_step_can_give_is_refused():
    negatives = Uniform().bind(histories())
    wanted = np.ones(ITEMS)
    with pytest.raises(
        SettingError, match=r"wanted is .* for item 0, .* never draws it in context 0 .one of 3 such items"
    ):
        step_weight_for("pairwise", wanted, negatives, 0, positive=3)


def test_what_makes_no_sense_is_refused():
    negatives = Uniform().bind(histories())
    for call in (
        lambda: implied_weight("listwise", negatives, 0),
        lambda: implied_weight("pairwise", negatives, 0),
        lambda: implied_weight("pointwise", negatives, 0, positive=3),
        lambda: implied_weight("pointwise", negatives, 99),
        lambda: implied_weight("pointwise", negatives, 0, n_negatives=0),
        lambda: implied_weight("pointwise", negatives, 0, step_weight=-1.0),
        lambda: implied_weight("pointwise", negatives, 0, step_weight=np.ones(3)),
        lambda: step_weight_for("pointwise", np.nan, negatives, 0),
        lambda: implied_weight("pairwise", Rejection().bind(histories()), 0, positive=3),
    ):
        with pytest.raises(SettingError, match=r"expected|pass"):
            call()
