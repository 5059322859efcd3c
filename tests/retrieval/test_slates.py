"""Slates against brute force, and what every slate must do whatever its pools are like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist.data.sparse_rows import SparseRows
from shortlist.metrics import cosines
from shortlist.metrics.popularity_groups import divergence, popularity_groups, shares_of_lists, shares_of_rows
from shortlist.retrieval.slates import DPP, MMR, SLATES, Calibrated, Catalogue, base
from shortlist.retrieval.slates import diversity as diversity_slates
from shortlist.retrieval.slates.base import relevance
from shortlist.retrieval.slates.slate_kernels import (
    calibrated_rows,
    calibrated_value,
    divergence_from,
    dpp_value,
    greedy_numpy,
    mmr_value,
)

N_ITEMS = 12


def rows(lists, n_items=N_ITEMS):
    return SparseRows.from_lists([np.array(one, np.int32) for one in lists], n_items)


def pools_of(scores, shuffle, empty=0):
    """Pools of given scores, best first, of shuffled items; the last places are empty."""
    scores = -np.sort(-np.array(scores, np.float32), axis=1)
    codes = np.array([shuffle[: scores.shape[1]]] * len(scores), np.int32)
    if empty:
        codes[:, -empty:], scores[:, -empty:] = -1, -np.inf
    return codes, scores


@st.composite
def problems(draw):
    """Few different scores, so that there are ties; items that are copies, zero, or never had; pools with holes."""
    m = draw(st.integers(1, 7))
    n_queries = draw(st.integers(1, 3))
    score = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 0.5000001, 3.0, 1e30])
    scores = draw(st.lists(st.lists(score, min_size=m, max_size=m), min_size=n_queries, max_size=n_queries))
    shuffle = draw(st.permutations(range(N_ITEMS)))
    codes, scores = pools_of(scores, shuffle, draw(st.integers(0, m - 1)))
    d = draw(st.integers(1, 4))
    grid = st.sampled_from([-2.0, -1.0, 0.0, 1.0, 3.0])
    vectors = draw(st.lists(st.lists(grid, min_size=d, max_size=d), min_size=N_ITEMS, max_size=N_ITEMS))
    item = st.integers(0, N_ITEMS - 3)  # the last two were never had
    trained = draw(st.lists(st.lists(item, unique=True), min_size=1, max_size=8))
    histories = draw(st.lists(st.lists(item, unique=True, max_size=6), min_size=n_queries, max_size=n_queries))
    with_vectors = draw(st.booleans())
    catalogue = Catalogue(rows(trained), np.array(vectors, np.float32) if with_vectors else None)
    trade_off = draw(st.sampled_from([0.0, 1e-6, 0.1, 0.3, 0.5, 0.9, 1.0]))
    return codes, scores, catalogue, rows(histories), draw(st.integers(1, 8)), trade_off


def dense_cosines(catalogue):
    """Of all items; from training pairs they are rounded as those of slates, so that ties are the same."""
    if catalogue.vectors is None:
        table = cosines.cosine_table(cosines.listed_items(np.arange(catalogue.trained.n_columns), catalogue.trained))
        return (table + table.T).astype(np.float64)
    norms = np.linalg.norm(catalogue.vectors.astype(np.float64), axis=1)
    units = catalogue.vectors / np.where(norms > 0, norms, 1)[:, None]
    return units @ units.T


def value_of(slate, catalogue, history, codes, own):
    """What a slate maximises, of a list of places."""
    within = dense_cosines(catalogue)[np.ix_(codes, codes)]
    groups = popularity_groups(catalogue.trained.column_counts())
    wanted = shares_of_rows(history, groups)[0]
    if isinstance(slate, MMR):
        return lambda picked: mmr_value(picked, own, within, slate.diversity)
    if isinstance(slate, DPP):
        return lambda picked: dpp_value(picked, own, within, slate.diversity)
    strength = slate.strength if wanted.any() else 0.0
    return lambda picked: calibrated_value(picked, own, groups[codes], wanted, strength)


@pytest.mark.parametrize("kind", SLATES.values())
@settings(max_examples=250, deadline=None)
@given(problem=problems())
def test_every_pick_is_the_best_by_brute_force(kind, problem):
    codes, scores, catalogue, histories, n, trade_off = problem
    slate = kind(trade_off, 50)
    picked, their = slate.pick(codes, scores, n, catalogue=catalogue, histories=histories)
    assert picked.shape == their.shape == (len(codes), min(n, codes.shape[1]))
    for q in range(len(codes)):
        pool = codes[q][codes[q] >= 0]
        listed = picked[q][picked[q] >= 0]
        assert len(listed) == min(n, len(pool)) == len(set(listed))
        assert (picked[q, : len(listed)] == listed).all()  # -1 is at the end
        places = [pool.tolist().index(one) for one in listed]
        np.testing.assert_array_equal(their[q, : len(listed)], scores[q, places])
        own = relevance(codes[q : q + 1], scores[q : q + 1])[0][: len(pool)]
        value = value_of(slate, catalogue, histories.take(np.array([q])), pool, own)
        if kind is MMR and catalogue.vectors is None:  # the same numbers: the same ties, and of equals the first
            assert places == greedy_numpy(len(pool), n, value)
        for t, place in enumerate(places):
            left = [k for k in range(len(pool)) if k not in places[:t]]
            best = max(value([*places[:t], k]) for k in left)
            assert value([*places[:t], place]) >= best - 1e-4  # cosines are in float32, and S may be near to singular


@pytest.mark.parametrize("kind", [MMR, DPP])
@pytest.mark.parametrize("with_vectors", [True, False])
def test_equals_greedy_brute_force(kind, with_vectors):
    """Where nothing is nearly equal, the very places."""
    rng = np.random.default_rng(5)
    n_items = 40
    trained = SparseRows.from_lists([np.flatnonzero(rng.random(n_items) < 0.3) for _ in range(60)], n_items)
    vectors = rng.normal(size=(n_items, 9)).astype(np.float32) if with_vectors else None
    catalogue = Catalogue(trained, vectors)
    codes = np.array([rng.permutation(n_items)[:25] for _ in range(20)], np.int32)
    scores = -np.sort(-rng.normal(size=codes.shape), axis=1).astype(np.float32)
    histories = rows([[]] * len(codes), n_items)
    for trade_off in (0.05, 0.3, 0.7, 1.0):
        slate = kind(trade_off)
        picked = slate.pick(codes, scores, 12, catalogue=catalogue, histories=histories)[0]
        own = relevance(codes, scores)
        for q in range(len(codes)):
            value = value_of(slate, catalogue, histories.take(np.array([q])), codes[q], own[q])
            assert picked[q].tolist() == codes[q][greedy_numpy(25, 12, value)].tolist()


def test_the_dpp_is_that_of_its_kernel():
    """δ · ln det L_Y, as it is written down, has its steps from the kernel L = diag(q) S diag(q)."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(6, 3))
    units = vectors / np.linalg.norm(vectors, axis=1)[:, None]
    own = relevance(np.arange(6)[None], -np.arange(6.0)[None])[0]
    for diversity in (0.2, 0.9):
        q = np.exp(own * (1 - diversity) / (2 * diversity))
        S = 0.999 * units @ units.T + 0.001 * np.eye(6)
        L = q[:, None] * S * q
        for picked in ([0], [3, 1], [0, 2, 5], [5, 4, 3, 2, 1, 0]):
            direct = diversity * np.linalg.slogdet(L[np.ix_(picked, picked)])[1]
            assert dpp_value(picked, own, units @ units.T, diversity) == pytest.approx(direct)


