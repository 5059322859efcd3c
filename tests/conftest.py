from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

import problems

os.environ["SHORTLIST_COMPILE_NOTE"] = "0"  # what a test finds on standard error must not depend on the cache
# On tiny data, starting threads takes longer than the work. `default_threads` and `make test-slow` undo this.
os.environ.setdefault("SHORTLIST_THREADS", "1")

# Machines differ in speed, so no example has a deadline; where CI is set, the examples are the same in every run.
settings.register_profile(
    "shortlist", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shortlist")


LONGEST = ("test_docs.py", "storage/test_kill.py", "test_kernel_cache.py")
# These compile the same kernels. The first half of the tests begins in one worker: two would compile each kernel twice.
COMPILING = (
    "solvers/test_sgd",
    "solvers/test_optimizers.py",
    "golden/",
    "conformance/",
    "recommenders/",
    "online/",
    "reranking/test_two_stage.py",
)


def pytest_collection_modifyitems(items):
    """Begin with the longest tests, so that none is left to one worker at the end; then those that compile much."""
    longest, compiling = (tuple(f"tests/{name}" for name in names) for names in (LONGEST, COMPILING))
    items.sort(key=lambda item: 2 - 2 * item.nodeid.startswith(longest) - item.nodeid.startswith(compiling))


@pytest.fixture(scope="module")
def default_threads():
    """Run with as many threads as users have by default."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SHORTLIST_THREADS")
        yield


@pytest.fixture
def make_problem():
    return problems.make
