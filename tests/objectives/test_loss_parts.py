from __future__ import annotations

import copy
import pickle

import pytest

from shortlist.objectives import LossParts


def test_parts_are_read_by_name_and_by_attribute():
    loss = LossParts({"click": 1.5, "items": 2.0}, regularizer=0.25)
    assert list(loss) == ["click", "items", "regularizer"]
    assert (loss.click, loss["items"], loss.regularizer, loss.total) == (1.5, 2.0, 0.25, 3.75)
    assert loss == LossParts(click=1.5, items=2.0, regularizer=0.25) != LossParts(click=1.5)
    assert eval(repr(loss)) == loss  # noqa: S307
    for other in (copy.copy(loss), copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert other == loss
        assert hash(other) == hash(loss)


def test_an_unknown_part_is_an_error():
    with pytest.raises(AttributeError, match="the loss has no part 'unobserved'; it has observed"):
        _ = LossParts(observed=1.0).unobserved
    with pytest.raises(KeyError):
        LossParts(observed=1.0)["unobserved"]


def test_parts_cannot_be_changed():
    loss = LossParts(observed=1.0)
    with pytest.raises(AttributeError, match="cannot be changed"):
        loss.observed = 2.0
    with pytest.raises(TypeError):
        loss["observed"] = 2.0


@pytest.mark.parametrize("parts", [{}, {"total": 1.0}])
def test_no_parts_or_a_part_named_total_is_refused(parts):
    with pytest.raises(ValueError, match="the parts of a loss are"):
        LossParts(parts)
