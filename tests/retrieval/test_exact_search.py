from __future__ import annotations

import os
import threading
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_oracle import NarrowableScorer, TableScorer, csr, ranks_oracle, top_n_oracle
from shortlist.errors import SettingError
from shortlist.retrieval import DotProductScorer, Filters, exact_search, item_ranks, numpy_search, top_n

SPECIAL = np.array([-np.inf, np.inf, np.nan, -np.nan, 0.0, -0.0, 1.0, -1.0, 1e-45, 3e38], np.float32)


@st.composite
def problems(draw):
    """A table of scores with many ties, filters of every kind, and a way to break ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_queries = draw(st.integers(0, 7))
    n_items = draw(st.one_of(st.integers(1, 12), st.integers(13, 300)))
    table = {
        "random": rng.standard_normal,
        "few values": lambda shape: rng.integers(-2, 3, shape),
        "special": lambda shape: rng.choice(SPECIAL, shape),
        "one special": lambda shape: np.where(rng.random(shape) < 0.02, rng.choice(SPECIAL, shape), rng.random(shape)),
        "constant": lambda shape: np.full(shape, rng.choice(SPECIAL)),
    }[draw(st.sampled_from(["random", "few values", "special", "one special", "constant"]))]((n_queries, n_items))

    def rows(longest):
        lists = [list(rng.integers(0, n_items, rng.integers(0, longest + 1))) for _ in range(n_queries)]
        return csr([sorted(row) if rng.random() < 0.5 else row for row in lists])

    def some(share):
        return rng.integers(0, n_items, int(n_items * share)).astype(np.int32)

    filters = Filters(
        exclude=rows(n_items // 2) if draw(st.booleans()) else None,
        deny=some(0.2) if draw(st.booleans()) else None,
        allow=some(draw(st.sampled_from([0, 0.1, 0.5, 2]))) if draw(st.booleans()) else None,
        allow_rows=rows(n_items) if draw(st.booleans()) else None,
    )
    order = draw(
        st.sampled_from(
            [
                {},
                {"priority": rng.permutation(n_items).astype(np.int32)},
                {"priority": rng.integers(-2, 2, n_items) * draw(st.sampled_from([1, 2**40]))},
                {"tie_seed": int(rng.integers(0, 100))},
                {"tie_seed": -1, "query_keys": rng.integers(-(2**62), 2**62, n_queries)},
            ]
        )
    )
    scorer = draw(st.sampled_from([TableScorer, NarrowableScorer]))(table)
    return scorer, rows(5), filters, order, draw(st.one_of(st.integers(1, 12), st.integers(13, 400)))


BUDGETS = st.sampled_from([{}, {"memory": 1}, {"memory": 700}, {"memory": 5000}, {"memory": 40_000}])
THREADS = st.sampled_from([1, 2, 5])
IN_NUMPY = st.sampled_from([None, True, False])


@pytest.fixture(autouse=True)
def _threads_for_small_work(monkeypatch):
    monkeypatch.setattr(exact_search, "SMALL", 0)


@settings(max_examples=400, deadline=None)
@given(
    problem=problems(), budget=BUDGETS, threads=THREADS, in_numpy=IN_NUMPY, candidates=st.sampled_from([0, 30, 4096])
)
def test_top_n_is_the_oracles(problem, budget, threads, in_numpy, candidates):
    scorer, _, filters, order, n = problem
    with mock.patch.object(numpy_search, "CANDIDATES", candidates):
        items, scores = top_n(scorer, n, filters=filters, threads=threads, in_numpy=in_numpy, **order, **budget)
    expected_items, expected_scores = top_n_oracle(scorer.table, n, filters, **order)
    assert items.dtype == np.int32
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(items, expected_items)
    np.testing.assert_array_equal(scores, expected_scores)


@settings(max_examples=200, deadline=None)
@given(problem=problems(), budget=BUDGETS, threads=THREADS)
def test_ranks_are_the_oracles(problem, budget, threads):
    scorer, targets, filters, order, _ = problem
    ranks, n_ranked = item_ranks(scorer, targets, filters=filters, threads=threads, **order, **budget)
    expected_ranks, expected_n = ranks_oracle(scorer.table, targets, filters, **order)
    np.testing.assert_array_equal(ranks, expected_ranks)
    np.testing.assert_array_equal(n_ranked, expected_n)


@settings(max_examples=100, deadline=None)
@given(problem=problems())
def test_the_kth_of_top_n_has_rank_k(problem):
    scorer, _, filters, order, n = problem
    items, _ = top_n(scorer, n, filters=filters, **order)
    targets = csr([row[row >= 0] for row in items])
    ranks, n_ranked = item_ranks(scorer, targets, filters=filters, **order)
    np.testing.assert_array_equal(np.diff(targets[0]), np.minimum(n, n_ranked))
    np.testing.assert_array_equal(ranks, [k + 1 for row in items for k in range(np.count_nonzero(row >= 0))])


def integer_vectors(n_queries, n_items, d=16, seed=0):
    """Vectors whose products are whole numbers: exact in float32 whatever the blocks, and with many ties."""
    rng = np.random.default_rng(seed)
    return DotProductScorer(rng.integers(-3, 4, (n_queries, d)), rng.integers(-3, 4, (n_items, d)))


def seen(n_queries, n_items, per_query, seed=1):
    rng = np.random.default_rng(seed)
    return csr([np.sort(rng.integers(0, n_items, per_query)) for _ in range(n_queries)])


@pytest.mark.parametrize("order", [{}, {"tie_seed": 5}, {"priority": -np.arange(3000)}])
@pytest.mark.parametrize("n", [1, 20, 150])
def test_blocks_and_threads_change_nothing(n, order):
    scorer = integer_vectors(1300, 3000)
    filters = Filters(exclude=seen(1300, 3000, 40))
    expected = top_n_oracle(scorer.contexts @ scorer.items.T, n, filters, **order)
    for options in ({}, {"threads": 1}, {"threads": 3, "memory": 2**20}, {"memory": 10_000}):
        for found, right in zip(top_n(scorer, n, filters=filters, **order, **options), expected):
            np.testing.assert_array_equal(found, right)
    targets = seen(1300, 3000, 6, seed=2)
    ranks, n_ranked = item_ranks(scorer, targets, filters=filters, **order)
    for options in ({"threads": 1}, {"threads": 3, "memory": 10_000}):
        again, n_again = item_ranks(scorer, targets, filters=filters, **order, **options)
        np.testing.assert_array_equal(again, ranks)
        np.testing.assert_array_equal(n_again, n_ranked)


def test_a_query_is_answered_alike_alone_and_in_company():
    scorer = integer_vectors(50, 400)
    keys = np.arange(1000, 1050)
    together, _ = top_n(scorer, 10, tie_seed=3, query_keys=keys)
    for q in (0, 17, 49):
        alone = DotProductScorer(scorer.contexts[q : q + 1], scorer.items)
        np.testing.assert_array_equal(top_n(alone, 10, tie_seed=3, query_keys=keys[q : q + 1])[0][0], together[q])


def test_a_narrow_allow_scores_only_its_items():
    scorer = integer_vectors(40, 2000)
    allow = np.unique(np.random.default_rng(0).integers(0, 2000, 60)).astype(np.int32)
    filters = Filters(allow=allow, exclude=seen(40, 2000, 900), deny=allow[:5])
    table = scorer.contexts @ scorer.items.T

    class Guarded(DotProductScorer):
        def score(self, queries, items, out):
            assert self.n_items < 100
            super().score(queries, items, out)

        def subset(self, items):
            return Guarded(self.contexts, self.items[items])

    guarded = Guarded(scorer.contexts, scorer.items)
    for order in ({}, {"tie_seed": 1}, {"priority": np.arange(2000)[::-1]}):
        found = top_n(guarded, 20, filters=filters, **order)
        np.testing.assert_array_equal(found[0], top_n_oracle(table, 20, filters, **order)[0])


@pytest.mark.parametrize("memory", [exact_search.DEFAULT_MEMORY, 4000])
def test_random_ties_give_every_item_the_same_chance_at_every_rank(memory):
    n_queries, n_items, n = 6000, 40, 5
    items, _ = top_n(TableScorer(np.zeros((n_queries, n_items))), n, tie_seed=11, memory=memory)
    expected = n_queries / n_items
    for k in range(n):
        counts = np.bincount(items[:, k], minlength=n_items)
        chi_square = np.sum((counts - expected) ** 2 / expected)
        assert 12 < chi_square < 80  # 39 degrees of freedom; outside with probability below 1e-4 on either side
    pairs = np.bincount(items[:, 0] * n_items + items[:, 1], minlength=n_items**2)  # successive places independent
    pairs = pairs[~np.eye(n_items, dtype=bool).ravel()]
    chi_square = np.sum((pairs - pairs.mean()) ** 2 / pairs.mean())
    assert abs(chi_square - len(pairs)) < 5 * np.sqrt(2 * len(pairs))


def test_random_ties_differ_by_seed_and_by_query():
    scorer = TableScorer(np.zeros((2, 50)))
    one, other = top_n(scorer, 20, tie_seed=1)[0], top_n(scorer, 20, tie_seed=2)[0]
    assert (one != other).any()
    assert (one[0] != one[1]).any()
    same = top_n(scorer, 20, tie_seed=1, query_keys=[9, 9])[0]
    np.testing.assert_array_equal(same[0], same[1])


def test_wide_rows_and_long_lists():
    """Groups, floors and clearings of the selection kernel, each with more than one round."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((9, 20_000)).astype(np.float32)
    table[1] = np.sort(table[1])  # ascending: every item is a new best
    table[2] = np.sort(table[2])[::-1]
    table[3, ::7] = np.nan
    table[4] = np.round(table[4])
    table[5, :19_990] = -np.inf
    table[6] = rng.permutation(20_000).astype(np.int32).view(np.float32)  # neighbouring floats
    table[7] = rng.choice(np.array([0.0, -0.0], np.float32), 20_000)
    table[8] = -rng.integers(1, 2**22, 20_000).astype(np.int32).view(np.float32)
    table[8].view(np.int32)[:] |= 0x7FC00000  # NaNs of many kinds
    for n in (1, 20, 300, 1000):
        for memory in (exact_search.DEFAULT_MEMORY, 60_000):
            for order in ({}, {"tie_seed": 0}):
                items, scores = top_n(TableScorer(table), n, memory=memory, **order)
                expected = top_n_oracle(table, n, **order)
                np.testing.assert_array_equal(items, expected[0])
                np.testing.assert_array_equal(scores, expected[1])


