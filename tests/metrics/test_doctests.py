from __future__ import annotations

import doctest

import pytest

import shortlist.metrics
from shortlist.metrics import beyond, groups, lists, measures, ranks, spec

MODULES = [shortlist.metrics, beyond, groups, lists, measures, ranks, spec]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
