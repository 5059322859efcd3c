"""What every kind of index must do."""

import copy
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.errors import SettingError, StorageError
from shortlist.retrieval import DotProductScorer, Filters, top_n
from shortlist.retrieval.indexes import KINDS, ExactIndex, QuantizedIndex, index_choice, make_index, partition
from shortlist.retrieval.indexes.faiss_indexes import MOST_CANDIDATES, _chunks
from shortlist.retrieval.indexes.index_choice import kinds, recalls
from shortlist.retrieval.indexes.partition import nearest, partition_items

EVERYTHING = {
    "exact": {},
    "quantized": {"probes": 10**6, "refine": 10**6},
    "ivf-flat": {"probes": 10**6},
    "ivf-pq": {"probes": 10**6, "refine": 10**6},
}


def whole_vectors(n_items, n_queries, dim, seed):
    """Small whole numbers: products are exact in any order of adding up, and ties are many."""
    rng = np.random.default_rng(seed)
    items = rng.integers(-3, 4, (n_items, dim)).astype(np.float32)
    return items, rng.integers(-3, 4, (n_queries, dim)).astype(np.float32), rng


def random_filters(rng, n_items, n_queries, kind):
    def rows(most):
        lists = [rng.integers(0, n_items, rng.integers(0, most + 1)) for _ in range(n_queries)]
        starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
        return starts, np.concatenate([np.empty(0, np.int32), *lists]).astype(np.int32)

    def some(share):
        return np.flatnonzero(rng.random(n_items) < share).astype(np.int32)

    return {
        "none": Filters(),
        "exclude": Filters(exclude=rows(n_items)),
        "deny": Filters(deny=some(0.5)),
        "allow": Filters(allow=some(0.7)),
        "narrow": Filters(allow=some(0.05)),
        "few left": Filters(deny=some(0.97)),
        "rows": Filters(allow_rows=rows(n_items)),
        "all": Filters(exclude=rows(n_items // 2), deny=some(0.3), allow=some(0.8)),
    }[kind]


def one_row(codes):
    return Filters(exclude=(np.array([0, len(codes)]), np.array(codes, np.int32)))


FILTERS = ["none", "exclude", "deny", "allow", "narrow", "few left", "rows", "all"]


@pytest.mark.parametrize("kind", EVERYTHING)
@pytest.mark.parametrize("filtering", FILTERS)
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_a_search_that_looks_everywhere_is_exact(kind, filtering, seed):
    rng = np.random.default_rng(seed)
    n_items, dim, n = int(rng.integers(1, 300)), int(rng.integers(1, 20)), int(rng.integers(1, 30))
    items, queries, rng = whole_vectors(n_items, 5, dim, seed)
    filters = random_filters(rng, n_items, 5, filtering)
    priority = rng.permutation(n_items)
    index = kinds()[kind](items, priority=priority, threads=1, **EVERYTHING[kind])
    found = index.search(queries, n, filters)
    expected = top_n(DotProductScorer(queries, items), n, filters=filters, priority=priority)
    assert found[1].tolist() == expected[1].tolist()
    if kind != "ivf-flat":  # faiss takes any of equal ones where not all can be taken
        assert found[0].tolist() == expected[0].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("filtering", FILTERS)
def test_n_results_wherever_n_remain_and_no_excluded_one_among_them(kind, filtering):
    rng = np.random.default_rng(5)
    items = rng.normal(size=(3000, 12)).astype(np.float32) * rng.lognormal(0, 0.5, (3000, 1)).astype(np.float32)
    queries = rng.normal(size=(8, 12)).astype(np.float32)
    filters = random_filters(rng, len(items), len(queries), filtering)
    index = kinds()[kind](items, threads=1)
    lowest = dict.fromkeys(index.settings, 1)
    index = index.with_settings(**lowest)  # as little effort as can be
    codes, scores = index.search(queries, 50, filters)
    for q in range(len(queries)):
        left = np.ones(len(items), bool)
        if filters.allow is not None:
            left[:] = False
            left[filters.allow] = True
        if filters.allow_rows is not None:
            left[:] = False
            left[filters.allow_rows[1][filters.allow_rows[0][q] : filters.allow_rows[0][q + 1]]] = True
        if filters.deny is not None:
            left[filters.deny] = False
        if filters.exclude is not None:
            left[filters.exclude[1][filters.exclude[0][q] : filters.exclude[0][q + 1]]] = False
        given_ = codes[q][codes[q] >= 0]
        assert len(given_) == min(50, left.sum())
        assert len(set(given_.tolist())) == len(given_)
        assert left[given_].all()
        assert np.allclose(scores[q][: len(given_)], items[given_] @ queries[q], rtol=1e-4, atol=1e-4)
        assert (np.diff(scores[q][: len(given_)]) <= 0).all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "exact"])
