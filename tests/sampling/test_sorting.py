"""The radix sort against NumPy's stable one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from shortlist.sampling.sorting import sort_falling

NUMBERS = st.one_of(st.floats(width=32, allow_nan=False), st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf]))


def falling(columns):
    lists = np.empty(columns.shape, np.int32)
    sort_falling(columns, lists)
    return lists


@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=40), elements=NUMBERS))
def test_falling_is_the_stable_order(columns):
    np.testing.assert_array_equal(falling(columns), np.argsort(-columns, axis=1, kind="stable"))


def test_falling_of_many():
    columns = np.random.default_rng(0).normal(size=(3, 5000)).astype(np.float32)
    np.testing.assert_array_equal(falling(columns), np.argsort(-columns, axis=1, kind="stable"))
