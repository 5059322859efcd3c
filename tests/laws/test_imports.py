"""Law: a package imports only packages above it in the order of `package_order.py`, and no imports run in a cycle.

Imports inside functions count, and so do module paths in strings. Type-only imports count for the order, as few as
they are, but not for cycles: they never run.
"""

from __future__ import annotations

from laws import exception_lists
from laws.cycles import cycle_complaints
from laws.import_graph import imports_from_below, package_edges, runtime_edges, unknown_packages

MOVE = "Move the shared part into the package above, or hand the object over as an argument."


def test_every_package_has_its_place_in_the_order(modules):
    assert unknown_packages(modules) == set(), "Give the package a place in PACKAGES of tests/laws/package_order.py."


def test_packages_import_only_those_above_them(modules):
    exception_lists.check("imports", imports_from_below(modules), "{0} imports {1}, which is below it", MOVE)


def test_no_imports_of_modules_run_in_a_cycle(modules):
    assert_no_cycle("cycles", runtime_edges(modules))


def test_no_imports_of_packages_run_in_a_cycle(modules):
    assert_no_cycle("package_cycles", package_edges(runtime_edges(modules)))


def assert_no_cycle(name, edges):
    told = cycle_complaints(name, exception_lists.read(name), edges, MOVE)
    assert not told, "\n".join(told)
