"""The study of defaults knows what the defaults are; intervals of the comparison of versions."""

from __future__ import annotations

from math import comb

import pytest

from benchmarks.lib.paths import TRIALS
from benchmarks.quality import rows
from benchmarks.speed import versions
from benchmarks.studies.defaults.grids import GRIDS, default_of
from benchmarks.studies.defaults.lines import text_of
from benchmarks.studies.defaults.tables import ndcgs
from shortlist.recommenders.registry import recommender_class
from shortlist.recommenders.sgd_factorization import SGDFactorization

SAMPLED = [kind for kind in GRIDS if kind != "IALS"]


@pytest.mark.parametrize("kind", SAMPLED)
def test_defaults_are_among_the_settings_of_the_study(kind):
    default = default_of(kind)
    assert default.items() <= recommender_class(kind)().settings().items()
    found = ndcgs(TRIALS / f"defaults-{kind.lower()}.csv")
    assert found
    for values in found.values():
        assert {text_of(default), text_of(next(GRIDS[kind]()))} <= values.keys()


def test_rows_of_the_board_do_not_depend_on_the_defaults_of_steps():
    settings = [row.settings for name in rows.SETS for row in rows.data_set(name).rows
                if issubclass(recommender_class(row.model), SGDFactorization)]  # fmt: skip
    assert settings
    for one in settings:
        assert {"optimizer", "schedule", "init", "init_scale", "learning_rate", "epochs", "dim"} <= one.keys()


@pytest.mark.parametrize("n", [3, 6, 9, 11, 15, 30])
def test_an_interval_holds_the_median_with_95_percent(n):
    low, high = versions.interval(list(range(n)))
    assert low + high == n - 1
    outside = [2 * sum(comb(n, j) for j in range(k + 1)) / 2**n for k in range(n)]  # of the k-th least to the k-th most
    if n < 6:
        assert low == 0  # no pair is enough
        return
    assert outside[low] <= 0.05 < outside[low + 1]


def test_nine_turns_give_the_second_to_the_eighth():
    assert versions.interval([0.1 * k for k in range(1, 10)]) == pytest.approx((0.2, 0.8))