def test_filters_that_leave_one_part_of_the_space_leave_the_recall(kind):
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(20, 16))
    category = rng.integers(20, size=20_000)
    items = (centres[category] + 0.6 * rng.normal(size=(20_000, 16))).astype(np.float32)
    queries = (centres[rng.integers(20, size=400)] + 0.6 * rng.normal(size=(400, 16))).astype(np.float32)
    index, _ = make_index(kind, items, queries, target_recall=0.9, n=10, threads=1)
    for left in (category < 4, category == 2):
        filters = Filters(deny=np.flatnonzero(~left).astype(np.int32))
        some = queries[:40]  # faiss takes long for graphs of which little is left
        expected = top_n(DotProductScorer(some, items), 10, filters=filters)[0]
        assert recalls(index.search(some, 10, filters)[0], expected).mean() > 0.9
    best = np.argsort(-(queries[:80] @ items.T), axis=1)[:, :50].astype(np.int32)
    filters = Filters(exclude=(np.arange(81) * 50, best.ravel()))  # the best 50 of each
    expected = top_n(DotProductScorer(queries[:80], items), 10, filters=filters)[0]
    assert recalls(index.search(queries[:80], 10, filters)[0], expected).mean() > 0.8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("of_items", "of_queries"), [(1e-18, 1e-18), (1e-20, 1), (1e18, 1e-10), (1e18, 1e18), (1, 1e8)]
)
def test_lengths_do_not_matter(kind, of_items, of_queries):
    rng = np.random.default_rng(2)
    items = (of_items * rng.normal(size=(1500, 6))).astype(np.float32)
    queries = (of_queries * rng.normal(size=(20, 6))).astype(np.float32)
    index = kinds()[kind](items, threads=1, **(EVERYTHING | {"hnsw": {"ef_search": 1500}})[kind])
    expected = np.argsort(-(queries.astype(np.float64) @ items.T.astype(np.float64)), axis=1)[:, :10]
    assert recalls(index.search(queries, 10)[0], expected).mean() > 0.97


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_can_search_and_build(kind):
    rng = np.random.default_rng(1)
    items, queries = rng.normal(size=(2000, 8)).astype(np.float32), rng.normal(size=(300, 8)).astype(np.float32)
    index = kinds()[kind](items, threads=2)
    expected = index.search(queries, 5, threads=2)[0]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            again = kinds()[kind](items, threads=2)
            same = np.array_equal(index.search(queries, 5, threads=2)[0], expected)
            status = 0 if same and len(again.search(queries, 5)[0]) == 300 else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended[0] == child, "the child hangs"
    assert os.waitstatus_to_exitcode(ended[1]) == 0


def test_queries_of_faiss_are_asked_for_in_bounded_parts():
    fetch = np.sort(np.random.default_rng(0).integers(1, 200_000, 5000))
    parts = _chunks(fetch)
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == 5000
    assert all((stop - start) * fetch[stop - 1] <= MOST_CANDIDATES for start, stop in parts)
    assert _chunks(np.array([10 * MOST_CANDIDATES])) == [(0, 1)]


