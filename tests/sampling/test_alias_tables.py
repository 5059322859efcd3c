"""The alias table is the distribution it was made from."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shortlist.sampling.alias_tables import alias_table


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1e6)), min_size=1, max_size=200).filter(any))
def test_the_table_sums_to_the_distribution(weights):
    p = np.array(weights) / sum(weights)
    share, alias = alias_table(p)
    n = len(p)
    mass = share / n
    np.add.at(mass, alias, (1 - share) / n)
    np.testing.assert_allclose(mass, p, atol=1e-12)
    assert (mass[p == 0] == 0).all()
    assert (share >= 0).all()
    assert (share <= 1).all()
