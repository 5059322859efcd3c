"""What samplers accept, refuse and say."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from sampling.draws import ITEMS, embeddings, histories
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import DataError, SettingError
from shortlist.sampling import AdaptiveRank, InBatch, Popularity, Rejection, Sampler, Uniform


@pytest.mark.parametrize(
    ("sampler", "text"),
    [
        (Uniform(), "Uniform(exclude='history')"),
        (Popularity(), "Popularity(beta=0.5, exclude='history')"),
        (InBatch(), "InBatch(exclude='history')"),
        (AdaptiveRank(), "AdaptiveRank(gamma=500.0, exclude='history', refresh=None)"),
        (Rejection(), "Rejection(margin=1.0, rounds=10, exclude='history')"),
    ],
)
def test_a_sampler_is_its_text(sampler, text):
    assert isinstance(sampler, Sampler)
    assert repr(sampler) == text
    names = {one.__name__: one for one in (Uniform, Popularity, InBatch, AdaptiveRank, Rejection)}
    assert eval(text, names) == sampler  # noqa: S307


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Uniform("nothing"), "exclude"),
        (lambda: InBatch("seen"), "exclude"),
        (lambda: Popularity(-0.5), "beta"),
        (lambda: Popularity(math.nan), "beta"),
        (lambda: Popularity(exclude=None), "exclude"),
        (lambda: AdaptiveRank(gamma=0), "gamma"),
        (lambda: AdaptiveRank(exclude=1), "exclude"),
        (lambda: AdaptiveRank(refresh=0), "refresh"),
        (lambda: AdaptiveRank(refresh=1.5), "refresh"),
        (lambda: Rejection(margin=-1), "margin"),
        (lambda: Rejection(rounds=0), "rounds"),
        (lambda: Rejection(exclude="x"), "exclude"),
    ],
)
def test_bad_settings_are_refused(make, name):
    with pytest.raises(SettingError, match=f"^{name} is .*; expected"):
        make()


def test_lists_are_sorted_anew_after_n_log_n_draws_or_as_told():
    rows = SparseRows.from_lists([np.array([0])], 1024)
    assert AdaptiveRank().bind(rows).refresh_every == 1024 * 10
    assert AdaptiveRank(refresh=77).bind(rows).refresh_every == 77
    assert AdaptiveRank().bind(SparseRows.from_lists([np.array([0])], 1)).refresh_every == 1
    assert Uniform().bind(rows).refresh_every is None


def test_a_sampler_that_follows_the_model_says_what_it_misses():
    rng, (W, H) = np.random.default_rng(0), embeddings(3)
    adaptive, rejection = AdaptiveRank().bind(histories()), Rejection().bind(histories())
    with pytest.raises(SettingError, match=r"call refresh\(item_embeddings\)"):
        adaptive.draw([0], [3], 1, rng, context_embeddings=W[:1])
    with pytest.raises(SettingError, match=f"expected {ITEMS} rows"):
        adaptive.refresh(H[1:])
    adaptive.refresh(H)
    with pytest.raises(SettingError, match="rows of 3 numbers"):
        adaptive.draw([0], [3], 1, rng)
    with pytest.raises(SettingError, match=r"of shape \(1, 2\); AdaptiveRank needs rows of 3 numbers"):
        adaptive.draw([0], [3], 1, rng, context_embeddings=W[:1, :2])
    with pytest.raises(SettingError, match="pass score"):
        rejection.draw([0], [3], 1, rng)
    with pytest.raises(SettingError, match="cannot compute ln q"):
        rejection.draw([0], [3], 1, rng, score=lambda c, i: np.zeros(len(i)), log_q=True)
    with pytest.raises(SettingError, match=f"pass positive and {ITEMS} scores"):
        rejection.probabilities(0, 3)


@pytest.mark.parametrize(
    ("contexts", "positives", "n", "words"),
    [
        ([0], [1, 2], 1, "expected two lists of equal length"),
        ([6], [1], 1, "expected codes from 0 to 5"),
        ([0], [-1], 1, f"expected codes from 0 to {ITEMS - 1}"),
        ([0.5], [1], 1, "expected codes"),
        ([0], [1], 0, "n is 0"),
    ],
)
def test_bad_batches_are_refused(contexts, positives, n, words):
    for sampler in (Uniform(), Rejection()):
        with pytest.raises(SettingError, match=words):
            sampler.bind(histories()).draw(
                contexts, positives, n, np.random.default_rng(0), score=lambda c, i: np.zeros(len(i))
            )


def test_popularity_without_any_pair_is_refused():
    for sampler in (Popularity(), InBatch()):
        with pytest.raises(DataError, match="use Uniform"):
            sampler.bind(SparseRows.from_lists([np.array([])], 4))


def test_no_popularity_overflows():
    rows = SparseRows.from_lists([np.array([0, 1]), np.array([0]), np.array([0])], 3)
    q = Popularity(beta=5000, exclude="positive").bind(rows).probabilities(0, 2)
    np.testing.assert_array_equal(q, [1, 0, 0])


def test_an_empty_batch_draws_nothing():
    for sampler in (Uniform(), InBatch()):
        drawn = sampler.bind(histories()).draw(
            np.empty(0, np.int32), np.empty(0, np.int32), 2, np.random.default_rng(0)
        )
        assert drawn.items.shape == (0, 2)


def test_another_process_finds_the_compiled_kernels():
    code = (
        "import numpy as np\n"
        "from shortlist.data.sparse_rows import SparseRows\n"
        "from shortlist.sampling import Popularity\n"
        "from shortlist.sampling.draw_kernels import draw_negatives\n"
        "tables = Popularity().bind(SparseRows.from_lists([np.array([0])], 4)).tables\n"
        "one, out, W = np.zeros(1, np.int32), np.zeros((1, 1), np.int32), np.zeros((4, 2), np.float32)\n"
        "draw_negatives((0,) * tables.code, np.ones(1, np.uint64), tables, one, one, 1, W, W, W[0], out, out)\n"
        "stats = getattr(draw_negatives, 'stats', None)\n"
        "print('none' if stats is None or stats.cache_path is None else sum(stats.cache_misses.values()))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in "ab"
    ]
    assert runs[1].strip() in {"0", "none"}