@pytest.mark.parametrize("kind", ["ivf-flat", "ivf-pq", "hnsw"])
def test_what_an_index_of_faiss_takes_is_about_what_it_would_write(kind):
    index = kinds()[kind](np.random.default_rng(0).normal(size=(20_000, 32)), threads=1)
    assert index.nbytes == pytest.approx(index._faiss.serialize_index(index._index).nbytes, rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_not_pickled_and_is_its_own_copy(kind):
    index = kinds()[kind](np.random.default_rng(0).normal(size=(300, 4)), threads=1)
    assert copy.deepcopy(index) is index
    with pytest.raises(StorageError, match="save the model, and make the index again"):
        pickle.dumps(index)


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), spread=st.floats(0, 8))
def test_exact_search_is_exact_at_any_precision_of_its_copy(precision, seed, spread):
    rng = np.random.default_rng(seed)
    items = (rng.normal(size=(2000, 7)) * 10 ** rng.uniform(-spread, 0, (2000, 1))).astype(np.float32)
    items[rng.integers(2000, size=300)] = items[0]  # the same item many times over
    queries = rng.normal(size=(3, 7)).astype(np.float32)
    found, scores = ExactIndex(items, precision=precision).search(queries, 20)
    exact = items.astype(np.float64) @ queries.T.astype(np.float64)
    for q in range(3):
        best = np.sort(exact[:, q])[::-1][:20]
        assert np.allclose(scores[q], best, rtol=1e-5, atol=1e-6)
        assert np.allclose(exact[found[q], q], best, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_does_not_depend_on_threads_nor_on_what_else_is_asked(kind):
    rng = np.random.default_rng(1)
    items = rng.normal(size=(5000, 24)).astype(np.float32)
    queries = rng.normal(size=(200, 24)).astype(np.float32)
    index = kinds()[kind](items, threads=1)
    codes = index.search(queries, 10, threads=1)[0]
    assert (index.search(queries, 10, threads=3)[0] == codes).mean() > 0.999  # products may round differently
    alone = np.concatenate([index.search(queries[k : k + 1], 10)[0] for k in range(50)])
    assert (alone == codes[:50]).mean() > 0.99


def test_searches_from_many_threads_at_once_do_not_disturb_each_other():
    rng = np.random.default_rng(2)
    items = rng.normal(size=(4000, 16)).astype(np.float32)
    queries = rng.normal(size=(40, 16)).astype(np.float32)
    index = QuantizedIndex(items, probes=20)
    expected = [index.search(queries[k : k + 1], 10)[0].tolist() for k in range(40)]
    wrong = []

    def ask(k):
        for _ in range(20):
            same = index.search(queries[k : k + 1], 10)[0].tolist() == expected[k]
            wrong.extend([] if same else [k])

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


@pytest.mark.parametrize("kind", ["quantized", "ivf-flat", "ivf-pq", "hnsw"])
def test_more_effort_finds_more(kind):
    rng = np.random.default_rng(3)
    items = rng.normal(size=(6000, 16)).astype(np.float32) * rng.lognormal(0, 0.3, (6000, 1)).astype(np.float32)
    queries = rng.normal(size=(60, 16)).astype(np.float32)
    best = top_n(DotProductScorer(queries, items), 20)[0]
    index = kinds()[kind](items, threads=1)

    def recall(**settings):
        found = index.with_settings(**settings).search(queries, 20)[0]
        return np.mean([len(set(a) & set(b)) / 20 for a, b in zip(found.tolist(), best.tolist())])

    ladder = index.ladder(20)
    first, last = recall(**ladder[0]), recall(**ladder[-1])
    assert first < last
    assert last > 0.9


@pytest.mark.parametrize("vectors", [np.zeros((300, 5)), np.ones((300, 5)), np.eye(5)[np.arange(300) % 5] * 1e-20])
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_that_hardly_differ_are_no_trouble(kind, vectors):
    queries = np.array([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [-1, 2, 0, 0, 1e-10]], np.float32)
    index = kinds()[kind](vectors.astype(np.float32), threads=1)
    codes, scores = index.search(queries, 7)
    assert (codes >= 0).all()
    assert all(len(set(row)) == 7 for row in codes.tolist())
    assert np.isfinite(scores).all()
    assert codes[0].tolist() == [0, 1, 2, 3, 4, 5, 6]  # nobody is nearer: the order of priority


@pytest.mark.parametrize("products", [1, 100, 500_000])
def test_lists_are_made_of_the_nearest_directions(products, monkeypatch):
    monkeypatch.setattr(partition, "PRODUCTS", products)
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(500, 6)).astype(np.float32)
    directions, lists = partition_items(vectors, 12, seed=3)
    assert np.allclose(np.linalg.norm(directions, axis=1), 1, atol=1e-5)
    assert lists.tolist() == np.argmax(vectors @ directions.T, axis=1).tolist() == nearest(vectors, directions).tolist()
    again = partition_items(vectors, 12, seed=3)
    assert (again[1] == lists).all()


