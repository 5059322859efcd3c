import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.retrieval.indexes.block_sums import BLOCK, LARGEST, block_sums_numpy, register_bytes, sums_for
from shortlist.retrieval.indexes.scan import cache_aligned

WIDTHS = [width for width in (64, 32, 0) if width <= register_bytes()]


def compiled(width):
    sums = sums_for(width)

    @numba.njit
    def call(codes, at, tables, pairs, least, out):
        return sums(codes, np.int64(at), tables, np.int64(pairs), np.uint16(least), out)

    return call


CALLS = {width: compiled(width) for width in WIDTHS}


@pytest.mark.parametrize("width", WIDTHS)
@given(pairs=st.integers(1, 40), seed=st.integers(0, 10**6), full=st.booleans())
def test_sums_of_any_register_width_are_those_of_numpy(width, pairs, seed, full):
    rng = np.random.default_rng(seed)
    codes = cache_aligned(3 * pairs * BLOCK)
    codes[:] = rng.integers(0, 256, len(codes))
    tables = np.full((2 * pairs, 16), LARGEST, np.uint8)
    if not full:
        tables = rng.integers(0, LARGEST + 1, (2 * pairs, 16), dtype=np.uint8)
    room = cache_aligned(2 * pairs * BLOCK)
    room[:] = np.tile(tables, (1, 4)).reshape(-1)
    out = cache_aligned(2 * BLOCK).view(np.uint16)
    for block in range(3):
        at = block * pairs * BLOCK
        expected = block_sums_numpy(codes[at : at + pairs * BLOCK].reshape(pairs, BLOCK), tables)
        least = int(expected[rng.integers(BLOCK)])
        reached = int(CALLS[width](codes, at, room, pairs, least, out))
        assert out.tolist() == expected.tolist()
        assert [bool(reached >> k & 1) for k in range(BLOCK)] == (expected >= least).tolist()


def test_the_sums_of_a_block_add_a_table_entry_for_every_code():
    codes = np.zeros((1, BLOCK), np.uint8)
    codes[0, 2 * 5] = 3 | 7 << 4  # item 5
    codes[0, 2 * 5 + 1] = 1  # item 5 + BLOCK / 2
    tables = np.zeros((2, 16), np.uint8)
    tables[0, 3], tables[1, 7], tables[0, 1] = 100, 20, 9
    sums = block_sums_numpy(codes, tables)
    assert sums[5] == 120
    assert sums[5 + BLOCK // 2] == 9
    assert sums.sum() == 129
