from __future__ import annotations

import problems
import pytest


@pytest.fixture
def make_problem():
    return problems.make