def test_blocks_hold_every_item_once_and_the_longest_of_a_list_first():
    rng = np.random.default_rng(6)
    vectors = rng.normal(size=(2000, 8)).astype(np.float32) * rng.lognormal(0, 0.5, (2000, 1)).astype(np.float32)
    index = QuantizedIndex(vectors, lists=9)
    blocks = index._blocks
    held = blocks.items[blocks.items >= 0]
    assert sorted(held.tolist()) == list(range(2000))
    for one in range(9):
        mine = np.flatnonzero(blocks.lists == one)
        assert (np.diff(blocks.lengths[mine]) <= 0).all()


def test_codes_are_nearer_the_vectors_than_the_blocks_are():
    rng = np.random.default_rng(7)
    vectors = rng.normal(size=(3000, 10)).astype(np.float32)
    index = QuantizedIndex(vectors, lists=5)
    blocks = index._blocks
    packed = blocks.codes.reshape(len(blocks.lists), -1, 64)
    away_block, away_code = 0.0, 0.0
    for block in range(len(blocks.lists)):
        base = blocks.lengths[block] * index._directions[blocks.lists[block]]
        for slot in range(64):
            item = blocks.items[block * 64 + slot]
            if item < 0:
                continue
            codes = packed[block, :, 2 * slot if slot < 32 else 2 * (slot - 32) + 1]
            halves = np.stack([codes & 15, codes >> 4], axis=1).reshape(-1)
            residual = blocks.points[np.arange(len(halves)), halves].reshape(-1)[:10]
            away_block += np.square(vectors[item] - base).sum()
            away_code += np.square(vectors[item] - base - residual).sum()
    assert away_code < 0.25 * away_block


@pytest.mark.parametrize("kind", ["auto", *KINDS])
def test_an_index_tells_what_it_measured(kind):
    rng = np.random.default_rng(8)
    items = rng.normal(size=(3000, 8)).astype(np.float32)
    index, why = make_index(kind, items, rng.normal(size=(200, 8)), target_recall=0.9, n=10)
    measured = index.measured
    assert measured.n == 10
    assert 0.8 < measured.recall <= 1
    assert measured.milliseconds > 0
    assert measured.nbytes == index.nbytes
    assert "recall@10" in repr(index)
    assert why


def test_auto_keeps_small_catalogues_exact_and_takes_large_ones_apart():
    rng = np.random.default_rng(9)
    small, why = make_index("auto", rng.normal(size=(500, 8)), rng.normal(size=(50, 8)))
    assert small.kind == "exact"
    assert "fast enough for 500 items" in why
    centres = rng.normal(size=(300, 32))
    items = (centres[rng.integers(300, size=150_000)] + 0.5 * rng.normal(size=(150_000, 32))).astype(np.float32)
    queries = centres[rng.integers(300, size=400)] + 0.5 * rng.normal(size=(400, 32))
    large, why = make_index("auto", items, queries, target_recall=0.9)
    assert large.kind == "quantized"
    assert large.measured.recall >= 0.9 - 3 * large.measured.stderr
    assert "times as fast" in why


def test_search_settings_that_are_given_stay():
    rng = np.random.default_rng(10)
    items = rng.normal(size=(2000, 8)).astype(np.float32)
    index, why = make_index("quantized", items, rng.normal(size=(50, 8)), settings={"probes": 3, "refine": 2})
    assert index.settings == {"probes": 3, "refine": 2}
    assert why == "as requested"
    index, _ = make_index("quantized", items, rng.normal(size=(50, 8)), settings={"refine": 7})
    assert index.settings["refine"] == 7
    index, why = make_index("quantized", items, rng.normal(size=(50, 8)), settings={"probes": None, "lists": None})
    assert why != "as requested"


