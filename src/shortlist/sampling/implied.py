"""The loss that sampled steps optimise: its weights α from q and the step weights α̃, and back (section 4)."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import instance, integer, numbers, one_of
from shortlist.errors import SettingError
from shortlist.sampling.base import Array, BoundSampler, code

Kind: TypeAlias = Literal["pointwise", "pairwise"]


def implied_weight(
    kind: Kind,
    negatives: BoundSampler,
    context: int,
    *,
    positive: int | None = None,
    step_weight: float | Array = 1.0,
    n_negatives: int = 1,
    context_embedding: Array | None = None,
    scores: Array | None = None,
) -> npt.NDArray[np.float64]:
    """Return the weight α of every item as a negative in the loss that sampled steps of weight α̃ optimise on average.

    If each pair of S is visited once, with m negatives:

        pointwise   α(c,j)   = m·|I_c|·q(j|c)·α̃(c,j)     weight of l(ŷ(j|c), negative)
        pairwise    α(c,i,j) = m·q(j|c,i)·α̃(c,i,j)       weight of l(ŷ(i|c) − ŷ(j|c))

    If q depends on the positive, |I_c|·q(j|c) is Σ_{i∈I_c} q(j|c,i). The pointwise weight of an observed pair as a
    positive is its step weight; it is not included. Example: uniform steps of weight 1 weight an unobserved pair by
    m·|I_c|/(|I| − |I_c|), and a triple by 1/(|I| − |I_c|); the article says m and 1.

    If q or α̃ depends on the model (`AdaptiveRank`, `Rejection`), α belongs to the current parameters: the expected step
    is Σα∇l with constant α, which is not the gradient of any loss. If α̃ varies for one j, as with WARP's rounds, pass
    its mean.

    Args:
        kind: `"pointwise"` or `"pairwise"`.
        negatives: the bound sampler, `sampler.bind(interactions.by_context)`.
        context: c.
        positive: i, for a pairwise loss.
        step_weight: α̃, one number for all items or a number for each.
        n_negatives: m.
        context_embedding: φ(c); needed by `AdaptiveRank`.
        scores: ŷ(·|c); needed by `Rejection`.

    >>> from shortlist.data.sparse_rows import SparseRows
    >>> from shortlist.sampling import Uniform
    >>> negatives = Uniform().bind(SparseRows.from_lists([np.array([0, 1])], n_columns=6))
    >>> implied_weight("pointwise", negatives, context=0, n_negatives=4)
    array([0., 0., 2., 2., 2., 2.])
    >>> implied_weight("pairwise", negatives, context=0, positive=1)
    array([0.  , 0.  , 0.25, 0.25, 0.25, 0.25])
    """
    expected = _expected_steps(kind, negatives, context, positive, n_negatives, context_embedding, scores)
    return expected * _weights("step_weight", step_weight, len(expected))


def step_weight_for(
    kind: Kind,
    wanted: float | Array,
    negatives: BoundSampler,
    context: int,
    *,
    positive: int | None = None,
    n_negatives: int = 1,
    context_embedding: Array | None = None,
    scores: Array | None = None,
) -> npt.NDArray[np.float64]:
    """Return the step weight α̃ of every item as a negative that gives the weight α; the inverse of `implied_weight`.

        pointwise   α̃ = α/(m·|I_c|·q(j|c)),    pairwise   α̃ = α/(m·q(j|c,i))

    Args:
        kind: `"pointwise"` or `"pairwise"`.
        wanted: α, a number for each item with 0 for excluded items, or one number for all items that can be drawn.
        negatives: the bound sampler, `sampler.bind(interactions.by_context)`.
        context: c.
        positive: i, for a pairwise loss.
        n_negatives: m.
        context_embedding: φ(c); needed by `AdaptiveRank`.
        scores: ŷ(·|c); needed by `Rejection`.

    >>> from shortlist.data.sparse_rows import SparseRows
    >>> from shortlist.sampling import Uniform
    >>> negatives = Uniform().bind(SparseRows.from_lists([np.array([0, 1])], n_columns=6))
    >>> step_weight_for("pairwise", 1.0, negatives, context=0, positive=1)
    array([0., 0., 4., 4., 4., 4.])
    """
    expected = _expected_steps(kind, negatives, context, positive, n_negatives, context_embedding, scores)
    drawn = expected > 0
    alpha = _weights("wanted", wanted, len(expected))
    if np.ndim(wanted) == 0:
        alpha = np.where(drawn, alpha, 0)
    never = np.flatnonzero((alpha > 0) & ~drawn)
    if len(never):
        raise SettingError(
            f"wanted is {alpha[never[0]]:g} for item {never[0]}, but the sampler never draws it in context {context} "
            f"(one of {len(never)} such items)",
            field="wanted",
            hint="set wanted to 0 there, or use a sampler with q > 0",
        )
    return np.divide(alpha, expected, out=np.zeros(len(expected)), where=drawn)


def _expected_steps(
    kind: Kind,
    negatives: BoundSampler,
    context: int,
    positive: int | None,
    n_negatives: int,
    embedding: Any,
    scores: Any,
) -> npt.NDArray[np.float64]:
    """Return the expected number of steps with each item as the negative, over the positive or all of the context's."""
    one_of("kind", kind, ("pointwise", "pairwise"))
    instance(
        "negatives", negatives, BoundSampler, "a sampler over the data, such as Uniform().bind(interactions.by_context)"
    )
    integer("n_negatives", n_negatives)
    if (positive is None) == (kind == "pairwise"):
        raise SettingError(
            f"positive is {positive!r} and kind is {kind!r}; expected an item for 'pairwise' and None for 'pointwise'",
            field="positive",
        )
    context = code("context", context, negatives.histories.n_rows)
    positives = negatives.histories.row(context) if positive is None else [positive]
    total = np.zeros(negatives.n_items)
    for i in positives:
        total += negatives.probabilities(context, i, context_embedding=embedding, scores=scores)
    return n_negatives * total


def _weights(name: str, weights: float | Array, n_items: int) -> npt.NDArray[np.float64]:
    array = numbers(name, weights).astype(np.float64)
    if array.shape not in {(), (n_items,)} or not (np.isfinite(array) & (array >= 0)).all():
        raise SettingError(
            f"{name} has shape {array.shape} and values from {array.min(initial=0):g} to {array.max(initial=0):g}; "
            f"expected a number ≥ 0, or {n_items} of them",
            field=name,
        )
    return np.broadcast_to(array, (n_items,))
