"""Penalties of a rank, written out."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.errors import SettingError
from shortlist.objectives import Linear, Penalty, Reciprocal, Step, TopN

ITEMS = 12
WRITTEN = [
    (Reciprocal(), lambda r: sum(1 / k for k in range(1, r + 1))),
    (Linear(), lambda r: r / (ITEMS - 1)),
    (Step(3), lambda r: 1.0 if r >= 3 else 0.0),
    (Step(1), lambda r: 1.0 if r >= 1 else 0.0),
    (TopN(3), lambda r: min(r, 3) / 3),
    (TopN(100), lambda r: r / 100),
]


@pytest.mark.parametrize(("penalty", "written"), WRITTEN, ids=lambda one: repr(one) if isinstance(one, Penalty) else "")
def test_tables(penalty, written):
    expected = [written(r) for r in range(ITEMS)]
    np.testing.assert_allclose(penalty(np.arange(ITEMS), ITEMS), expected, rtol=1e-12)
    table = penalty.table(ITEMS)
    assert (table.dtype, table.shape) == (np.float32, (ITEMS,))
    np.testing.assert_allclose(table, expected, rtol=1e-6)


@pytest.mark.parametrize("penalty", [one for one, _ in WRITTEN], ids=repr)
def test_laws(penalty):
    """No item above: no penalty; and another item above is never better."""
    table = penalty.table(ITEMS)
    assert table[0] == 0
    assert (np.diff(table) >= 0).all()
    assert np.ndim(penalty(4, ITEMS)) == 0
    for n_items in (1, 2):
        assert np.isfinite(penalty.table(n_items)).all()
        assert len(penalty.table(n_items)) == n_items


def test_the_step_and_the_top_are_different():
    """A step is not concave: the first place behind the cut is all that counts."""
    assert (np.diff(np.diff(TopN(4).table(ITEMS))) <= 1e-6).all()
    assert (np.diff(np.diff(Step(4).table(ITEMS))) > 0).any()


@pytest.mark.parametrize("kind", [Step, TopN])
@pytest.mark.parametrize("n", [0, -1, 1.5, "3", None, True])
def test_places_are_counted_in_whole_numbers(kind, n):
    with pytest.raises(SettingError, match=r"n is .*; expected an integer ≥ 1"):
        kind(n)
