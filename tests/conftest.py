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


LONGEST = ("test_docs.py", "cli/test_warmup.py", "storage/test_kill.py", "test_kernel_cache.py")


def pytest_collection_modifyitems(items):
    """Begin with what takes longest, so that no worker is left with it at the end."""
    longest = tuple(f"tests/{name}" for name in LONGEST)
    items.sort(key=lambda item: not item.nodeid.startswith(longest))


@pytest.fixture
def make_problem():
    return problems.make
