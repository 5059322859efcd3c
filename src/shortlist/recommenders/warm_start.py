"""Start values of a fit from another model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.data.histories import Histories
from shortlist.data.interactions import Interactions
from shortlist.data.vocabulary import Codes, Vocabulary
from shortlist.errors import DataError, SettingError
from shortlist.objectives.pointwise_square import WeightedSquare
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.solvers.eigenbasis import FoldInBasis
from shortlist.solvers.exact import solve_exact
from shortlist.solvers.train import Embeddings


def checked_start(start: object, dim: int) -> DotProduct:
    """Return `start` if embeddings with `dim` dimensions can take start values from it; else raise SettingError."""
    if not isinstance(start, DotProduct):
        raise SettingError(
            f"start is {start!r:.80}; expected a fitted recommender with embeddings, such as IALS", field="start"
        )
    start.require_fit()
    if start.latent_dim > dim:
        raise SettingError(
            f"start has {start.latent_dim} dimensions, but dim is {dim}",
            hint=f"set dim to {start.latent_dim} or more, or omit start",
            field="start",
        )
    return start


def warm_embeddings(
    start: DotProduct, interactions: Interactions, items: Embeddings, loss: WeightedSquare, threads: int | None
) -> tuple[Embeddings, Embeddings]:
    """Return start values of contexts and items: the embeddings of `start`, matched by id.

    New ids get:

    * items that a known context had: their folded-in embeddings,
    * other items: their start values in `items`, which also fill dimensions that `start` does not have,
    * contexts: zero, because the first half-step solves for them.
    """
    d = start.latent_dim
    contexts = np.zeros((interactions.n_contexts, items.shape[1]), np.float32)
    known_items = known_embeddings(start, interactions, contexts, items)
    new = np.flatnonzero(~known_items)
    if len(new):
        of_contexts, of_items = loss.contexts.values, loss.items.values
        rows = interactions.by_item.take(new)
        terms = loss.objective.terms(rows, of_items[new] if len(of_items) > 1 else of_items, of_contexts)
        fixed = FoldInBasis(np.ascontiguousarray(contexts[:, :d]), of_contexts)  # new contexts are zero
        folded = np.zeros((len(new), d), np.float32)
        solve_exact(rows, terms, fixed.embeddings, fixed.spectrum, folded, threads)
        folded = fixed.back(folded)
        nonzero = folded.any(axis=1)
        items[new[nonzero], :d] = folded[nonzero]
    return contexts, items


def known_embeddings(
    start: DotProduct, interactions: Interactions, contexts: Embeddings, items: Embeddings, tail: int = 0
) -> npt.NDArray[np.bool_]:
    """Copy the embeddings of `start` into `contexts` and `items` by id; return a mask of the items that it knows.

    The last `tail` columns, the biases, are copied to the last columns.
    """
    d = start.latent_dim
    item_codes = _codes(start.items_, interactions.items)
    context_codes = _codes(start.contexts_, interactions.contexts)
    if (item_codes < 0).all():
        _raise_no_items(start, interactions)
    known_items, known_contexts = item_codes >= 0, context_codes >= 0
    sides = (
        (contexts, start.context_embeddings_, known_contexts, context_codes),
        (items, start.item_embeddings_, known_items, item_codes),
    )
    for target, source, known, codes in sides:
        target[known, :d] = source[codes[known], :d]
        if tail:
            target[known, -tail:] = source[codes[known], -tail:]
    return known_items


def require_known_items(start: Recommender, interactions: Interactions) -> None:
    """Refuse a start that knows none of the items."""
    if (_codes(start.items_, interactions.items) < 0).all():
        _raise_no_items(start, interactions)


def _raise_no_items(start: Recommender, interactions: Interactions) -> None:
    raise DataError(
        f"start knows none of the {interactions.n_items:,} items: its ids look like {start.items_.ids([0])[0]!r}, "
        f"those of the interactions like {interactions.items.ids([0])[0]!r}",
        field="start",
    )


def grown(model: Recommender, interactions: Interactions) -> Interactions:
    """Return the events the model learned from together with new ones: old codes stay, new ids follow, weights add up.

    If the new events were made with `aggregate="latest"`, the new weight of a pair replaces the old one. An ordered
    model keeps all events: by their times if all have one, in seconds if times are dates; else the new ones come last.
    """
    if model.ordered:
        old, more = model.histories_, interactions.histories
        if old.merge != more.merge:
            raise DataError(
                f"the new events have aggregate={interactions.aggregate!r}, unlike the events of the fit",
                field="aggregate",
                hint="read the new events with the same aggregate",
            )
        aggregate = interactions.aggregate
    else:
        aggregate = "latest" if interactions.aggregate == "latest" else "sum"
        old, more = Histories.of_sets(model.seen_), Histories.of_sets(interactions.by_context)
    contexts, items = _extended(model.contexts_, interactions.contexts), _extended(model.items_, interactions.items)
    context_of = _codes(contexts, interactions.contexts)[np.repeat(np.arange(more.n_rows), more.lengths)]
    weights = times = None
    if old.weights is not None or more.weights is not None:
        both = (np.ones(len(part), np.float32) if part.weights is None else part.weights for part in (old, more))
        weights = np.concatenate([*both])
    if old.times is not None and more.times is not None:
        times = np.concatenate([old.times, more.times])
    return Interactions(
        contexts,
        items,
        np.concatenate([np.repeat(np.arange(old.n_rows, dtype=np.int32), old.lengths), context_of]),
        np.concatenate([old.items, _codes(items, interactions.items)[more.items]]),
        weights=weights,
        times=times,
        aggregate=aggregate,
    )


def _extended(old: Vocabulary, new: Vocabulary) -> Vocabulary:
    try:
        return old.extend(new.frame)
    except DataError:
        got, expected = (", ".join(map(str, ids.frame.dtypes)) for ids in (new, old))
        names = ", ".join(old.names)
        pairs = zip(new.frame.dtypes, old.frame.dtypes)
        if len(new.names) != len(old.names):
            way_out = "use the same number of columns"
        elif all(a == b or (a.is_integer() and b.is_integer()) for a, b in pairs):
            way_out = "some ids do not fit; drop these events, or fit again on all events with ids of one type"
        else:
            way_out = "cast the column"
        message = f"the new events' ids of {names} are {got}, the model's are {expected}"
        raise DataError(message, code="column-type", hint=way_out) from None


def _codes(vocabulary: Vocabulary, ids: Vocabulary) -> Codes:
    """Return the codes in one vocabulary of all ids of another; −1 for ids that it does not have."""
    return vocabulary.encode(ids.frame, unknown="mark")