def test_the_budget_bounds_the_blocks():
    largest = []

    class Watched(TableScorer):
        def score(self, queries, items, out):
            largest.append(out.size)
            super().score(queries, items, out)

    scorer = Watched(np.zeros((300, 5000)))
    top_n(scorer, 10, memory=200_000, threads=2)
    assert max(largest) * 4 * 2 <= 200_000
    largest.clear()
    item_ranks(scorer, csr([[1]] * 300), memory=200_000, threads=2)
    assert max(largest) * 4 * 2 <= 200_000


def test_read_only_arrays_are_fine():
    starts, codes = seen(5, 100, 10)
    starts.flags.writeable = codes.flags.writeable = False
    scorer = integer_vectors(5, 100)
    items, _ = top_n(scorer, 3, filters=Filters(exclude=(starts, codes), deny=codes))
    expected = top_n_oracle(scorer.contexts @ scorer.items.T, 3, Filters(exclude=(starts, codes), deny=codes))[0]
    np.testing.assert_array_equal(items, expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: top_n(s, 0), "n is 0"),
        (lambda s: top_n(s, 3, memory=0), "memory is 0"),
        (lambda s: top_n(s, 3, priority=[1, 2]), "priority"),
        (lambda s: top_n(s, 3, priority=np.zeros(9)), "priority is float64"),
        (lambda s: top_n(s, 3, tie_seed=1, query_keys=[1]), "query_keys"),
        (lambda s: top_n(s, 3, filters=Filters(deny=[9])), "deny has item codes from 9 to 9; expected 0 to 8"),
        (lambda s: top_n(s, 3, filters=Filters(exclude=csr([[1]]))), "exclude does not have one row of items"),
        (lambda s: top_n(s, 3, filters=Filters(allow_rows=([0, 2, 1, 1, 1], [3, 3]))), "allow_rows"),
        (lambda s: item_ranks(s, csr([[1], [], [-1], []])), "targets has item codes from -1 to 1"),
        (lambda s: DotProductScorer(np.zeros((2, 3)), np.zeros((2, 4))), "3 dimensions and item vectors 4"),
        (lambda s: DotProductScorer(np.zeros(3), np.zeros((2, 4))), "contexts has shape"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(SettingError, match=message):
        call(TableScorer(np.zeros((4, 9))))


def test_many_threads_may_search_at_once():
    scorer = integer_vectors(700, 900)
    filters = Filters(exclude=seen(700, 900, 20))
    expected = top_n(scorer, 10, filters=filters, tie_seed=0, threads=1)[0]
    wrong = []

    def search():
        for _ in range(4):
            found = top_n(scorer, 10, filters=filters, tie_seed=0, threads=2)[0]
            if not np.array_equal(found, expected):
                wrong.append(found)

    callers = [threading.Thread(target=search) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_can_search():
    scorer = integer_vectors(700, 900)
    expected = top_n(scorer, 10, threads=2)[0]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if np.array_equal(top_n(scorer, 10, threads=2)[0], expected) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