def test_calibrated_kernel_equals_greedy_brute_force():
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 3, 30).astype(np.int8)
    codes = np.array([rng.permutation(30)[:20] for _ in range(30)], np.int32)
    own = np.sort(rng.random(codes.shape))[:, ::-1].copy()
    wanted = rng.dirichlet([0.5, 0.5, 0.5], len(codes))
    wanted[3], wanted[4] = [0, 0, 0], [1, 0, 0]
    for strength in (0.1, 0.5, 1.0):
        places = np.empty((len(codes), 11), np.int32)
        calibrated_rows(codes, own, groups, wanted, strength, places)
        for q in range(len(codes)):
            s = strength if q != 3 else 0.0

            def value(picked, q=q, s=s):
                return calibrated_value(picked, own[q], groups[codes[q]], wanted[q], s)

            for t in range(11):
                before = places[q, :t].tolist()
                left = [k for k in range(20) if k not in before]
                values = [value([*before, k]) for k in left]
                assert value([*before, places[q, t]]) == pytest.approx(max(values), abs=1e-9)
    assert places[3].tolist() == list(range(11))


@given(st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), st.integers(0, 10**6))
def test_divergence(counts, seed):
    wanted = np.random.default_rng(seed).dirichlet([0.3, 1, 1])
    shares = np.array(counts) / sum(counts)
    expected = divergence(shares[None], wanted[None])[0]
    assert divergence_from(np.array(counts, np.float64), sum(counts), wanted) == pytest.approx(expected, abs=1e-12)


