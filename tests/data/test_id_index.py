"""The index of ids, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import id_index
from shortlist.data.id_index import IdIndex, hash_of

IDS = st.one_of(
    st.lists(st.integers(-(2**70), 2**70), unique=True),
    st.lists(st.text(max_size=4), unique=True),
    st.lists(st.tuples(st.text(max_size=2), st.integers(0, 3)), unique=True),
)


class Known:
    def __init__(self, ids):
        self.known = ids

    def id_of(self, code):
        return self.known[code]

    def ids(self, codes):
        return [self.known[code] for code in codes]


def found(index, ids, asked):
    return index.find(asked, Known(ids)).tolist()


@pytest.mark.parametrize("bits", [32, 2, 0], ids="{} bits".format)
def test_it_agrees_with_a_dictionary(bits, monkeypatch):
    """Also if many ids have the same hash."""
    monkeypatch.setattr(id_index, "hash_of", lambda key: hash_of(key) & (2**bits - 1))

    @settings(max_examples=60, deadline=None)
    @given(IDS, st.data())
    def check(ids, data):
        code_of = {key: code for code, key in enumerate(ids)}
        index = IdIndex.of(ids)
        asked = data.draw(st.lists(st.sampled_from(ids) if ids else st.integers(), max_size=10))
        asked += ["unknown", 10**30, ("a", 17)]
        expected = [code_of.get(key, -1) for key in asked]
        assert found(index, ids, asked) == expected
        assert found(index, ids, asked * 12) == expected * 12

    check()


def test_arrays():
    index = IdIndex.of(["b", "a", "c"])
    assert index.hashes.dtype == np.uint32
    assert index.codes.dtype == np.int32
    assert sorted(index.codes.tolist()) == [0, 1, 2]
    assert (np.diff(index.hashes.astype(np.int64)) >= 0).all()


def test_hashes_do_not_depend_on_the_process():
    assert hash_of("apple") == 2838417488
    assert hash_of("ap\ud800") == hash_of("ap\ud800")
    assert hash_of(("a", "b")) != hash_of(("ab", ""))


@pytest.mark.parametrize("codes", [[5, -7, 2**31 - 1], [-1, -1, -1], [2, 1, 0]])
def test_wrong_arrays_never_give_a_wrong_code(codes):
    ids = ["a", "b", "c"]
    index = IdIndex(IdIndex.of(ids).hashes, np.array(codes, np.int32))
    for asked in (ids, ids * 20):
        for key, code in zip(asked, found(index, ids, asked)):
            assert code == -1 or ids[code] == key
    shuffled = IdIndex(IdIndex.of(ids).hashes[::-1], IdIndex.of(ids).codes)
    for asked in (ids, ids * 20):
        for key, code in zip(asked, found(shuffled, ids, asked)):
            assert code == -1 or ids[code] == key
