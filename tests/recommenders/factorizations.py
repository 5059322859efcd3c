"""Data and models for the tests of matrix factorization."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

import shortlist as sl

# Steps of SGD at one rate from random numbers: what is simplest to compute by hand.
PLAIN_SGD: dict[str, Any] = {"optimizer": "sgd", "schedule": "constant", "init": "random", "init_scale": 0.1}


def events(n_contexts: int = 60, n_items: int = 30, seed: int = 0, *, weighted: bool = False) -> sl.Interactions:
    """Events with taste: contexts like items of their own kind, one of three."""
    rng = np.random.default_rng(seed)
    users, items = [], []
    for u in range(n_contexts):
        liked = rng.permutation(np.arange(u % 3, n_items, 3))[: rng.integers(3, 9)]
        other = rng.integers(0, n_items, rng.integers(0, 3))
        users += [u] * (len(liked) + len(other))
        items += [*liked, *other]
    frame = pl.DataFrame({"user": users, "product": [f"i{k:02}" for k in items]})
    frame = frame.with_columns(w=pl.Series(rng.integers(1, 6, len(users))), when=pl.Series(rng.permutation(len(users))))
    weight = "w" if weighted else None
    return sl.Interactions.from_frame(frame, context="user", item="product", weight=weight, time="when")


@st.composite
def settings_of_ials(draw: Any) -> dict[str, Any]:
    weighting = draw(st.sampled_from(["binary", "log"]))
    return {
        "dim": draw(st.integers(1, 9)),
        "epochs": draw(st.integers(1, 3)),
        "seed": draw(st.integers(0, 1000)),
        "regularization": draw(st.sampled_from([0.003, 0.1])),
        "unobserved_weight": draw(st.sampled_from([0.02, 0.3, 1.0])),
        "weighting": weighting,
        "strength_as": "weight" if weighting == "binary" else draw(st.sampled_from(["weight", "label"])),
        "convention": draw(st.sampled_from(["added", "total"])),
        "unobserved_item_exponent": draw(st.sampled_from([0.0, 0.5, -1.0])),
        "unobserved_context_exponent": draw(st.sampled_from([0.0, -0.5, 1.0])),
    }


def same(a: Any, b: Any) -> None:
    """Two models are the same, bit for bit."""
    np.testing.assert_array_equal(a.context_embeddings_, b.context_embeddings_)
    np.testing.assert_array_equal(a.item_embeddings_, b.item_embeddings_)