# --- what every slate must do ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(2)
    n_items = 300
    popularity = rng.random(n_items) ** 3
    trained = SparseRows.from_lists(
        [np.flatnonzero(rng.random(n_items) < 0.4 * popularity) for _ in range(200)], n_items
    )
    codes = np.array([rng.permutation(n_items)[:60] for _ in range(90)], np.int32)
    scores = -np.sort(-rng.normal(size=codes.shape), axis=1).astype(np.float32)
    histories = trained.take(np.arange(90))
    return codes, scores, histories, Catalogue(trained), rng.normal(size=(n_items, 16)).astype(np.float32)


@pytest.mark.parametrize("kind", SLATES.values())
@pytest.mark.parametrize("with_vectors", [True, False])
class TestEverySlate:
    def catalogue(self, case, with_vectors):
        return Catalogue(case[3].trained, case[4] if with_vectors else None)

    def test_nothing_wanted_nothing_changed(self, case, kind, with_vectors):
        codes, scores, histories, *_ = case
        same = kind(0).pick(codes, scores, 9, catalogue=self.catalogue(case, with_vectors), histories=histories)
        np.testing.assert_array_equal(same[0], codes[:, :9])
        np.testing.assert_array_equal(same[1], scores[:, :9])

    def test_threads_memory_and_company_change_nothing(self, case, kind, with_vectors, monkeypatch):
        codes, scores, histories, *_ = case
        about = {"catalogue": self.catalogue(case, with_vectors)}
        expected = kind(0.4).pick(codes, scores, 9, histories=histories, threads=1, **about)
        monkeypatch.setattr(base, "SMALL", 0)
        monkeypatch.setattr(base, "_BLOCK", 200)  # three pools
        monkeypatch.setattr(cosines, "SMALL", 0)
        for threads, memory in ((2, 2**20), (3, 4 * 300**2), (1, 1)):  # with a table, and without
            again = kind(0.4).pick(codes, scores, 9, histories=histories, memory=memory, threads=threads, **about)
            for one, other in zip(again, expected):
                np.testing.assert_array_equal(one, other)
        alone = kind(0.4).pick(codes[5:6], scores[5:6], 9, histories=histories.take(np.array([5])), **about)
        np.testing.assert_array_equal(alone[0][0], expected[0][5])

    def test_a_short_slate_is_the_beginning_of_a_long_one(self, case, kind, with_vectors):
        codes, scores, histories, *_ = case
        about = {"catalogue": self.catalogue(case, with_vectors), "histories": histories}
        long = kind(0.4).pick(codes, scores, 60, **about)[0]
        np.testing.assert_array_equal(kind(0.4).pick(codes, scores, 7, **about)[0], long[:, :7])
        np.testing.assert_array_equal(np.sort(long, axis=1), np.sort(codes, axis=1))

    def test_only_the_order_of_scores_counts(self, case, kind, with_vectors):
        codes, scores, histories, *_ = case
        about = {"catalogue": self.catalogue(case, with_vectors), "histories": histories}
        expected = kind(0.4).pick(codes, scores, 9, **about)[0]
        for other in (np.exp(scores), scores * 1e30, np.arctan(scores * 1e-3)):
            np.testing.assert_array_equal(kind(0.4).pick(codes, other, 9, **about)[0], expected)

    @pytest.mark.parametrize("worth", [0.0, -np.inf, np.inf, np.nan])
    def test_equal_scores_of_any_kind(self, case, kind, with_vectors, worth):
        codes, scores, histories, *_ = case
        same = np.full_like(scores, worth)
        for trade_off in (0.3, 1.0):
            about = {"catalogue": self.catalogue(case, with_vectors), "histories": histories}
            picked, their = kind(trade_off).pick(codes, same, 20, **about)
            assert (picked >= 0).all()
            assert all(len(set(one)) == 20 for one in picked.tolist())
            np.testing.assert_array_equal(their, same[:, :20])

    def test_scores_that_are_no_numbers_come_last(self, case, kind, with_vectors):
        codes, scores, histories, *_ = case
        scores = scores.copy()
        scores[:, 10:20], scores[:, 20:], scores[:, 0] = -np.inf, np.nan, np.inf
        own = relevance(codes, scores)
        assert (own[:, 10:] == 0).all()
        assert (np.diff(own[:, :11]) < 0).all()
        about = {"catalogue": self.catalogue(case, with_vectors), "histories": histories}
        picked = kind(0.01).pick(codes, scores, 30, **about)[0]
        assert (picked >= 0).all()
        np.testing.assert_array_equal(np.sort(picked[:, :5]), np.sort(codes[:, :5]))

    def test_pools_with_holes(self, case, kind, with_vectors):
        codes, scores, histories, *_ = case
        about = {"catalogue": self.catalogue(case, with_vectors), "histories": histories}
        expected = kind(0.4).pick(codes[:, :30], scores[:, :30], 12, **about)
        apart = np.full(codes.shape, -1, np.int32), np.full(scores.shape, -np.inf, np.float32)
        apart[0][:, ::2], apart[1][:, ::2] = codes[:, :30], scores[:, :30]
        for one, other in zip(kind(0.4).pick(*apart, 12, **about), expected):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(kind(0).pick(*apart, 12, **about)[0], codes[:, :12])
        picked, their = kind(0.4).pick(*apart, 45, **about)
        assert (picked[:, 30:] == -1).all()
        assert (their[:, 30:] == -np.inf).all()
        nothing = kind(0.4).pick(np.full_like(codes, -1), scores, 5, **about)
        assert (nothing[0] == -1).all()

    def test_scores_of_float64_are_told_apart(self, case, kind, with_vectors):
        codes, scores, histories, *_ = case
        about = {"catalogue": self.catalogue(case, with_vectors), "histories": histories}
        picked, their = kind(0.4).pick(codes, 1e8 + np.argsort(np.argsort(scores)) / 10, 9, **about)
        np.testing.assert_array_equal(picked, kind(0.4).pick(codes, scores, 9, **about)[0])
        assert their.dtype == np.float64

    @pytest.mark.parametrize("wrong", [-2, 300, 9_999_999])
    def test_items_that_there_are_not(self, case, kind, with_vectors, wrong):
        codes, scores, histories, *_ = case
        codes = codes.copy()
        codes[3, 7] = wrong
        about = {"catalogue": self.catalogue(case, with_vectors), "histories": histories}
        for trade_off in (0.0, 0.4):
            with pytest.raises(
                sl.SettingError, match=rf"codes is int32 from .*{wrong}.*; expected item codes from 0 to"
            ):
                kind(trade_off).pick(codes, scores, 9, **about)
        with pytest.raises(sl.SettingError, match="expected the same items in all"):
            kind(0.4).pick(case[0], scores, 9, catalogue=about["catalogue"], histories=rows([[]] * len(codes), 301))

    def test_no_training_pairs(self, case, kind, with_vectors):
        if with_vectors and kind is not Calibrated:
            return
        codes, scores, *_ = case
        nothing = rows([[]] * len(codes), 300)
        about = {"catalogue": Catalogue(rows([], 300)), "histories": nothing}
        np.testing.assert_array_equal(kind(0.4).pick(codes, scores, 9, **about)[0], codes[:, :9])

    def test_more_than_the_largest_pool(self, kind, with_vectors):
        n = base.LARGEST_POOL + 1
        with pytest.raises(
            sl.SettingError, match=r"n is 10,001 of 10,001 items, with a slate; expected at most 10,000"
        ):
            kind(0.4).depth(n, n)
        assert kind(0.4).depth(n, 500) == 500
        assert [kind(0.4, 50).depth(one, 500) for one in (5, 60)] == [50, 60]
        codes = np.arange(n, dtype=np.int32)[None]
        about = {"catalogue": Catalogue(rows([[]], n)), "histories": rows([[]], n)}
        with pytest.raises(sl.SettingError, match="expected at most 10,000"):
            kind(0.4).pick(codes, -codes.astype(np.float32), n, **about)

    def test_no_queries_and_no_places(self, case, kind, with_vectors):
        codes, scores, histories, *_ = case
        about = {"catalogue": self.catalogue(case, with_vectors)}
        nobody = kind(0.4).pick(codes[:0], scores[:0], 5, histories=histories.take(np.empty(0, np.int64)), **about)
        assert nobody[0].shape == (0, 5)
        assert kind(0.4).pick(codes[:, :0], scores[:, :0], 5, histories=histories, **about)[0].shape == (90, 0)


