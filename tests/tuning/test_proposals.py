"""What is tried next, and what is given up."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist.tuning import Choice, Increasing, Integer, Real, Trial, When
from shortlist.tuning.proposals import CARRIED, MedianPruning, Proposals, importance, increasing_setting

SPACE = {
    "dim": Increasing(2, 4, 8),
    "a": Real(0.01, 10.0, log=True),
    "b": Real(-1.0, 1.0),
    "n": Integer(1, 5),
    "kind": Choice("x", "y"),
    "only_x": Real(0.0, 1.0, when=When("kind", "x")),
}
FIRST = {"dim": 2, "a": 1.0, "b": 0.0, "n": 3, "kind": "x", "only_x": 0.5}


def worth(settings: dict) -> float:
    """The nearer a is to 0.1 and b to 0.5, the better."""
    import math

    return 1.0 / (1.0 + abs(math.log10(settings["a"]) + 1) + abs(settings["b"] - 0.5))


def searched(proposals: Proposals, rounds: int, seed: int = 0) -> list[Trial]:
    trials: list[Trial] = []
    for number in range(rounds):
        for one in proposals.round(number, list(trials), 2):
            trials.append(Trial(len(trials), one, "complete", worth(one)))
    return trials


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 6))
def test_proposals_lie_in_the_space_and_are_new(seed, size):
    trials = searched(Proposals(SPACE, FIRST, seed, size), 4)
    assert len(trials) == 4 * size
    tried = []
    for trial in trials:
        one = trial.settings
        assert one not in tried
        tried.append(one)
        assert one["dim"] == 2
        assert 0.01 <= one["a"] <= 10
        assert -1 <= one["b"] <= 1
        assert one["n"] in range(1, 6)
        assert ("only_x" in one) == (one["kind"] == "x")
        assert float(f"{one['a']:.4g}") == one["a"]
    assert trials[0].settings == FIRST


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.permutations(range(4)))
def test_a_round_depends_on_what_came_before_it_only(seed, order):
    """Not on which of the trials before ended first, nor on whether they were drawn by the same object."""
    trials = searched(Proposals(SPACE, FIRST, seed), 3)
    again = Proposals(SPACE, FIRST, seed).round(3, trials, 2)
    assert again == Proposals(SPACE, FIRST, seed).round(3, list(trials), 2)
    assert again != Proposals(SPACE, FIRST, seed + 1).round(3, trials, 2)
    ended = [trials[k] for k in order]
    by_number = sorted(ended, key=lambda one: one.number)
    assert Proposals(SPACE, FIRST, seed).round(1, by_number, 2) == Proposals(SPACE, FIRST, seed).round(1, trials[:4], 2)


def test_it_learns_where_it_is_good():
    trials = searched(Proposals(SPACE, FIRST, 0), 15)
    early, late = (sum(one.value for one in part) / len(part) for part in (trials[1:9], trials[-20:]))
    assert late > early + 0.1


def test_a_larger_value_begins_with_the_best_of_the_smaller():
    proposals = Proposals(SPACE, FIRST, 0)
    trials = searched(proposals, 5)
    first = proposals.round(5, trials, 4)
    best = sorted(trials, key=lambda one: -one.value)[:CARRIED]
    assert first[:CARRIED] == [{**one.settings, "dim": 4} for one in best]
    assert all(one["dim"] == 4 for one in first)
    assert len(first) == 4
    more = [*trials, *(Trial(20 + k, one, "complete", worth(one)) for k, one in enumerate(first))]
    assert not [one for one in proposals.round(6, more, 4) if one in first]


def test_settings_that_failed_count_as_the_worst():
    """Half of the range fails: later proposals keep away from it."""
    space = {"a": Real(0.0, 1.0)}
    proposals, trials = Proposals(space, {}, 0), []
    for number in range(12):
        for one in proposals.round(number, list(trials), None):
            bad = one["a"] > 0.5
            trials.append(Trial(len(trials), one, "failed" if bad else "complete", None if bad else 0.5))
    assert sum(one.state == "failed" for one in trials[-16:]) < 5


def test_a_small_space_comes_to_its_end():
    space = {"kind": Choice("x", "y", "z")}
    proposals, trials = Proposals(space, {"kind": "y"}, 0), []
    for number in range(3):
        found = proposals.round(number, list(trials), None)
        trials += [Trial(len(trials) + k, one, "complete", 0.1) for k, one in enumerate(found)]
    assert trials[0].settings == {"kind": "y"}
    assert sorted(one.settings["kind"] for one in trials) == ["x", "y", "z"]
    assert Proposals({}, {}, 0).round(0, [], None) == [{}]


def test_first_settings_outside_of_the_space_are_moved_into_it():
    assert Proposals({"a": Real(1, 2)}, {"a": 5.0}, 0).round(0, [], None)[0] == {"a": 2.0}
    (first, *_) = Proposals(SPACE, {**FIRST, "n": 77, "kind": "z", "b": -3}, 0).round(0, [], 2)
    assert first == {**FIRST, "n": 5, "kind": "x", "b": -1.0}


def test_what_depends_on_a_setting_that_is_not_searched():
    space = {"b": Real(0.1, 1.0, when=When("similarity", "bm25"))}
    assert all("b" in one for one in Proposals(space, {"similarity": "bm25"}, 0).round(0, [], None))
    assert not any("b" in one for one in Proposals(space, {"similarity": "cosine"}, 0).round(0, [], None))


def test_only_one_setting_grows():
    assert increasing_setting(SPACE) == "dim"
    assert increasing_setting({"a": Real(0, 1)}) is None
    with pytest.raises(sl.SettingError, match="a and b are Increasing; expected at most one such setting"):
        increasing_setting({"a": Increasing(1), "b": Increasing(2)})


def curves(*all_of_them: list[float], every: int = 1) -> list[Trial]:
    return [
        Trial(k, {}, "complete", max(one), curve=tuple(one), epochs=tuple(every * n for n in range(1, len(one) + 1)))
        for k, one in enumerate(all_of_them)
    ]


def test_a_curve_is_compared_after_as_many_epochs():
    others = curves([0.1, 0.2, 0.3], [0.1, 0.3, 0.4], [0.2, 0.4, 0.5], [0.2, 0.5, 0.6], every=5)
    assert not MedianPruning(others).should_prune({5: 0.19})  # .19 is below what they had after 10 epochs, not after 5
    assert MedianPruning(others).should_prune({5: 0.01, 10: 0.01})


def test_a_curve_below_the_median_is_given_up():
    pruning = MedianPruning(curves([0.1, 0.2, 0.3], [0.1, 0.3, 0.4], [0.2, 0.4, 0.5], [0.2, 0.5, 0.6], [0.3, 0.6]))
    assert not pruning.should_prune({1: 0.0})  # too early to tell
    assert pruning.should_prune({1: 0.0, 2: 0.39})
    assert not pruning.should_prune({1: 0.0, 2: 0.41})
    assert not pruning.should_prune({1: 0.5, 2: 0.1})  # its best was good
    assert pruning.should_prune({1: 0.1, 2: 0.42, 3: 0.44})
    assert not pruning.should_prune({1: 0.1, 2: 0.42, 3: 0.46})  # the median of the four that came so far is .45
    assert not pruning.should_prune({7: 0.0})  # nobody has come so far


def test_nothing_is_given_up_before_there_is_enough_to_compare_with():
    assert not MedianPruning(curves([0.5, 0.5], [0.6, 0.6], [0.7, 0.7])).should_prune({1: 0.0, 2: 0.0})
    assert not MedianPruning([]).should_prune({1: 0.0, 2: 0.0, 3: 0.0})


def test_importance_tells_what_mattered():
    trials = searched(Proposals(SPACE, FIRST, 1), 12)
    shares = importance(SPACE, trials)
    assert set(shares) == {"a", "b", "n", "kind", "only_x"}  # dim was the same in all
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares["a"], shares["b"]) > max(shares["n"], shares["kind"], shares["only_x"])
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


@pytest.mark.parametrize("seed", range(3))
def test_importance_knows_settings_that_not_every_trial_has(seed):
    """The measure and its shrinkage make the difference, neighbours none."""
    rng = np.random.default_rng(seed)
    trials = []
    for number in range(30):
        one = {"neighbours": int(rng.integers(20, 500)), "similarity": str(rng.choice(["cosine", "tfidf", "bm25"]))}
        value = 0.1
        if one["similarity"] == "bm25":
            one["k1"] = float(rng.uniform(0.3, 100))
        else:
            one["shrinkage"] = float(np.exp(rng.uniform(np.log(0.3), np.log(1000))))
            value = 0.3 - 0.02 * abs(np.log(one["shrinkage"] / 10))
        trials.append(Trial(number, one, "complete", value + 1e-4 * rng.random()))
    shares = importance(sl.ItemKNN.space(), trials)
    assert next(iter(shares)) == "shrinkage"
    assert shares["shrinkage"] > 2 * shares["neighbours"]
    assert shares["k1"] == 0.0
    assert sum(shares.values()) == pytest.approx(1)


def test_importance_of_few_trials_is_not_told():
    assert importance(SPACE, searched(Proposals(SPACE, FIRST, 0), 2)) == {}
    same = [Trial(k, {"a": 1.0 + k, "b": k / 10}, "complete", 0.5) for k in range(12)]
    assert importance({"a": Real(0, 20), "b": Real(0, 2)}, same) == {}


def test_optuna_is_kept_quiet(capsys):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.INFO)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        searched(Proposals(SPACE, FIRST, 0), 3)
    assert capsys.readouterr().err == ""
    assert optuna.logging.get_verbosity() == optuna.logging.INFO
