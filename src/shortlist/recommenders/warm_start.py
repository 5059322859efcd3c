"""Where a fit begins: from nothing, or from what another model knows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.data.interactions import Interactions
from shortlist.data.vocabulary import Codes, Vocabulary
from shortlist.errors import DataError, SettingError
from shortlist.objectives.pointwise_square import PointwiseSquare
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.solvers.eigenbasis import FoldInBasis
from shortlist.solvers.epochs import Embeddings
from shortlist.solvers.exact import solve_exact


def checked_start(start: object, dim: int) -> DotProduct:
    """A model that embeddings of `dim` dimensions can begin from."""
    if not isinstance(start, DotProduct):
        raise SettingError(f"start is {start!r:.80}; expected a fitted recommender with embeddings, such as IALS")
    start._require_fit()
    if start._latent > dim:
        raise SettingError(
            f"start has {start._latent} dimensions, dim is {dim}; a fit may begin from as many or "
            f"fewer; set dim to at least {start._latent}, or leave start out"
        )
    return start


def warm_embeddings(
    start: DotProduct, interactions: Interactions, items: Embeddings, objective: PointwiseSquare, threads: int | None
) -> tuple[Embeddings, Embeddings]:
    """Embeddings of contexts and items to begin from: those of `start` by their ids.

    For new ones:

    * items that a known context had: what folding them in gives,
    * other items: their start values in `items`, which also fill dimensions that `start` does not have,
    * contexts: zero, since the first half-step solves for them.
    """
    d = start._latent
    contexts = np.zeros((interactions.n_contexts, items.shape[1]), np.float32)
    known_items = known_embeddings(start, interactions, contexts, items)
    new = np.flatnonzero(~known_items)
    if len(new):
        of_contexts, of_items = (omega.values for omega in objective.omegas(interactions.by_context))
        rows = interactions.by_item.take(new)
        terms = objective.terms(rows, of_items[new] if len(of_items) > 1 else of_items, of_contexts)
        fixed = FoldInBasis(np.ascontiguousarray(contexts[:, :d]), of_contexts)  # a context that is new adds nothing
        folded = np.zeros((len(new), d), np.float32)
        solve_exact(rows, terms, fixed.embeddings, fixed.spectrum, folded, threads)
        folded = fixed.back(folded)
        told = folded.any(axis=1)
        items[new[told], :d] = folded[told]
    return contexts, items


def known_embeddings(
    start: DotProduct, interactions: Interactions, contexts: Embeddings, items: Embeddings, tail: int = 0
) -> npt.NDArray[np.bool_]:
    """Put what `start` knows into embeddings of as many dimensions or more, by ids; says which items it knows.

    The last `tail` columns of both, biases, belong to each other as well.
    """
    d = start._latent
    item_codes = _codes(start.items_, interactions.items)
    context_codes = _codes(start.contexts_, interactions.contexts)
    if (item_codes < 0).all():
        _none_known(start, interactions)
    known_items, known_contexts = item_codes >= 0, context_codes >= 0
    sides = (
        (contexts, start.context_embeddings_, known_contexts, context_codes),
        (items, start.item_embeddings_, known_items, item_codes),
    )
    for own, theirs, known, codes in sides:
        own[known, :d] = theirs[codes[known], :d]
        if tail:
            own[known, -tail:] = theirs[codes[known], -tail:]
    return known_items


def refuse_strangers(start: Recommender, interactions: Interactions) -> None:
    """Refuse a start that knows none of the items."""
    if (_codes(start.items_, interactions.items) < 0).all():
        _none_known(start, interactions)


def _none_known(start: Recommender, interactions: Interactions) -> None:
    raise DataError(
        f"start knows none of the {interactions.n_items:,} items; its ids are like {start.items_.ids([0])[0]!r}, "
        f"these like {interactions.items.ids([0])[0]!r}"
    )


def grown(model: Recommender, interactions: Interactions) -> Interactions:
    """What the model has learnt from and more: old codes stay, new ids come behind them, weights add up.

    Where the new events say that the latest weight of a pair counts, it replaces the old one.
    """
    more = interactions.by_context
    contexts, items = _extended(model.contexts_, interactions.contexts), _extended(model.items_, interactions.items)
    context_of = _codes(contexts, interactions.contexts)[np.repeat(np.arange(more.n_rows), more.lengths)]
    seen = model.seen_
    weights = None
    if seen.values is not None or more.values is not None:
        old, new = (np.ones(len(one), np.float32) if one.values is None else one.values for one in (seen, more))
        weights = np.concatenate([old, new])
    return Interactions(
        contexts,
        items,
        np.concatenate([np.repeat(np.arange(seen.n_rows, dtype=np.int32), seen.lengths), context_of]),
        np.concatenate([seen.indices, _codes(items, interactions.items)[more.indices]]),
        weights=weights,
        aggregate="latest" if interactions.aggregate == "latest" else "sum",
    )


def _extended(own: Vocabulary, new: Vocabulary) -> Vocabulary:
    try:
        return own.extend(new.frame)
    except DataError:
        found, expected = (", ".join(map(str, one.frame.dtypes)) for one in (new, own))
        names = ", ".join(own.names)
        pairs = zip(new.frame.dtypes, own.frame.dtypes)
        if len(new.names) != len(own.names):
            way_out = "name as many columns"
        elif all(one == other or (one.is_integer() and other.is_integer()) for one, other in pairs):
            way_out = "some do not fit; leave these events out, or fit anew to all events, with ids of one type"
        else:
            way_out = "cast the column"
        raise DataError(f"the new events' ids of {names} are {found}, the model's are {expected}; {way_out}") from None


def _codes(vocabulary: Vocabulary, ids: Vocabulary) -> Codes:
    """The codes in one vocabulary of all ids of another, −1 where it has none."""
    return vocabulary.encode(ids.frame, unknown="mark")