@pytest.mark.parametrize("kind", [MMR, DPP])
@pytest.mark.parametrize("diversity", [0.2, 1.0])
def test_degenerate_items(kind, diversity):
    """Copies, zeros, more places than dimensions: n results all the same, relevant ones first among equals."""
    codes = np.arange(20, dtype=np.int32)[None]
    scores = -np.arange(20, dtype=np.float32)[None]
    histories = rows([[]], 20)
    trained = rows([[]], 20)
    for vectors in (
        np.ones((20, 3), np.float32),
        np.zeros((20, 3), np.float32),
        np.eye(2, dtype=np.float32)[np.arange(20) % 2],
        np.full((20, 2), 1e38, np.float32),
        None,
    ):
        picked = kind(diversity).pick(codes, scores, 15, catalogue=Catalogue(trained, vectors), histories=histories)[0]
        assert len(set(picked[0].tolist())) == 15
        if vectors is None or not vectors.any() or vectors[0].tolist() == vectors[1].tolist():
            assert picked[0].tolist() == list(range(15))  # nothing is unlike anything more than others are


def test_alike_items_are_kept_apart():
    vectors = np.eye(4, dtype=np.float32)[np.arange(12) // 3]  # four kinds, three of each
    codes, scores = np.arange(12, dtype=np.int32)[None], -np.arange(12, dtype=np.float32)[None]
    about = {"catalogue": Catalogue(rows([[]]), vectors), "histories": rows([[]])}
    for slate in (MMR(0.9), DPP(0.5)):
        assert slate.pick(codes, scores, 4, **about)[0].tolist() == [[0, 3, 6, 9]]


def test_with_a_table_where_it_pays(case):
    codes, _, _, catalogue, vectors = case
    dense = Catalogue(rows([range(300)] * 200, 300))
    few, many = (diversity_slates.item_similarity(codes[:size], 9, dense, 2**20, 1) for size in (1, 90))
    assert len(few.table) == 0
    assert few.n_contexts == 200
    assert len(many.table) == len(np.unique(codes))
    assert many.n_contexts == 0
    assert len(diversity_slates.item_similarity(codes, 9, catalogue, 1000, 1).table) == 0
    both = diversity_slates.item_similarity(codes, 9, Catalogue(catalogue.trained, vectors), 2**20, 1)
    assert both.vectors is vectors
    assert not len(both.table) + both.n_contexts


def test_who_has_no_history_is_not_calibrated(case):
    codes, scores, histories, catalogue, _ = case
    nothing = rows([[]] * len(codes), histories.n_columns)
    picked = Calibrated(1.0).pick(codes, scores, 9, catalogue=catalogue, histories=nothing)[0]
    np.testing.assert_array_equal(picked, codes[:, :9])


def test_shares_of_the_history_are_met(case):
    codes, scores, histories, catalogue, _ = case
    groups = popularity_groups(catalogue.trained.column_counts())
    wanted = shares_of_rows(histories, groups)
    apart = []
    for strength in (0.0, 0.2, 1.0):
        picked = Calibrated(strength).pick(codes, scores, 10, catalogue=catalogue, histories=histories)[0]
        listed = shares_of_lists(picked, groups)
        apart.append(divergence(wanted, listed).mean())
    assert apart[0] > 2 * apart[1] > 2 * apart[2]


# --- settings --------------------------------------------------------------------------------------------------------


def test_settings():
    assert repr(sl.slates.MMR(0.3)) == "MMR(diversity=0.3, pool=100)"
    assert repr(sl.slates.DPP(diversity=1, pool=50)) == "DPP(diversity=1.0, pool=50)"
    assert repr(sl.slates.Calibrated(0.5)) == "Calibrated(strength=0.5, pool=100)"
    assert MMR(0.3) == MMR(0.3, 100) != DPP(0.3)
    for kind in (MMR, DPP, Calibrated):  # what is equal has one repr, by which it is known again
        assert repr(kind(np.float64(0.25), np.int64(7))) == repr(kind(np.float32(0.25), 7)) == repr(kind(0.25, 7))
        assert repr(kind(True - 0)) == repr(kind(1)) == repr(kind(1.0))
    for wrong in (-0.1, 1.5, float("nan"), "0.3", None, True):
        for kind, name in ((MMR, "diversity"), (DPP, "diversity"), (Calibrated, "strength")):
            with pytest.raises(sl.SettingError, match=rf"{name} is .*; expected a number from 0 to 1"):
                kind(wrong)
    for wrong in (0, 1.5, 10_001, True):
        with pytest.raises(sl.SettingError, match=r"pool is .*; expected an integer"):
            MMR(0.3, wrong)


def test_arrays_that_do_not_fit(case):
    codes, scores, histories, catalogue, _ = case
    for one, other, had in (
        (codes, scores[:5], histories),
        (codes[0], scores[0], histories),
        (codes[:5], scores[:5], histories),
    ):
        with pytest.raises(sl.SettingError, match="one history for each query"):
            MMR().pick(one, other, 5, catalogue=catalogue, histories=had)