@pytest.mark.parametrize(
    ("times", "precision"), [({"float32": 9, "int8": 3}, "int8"), ({"float32": 3.5, "int8": 3}, "float32"), ({}, None)]
)
def test_auto_takes_exact_search_of_a_copy_where_that_is_the_fastest(monkeypatch, times, precision):
    monkeypatch.setattr(index_choice, "SMALL", 10)
    took = {"quantized": 2.5} | (times or {"float32": 9, "int8": 4})
    monkeypatch.setattr(
        index_choice, "_milliseconds", lambda index, *_: took[index.built.get("precision", "quantized")]
    )
    rng = np.random.default_rng(1)
    index, why = make_index("auto", rng.normal(size=(2000, 8)), rng.normal(size=(50, 8)), n=10)
    assert index.built.get("precision") == precision
    assert ("less than 1.5 times as fast" if precision else "1.6 times as fast as exact search") in why


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: make_index("fast", x, x), "kind is 'fast'; expected one of 'auto', 'exact'"),
        (lambda x: make_index("auto", x, x, target_recall=2), "target_recall is 2; expected a number > 0"),
        (lambda x: make_index("auto", x, x, settings={"probes": 2}), "probes cannot be set with kind 'auto'"),
        (lambda x: make_index("quantized", x, x, settings={"M": 2}), "no setting 'M'"),
        (lambda x: make_index("exact", x, x, settings={"precision": "int4"}), "precision is 'int4'; expected one of"),
        (lambda x: ExactIndex(x).search(x[:, :2], 3), "query vectors have 2 dimensions; the items have 4"),
        (lambda x: ExactIndex(x[:0]), "there are no item vectors"),
        (lambda x: ExactIndex(x * np.nan), "10 of 10 item vectors are not finite (first: row 0)"),
        (lambda x: ExactIndex("abc"), "expected a matrix of numbers"),
        (lambda x: QuantizedIndex(x, lists=99), "lists is 99; expected an integer ≤ 10"),
        (
            lambda x: QuantizedIndex(x).with_settings(ef_search=2),
            "has no search setting ef_search; it has probes, refine",
        ),
        (lambda x: QuantizedIndex(x).search(x, 3, {"deny": [1]}), "filters is {'deny': .1.}; expected Filters"),
        (lambda x: QuantizedIndex(x).search(x, 3, one_row([5])), "exclude does not have one row of items per query"),
        (lambda x: QuantizedIndex(x).search(x[:1], 3, one_row([10])), "exclude has item codes from 10 to 10"),
        (lambda x: QuantizedIndex(x).search(x[:1], 3, one_row([-1])), "exclude has item codes from -1 to -1"),
        (
            lambda x: QuantizedIndex(x).search(x, 3, Filters(deny=np.zeros(1, np.int32)).with_item_mask(99)),
            "the filters were prepared for 99 items; expected 10",
        ),
        (lambda x: ExactIndex(x, priority=np.ones(10)), "priority is float64 of shape (10,); expected integers"),
        (lambda x: ExactIndex(x).search(x * 1j, 3), "expected a matrix of numbers"),
        (lambda x: ExactIndex(x).search(x > 0, 3), "expected a matrix of numbers"),
        (lambda x: make_index("hnsw", x, x, settings={"M": 2**31}), "M is 2147483648; expected"),
        (lambda x: make_index("hnsw", x, x, settings={"ef_construction": 10**12}), "ef_construction is 1000000000000"),
    ],
)
def test_mistakes_are_told(call, message):
    with pytest.raises(SettingError, match=message.replace("(", r"\(").replace(")", r"\)")):
        call(np.arange(40, dtype=np.float32).reshape(10, 4))


def test_without_faiss_its_kinds_say_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(SettingError, match=r"pip install \"shortlist\[ann\]\""):
        make_index("hnsw", np.eye(5), np.eye(5))
