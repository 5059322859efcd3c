from __future__ import annotations

import pytest

import problems


@pytest.fixture
def make_problem():
    return problems.make
