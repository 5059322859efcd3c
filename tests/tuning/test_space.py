"""Search spaces: what they refuse, and that every recommender has a usable one."""

from __future__ import annotations

import pytest

import shortlist as sl
from shortlist.recommenders.registry import REGISTRY, recommender_class
from shortlist.tuning import Choice, Increasing, Integer, Real, When
from shortlist.tuning.problem import as_recommender, effective_space


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Real(2, 1), "the range from 2 to 1 is empty; expected low < high"),
        (lambda: Real(1, 1), "is empty"),
        (lambda: Real(0, 1, log=True), "has no logarithm; use low > 0, or log=False"),
        (lambda: Real(float("nan"), 1), "low is nan"),
        (lambda: Integer(1.5, 3), "low is 1.5; expected an integer"),
        (Choice, r"Choice\(\); expected one or more distinct values"),
        (lambda: Choice("a", "a"), "distinct values"),
        (lambda: Choice(None), "expected one or more distinct values of type bool or int or float or str"),
        (lambda: Increasing(0, 4), "a value of Increasing is 0; expected an integer ≥ 1"),
        (lambda: Increasing(1.5), "of type int"),
        (lambda: Real(0, 1, log=1), "log is 1; expected True or False"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(sl.SettingError, match=message):
        make()


def corner(one, high):
    if isinstance(one, Choice):
        return one.options[-1 if high else 0]
    if isinstance(one, Increasing):
        return one.values[-1 if high else 0]
    return one.high if high else one.low


@pytest.mark.parametrize("name", REGISTRY)
def test_every_recommender_takes_all_corners_of_its_space(name):
    kind = recommender_class(name)
    space = kind.space()
    for high in (False, True):
        settings = {name: corner(one, high) for name, one in space.items() if one.when is None}
        settings |= {name: corner(one, high) for name, one in space.items() if one.when and one.when.holds(settings)}
        kind(**settings)
    defaults = kind().settings()
    for setting, one in space.items():
        assert setting in defaults
        if one.when is not None:
            assert isinstance(space[one.when.setting], Choice)
            assert set(one.when.options) <= set(space[one.when.setting].options)


def test_what_is_searched():
    assert "dim" in effective_space(as_recommender("ials"), None, False)
    assert "weighting" not in effective_space(as_recommender("ials"), None, False)
    assert effective_space(as_recommender("ials"), None, True)["weighting"] == Choice("binary", "log")
    # what a user has set stays, unless it is named
    assert "dim" not in effective_space(as_recommender(sl.IALS(dim=32)), None, False)
    assert "weighting" not in effective_space(as_recommender(sl.IALS(weighting="raw")), None, True)
    space = {"dim": Increasing(8, 16)}
    assert effective_space(as_recommender(sl.IALS(dim=32)), space, False)["dim"] == space["dim"]
    assert "regularization" not in effective_space(as_recommender("ials"), {"regularization": None}, False)
    assert effective_space(as_recommender("popularity"), None, False) == {}


def test_a_wrong_space_is_refused():
    with pytest.raises(sl.SettingError, match=r"IALS has no setting 'dims'; did you mean 'dim'"):
        effective_space(as_recommender("ials"), {"dims": Increasing(2)}, False)
    with pytest.raises(sl.SettingError, match=r"dim is \[1, 2\]; expected Real, Integer, Choice or Increasing"):
        effective_space(as_recommender("ials"), {"dim": [1, 2]}, False)
    with pytest.raises(sl.SettingError, match="model is 7; expected a recommender, its class or its name"):
        as_recommender(7)
    with pytest.raises(sl.SettingError, match="did you mean 'ials'"):
        as_recommender("ial")


def test_when():
    when = When("similarity", "cosine", "tfidf")
    assert when.holds({"similarity": "cosine"})
    assert not when.holds({"similarity": "bm25"})
    assert not when.holds({})
