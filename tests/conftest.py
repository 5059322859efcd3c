from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

import problems

os.environ["SHORTLIST_COMPILE_NOTE"] = "0"  # what a test finds on standard error must not depend on the cache

# Machines differ in speed, so no example has a deadline; where CI is set, the examples are the same in every run.
settings.register_profile(
    "shortlist", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shortlist")


@pytest.fixture
def make_problem():
    return problems.make
