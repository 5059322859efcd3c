"""Which loss am I optimising? The weights α of a loss from q and the step weights α̃, and back (section 4)."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import instance, numbers, one_of, whole
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
    """The weight α of every item as a negative, in the loss that sampled steps of weight α̃ follow on average.

    With m negatives for each pair of S, and each pair taken once,

        pointwise   α(c,j)   = m·|I_c|·q(j|c)·α̃(c,j)     weight of l(ŷ(j|c), negative)
        pairwise    α(c,i,j) = m·q(j|c,i)·α̃(c,i,j)       weight of l(ŷ(i|c) − ŷ(j|c))

    Where q depends on the positive, |I_c|·q(j|c) is Σ_{i∈I_c} q(j|c,i). The pointwise weight of an observed pair as a
    positive is its own step weight, and not in here. So uniform steps of weight 1 weigh an unobserved pair by
    m·|I_c|/(|I| − |I_c|), and a triple by 1/(|I| − |I_c|); the article has m and 1.

    Where q or α̃ depends on the model (`AdaptiveRank`, `Rejection`), this is α at the current parameters: the expected
    step is Σα∇l with that α held constant, and there is no loss of which it is the gradient. Of α̃ that varies for one
    j, as WARP's by the rounds, pass the mean.

    Args:
        kind: `"pointwise"` or `"pairwise"`.
        negatives: the sampler over the data, `sampler.bind(interactions.by_context)`.
        context: c.
        positive: i, for a pairwise loss.
        step_weight: α̃, a number or one for each item.
        n_negatives: m.
        context_embedding: φ(c), for samplers that ask for it.
        scores: ŷ(·|c), likewise.

    >>> from shortlist.data.sparse_rows import SparseRows
    >>> from shortlist.sampling import Uniform
    >>> negatives = Uniform().bind(Rows.from_lists([np.array([0, 1])], n_columns=6))
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
    """The step weight α̃ of every item as a negative that makes α the wanted one: the reverse of `implied_weight`.

        pointwise   α̃ = α/(m·|I_c|·q(j|c)),    pairwise   α̃ = α/(m·q(j|c,i))

    Args:
        kind: `"pointwise"` or `"pairwise"`.
        wanted: α, one for each item, or a number for all items that may be drawn; excluded ones must have 0.
        negatives: and all others as in `implied_weight`.
        context: c.
        positive: i, for a pairwise loss.
        n_negatives: m.
        context_embedding: φ(c), for samplers that ask for it.
        scores: ŷ(·|c), likewise.

    >>> from shortlist.data.sparse_rows import SparseRows
    >>> from shortlist.sampling import Uniform
    >>> negatives = Uniform().bind(Rows.from_lists([np.array([0, 1])], n_columns=6))
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
            f"a weight of {alpha[never[0]]:g} is wanted for item {never[0]}, and {len(never)} in all that this sampler "
            f"never draws in context {context}; expected 0 there, or a sampler with q > 0"
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
    """How often each item is the negative, on average, when all positives of the context (or the one) come once."""
    one_of("kind", kind, ("pointwise", "pairwise"))
    instance(
        "negatives", negatives, BoundSampler, "a sampler over the data, such as Uniform().bind(interactions.by_context)"
    )
    whole("n_negatives", n_negatives)
    if (positive is None) == (kind == "pairwise"):
        raise SettingError(
            f"positive is {positive!r} for a {kind} loss; expected an item for a pairwise one and None for a pointwise"
        )
    context = code("context", context, negatives.histories.n_rows)
    positives = negatives.histories.row(context) if positive is None else [positive]
    total = np.zeros(negatives.n_items)
    for i in positives:
        total += negatives.probabilities(context, i, context_embedding=embedding, scores=scores)
    return n_negatives * total


def _weights(name: str, weights: float | Array, n_items: int) -> npt.NDArray[np.float64]:
    found = numbers(name, weights).astype(np.float64)
    if found.shape not in {(), (n_items,)} or not (np.isfinite(found) & (found >= 0)).all():
        raise SettingError(
            f"{name} has shape {found.shape} and values from {found.min(initial=0):g} to {found.max(initial=0):g}; "
            f"expected a number of at least 0, or {n_items} of them"
        )
    return np.broadcast_to(found, (n_items,))
