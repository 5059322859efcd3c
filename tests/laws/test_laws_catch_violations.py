"""Every law can fail: planted violations are found, and what is allowed is not."""

from __future__ import annotations

import pytest

from laws.cycles import cycle_complaints, cycles, edges_to_remove, needless
from laws.exception_lists import complaints, count_complaints
from laws.import_graph import imports, imports_from_below, package_edges, runtime_edges, unknown_packages
from laws.inheritance import depth, too_deep
from laws.names import old_names_in_use, repeated_classes, repeated_modules
from laws.old_names import OldName
from laws.private_names import accesses
from laws.source_code import parse_modules, read_modules

ROWS = """
class Rows:
    def __init__(self): self._codes = 1
    def _check(self): ...
def _private(): ...
"""
PLAIN = {
    "__init__.py": "",
    "_numba.py": "def kernel(): ...\n_cache = {}",
    "errors.py": "",
    "data/__init__.py": "",
    "data/rows.py": ROWS,
    "solvers/__init__.py": "from shortlist.solvers.als import solve",
    "solvers/als.py": "def solve(): ...",
    "storage/__init__.py": "",
    "cli/__init__.py": "",
    "cli/app.py": "",
}


def planted(files):
    """Return the plain package with some of its files replaced."""
    return parse_modules(PLAIN | files)


def uses(files):
    """The uses of private names as (module, name, across)."""
    return {(use.module.removeprefix("shortlist."), use.name, use.across) for use in accesses(planted(files))}


def test_the_plain_package_breaks_no_law():
    modules = planted({})
    assert imports_from_below(modules) == set()
    assert cycles(runtime_edges(modules)) == []
    assert accesses(modules) == set()
    assert repeated_modules(modules) == repeated_classes(modules) == {}


def test_files_are_read_from_a_folder(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "__init__.py").touch()
    (tmp_path / "cli.py").touch()
    (tmp_path / "data" / "rows.py").write_text("import shortlist.cli")
    assert imports_from_below(read_modules(tmp_path)) == {("shortlist.data.rows", "shortlist.cli")}


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("from shortlist.cli.app import main", "top"),
        ("from shortlist.cli import app", "top"),
        ("import shortlist.cli.app", "top"),
        ("import shortlist.cli.app as app", "top"),
        ("from ..cli import app", "top"),
        ("from ..cli.app import main", "top"),
        ("try:\n    import shortlist.cli.app\nexcept ImportError: ...", "top"),
        ("class Rows:\n    import shortlist.cli.app", "top"),
        ("def read():\n    from shortlist.cli.app import main", "lazy"),
        ("class Rows:\n    def read(self):\n        import shortlist.cli.app", "lazy"),
        ("import_module('shortlist.cli.app')", "string"),
        ("REGISTRY = {'IALS': 'shortlist.cli.app'}", "string"),
        ("HOME = 'shortlist.cli.app:main'", "string"),
        ("HOME = 'shortlist.cli.app.main'", "string"),
        ("import_module(f'shortlist.cli.{name}')", "string"),
        ("import_module('..cli.app', __package__)", "string"),
        ("import_module('.app', 'shortlist.cli')", "string"),
        ("if TYPE_CHECKING:\n    from shortlist.cli.app import App", "type"),
        ("if typing.TYPE_CHECKING:\n    from shortlist.cli.app import App", "type"),
    ],
)
def test_imports_from_below(source, kind):
    modules = planted({"data/rows.py": source})
    assert ("shortlist.data.rows", "shortlist.cli.app") in imports_from_below(modules)
    kinds = {each.kind for each in imports(modules) if each.edge == ("shortlist.data.rows", "shortlist.cli.app")}
    assert kinds == {kind}


@pytest.mark.parametrize(
    "source", ["import shortlist as sl", "from shortlist import IALS", "import_module('shortlist')"]
)
def test_the_root_is_imported_by_nobody(source):
    assert imports_from_below(planted({"data/rows.py": source})) == {("shortlist.data.rows", "shortlist")}


@pytest.mark.parametrize(
    "source",
    [
        "from shortlist import _numba, errors",
        "import numpy as np\nfrom os import path",
        '"""See shortlist.cli.app."""',
        "def read():\n    'shortlist.cli.app'",
        "'pass it to shortlist.cli.app, please'",
        "APP = 'shortlist'",
    ],
)
def test_what_is_no_import_from_below(source):
    assert imports_from_below(planted({"data/rows.py": source})) == set()
    assert imports_from_below(planted({"__init__.py": "HOME = {'app': 'shortlist.cli.app'}"})) == set()


def test_a_package_without_a_place_in_the_order():
    assert unknown_packages(planted({"extras/rows.py": ""})) == {"extras"}


@pytest.mark.parametrize(
    "lazy", ["def save():\n    import shortlist.solvers.als", "def save():\n    import_module('shortlist.solvers.als')"]
)
def test_cycles(lazy):
    modules = planted({"solvers/als.py": "import shortlist.storage.files", "storage/files.py": lazy})
    edges = runtime_edges(modules)
    cycle = {"shortlist.solvers.als", "shortlist.storage.files"}
    assert cycles(edges) == [frozenset(cycle)]
    assert cycles(package_edges(edges)) == [frozenset({"solvers", "storage"})]
    removed = edges_to_remove(edges, imports_from_below(modules))
    assert removed == {("shortlist.solvers.als", "shortlist.storage.files")}
    assert needless(removed, edges) == set()
    assert needless({("a", "b"), *removed}, edges) == {("a", "b")}
    assert cycle_complaints("cycles", set(), edges, "Move it.") == [
        "new cycle among shortlist.solvers.als, shortlist.storage.files: "
        "break it at shortlist.solvers.als → shortlist.storage.files. Move it."
    ]
    assert cycle_complaints("cycles", removed, edges, "") == []
    assert cycle_complaints("cycles", {("a", "b")}, set(), "") == [
        "no longer true: a → b closes a cycle. Remove the line 'a b' from exceptions/cycles.txt."
    ]


def test_cycles_within_a_package_and_through_its_init():
    modules = planted({"solvers/als.py": "def solve():\n    from shortlist.solvers import als, solve"})
    assert cycles(runtime_edges(modules)) == [frozenset({"shortlist.solvers", "shortlist.solvers.als"})]


def test_type_only_imports_close_no_cycle():
    typed = "if TYPE_CHECKING:\n    import shortlist.solvers.als"
    assert cycles(runtime_edges(planted({"solvers/als.py": "import shortlist.data.rows", "data/rows.py": typed}))) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from shortlist.data.rows import _private", "_private"),
        ("from shortlist.data.rows import _private as public", "_private"),
        ("from shortlist.data import rows\nrows._private()", "_private"),
        ("import shortlist.data.rows as r\nr._private()", "_private"),
        ("import shortlist.data.rows\nshortlist.data.rows._private()", "_private"),
        ("def solve(rows): return rows._codes", "_codes"),
        ("def solve(rows): rows._codes = 2", "_codes"),
        ("class A:\n    def solve(self): return self.rows._check()", "_check"),
        ("def solve(rows): return rows()[0]._check()", "_check"),
        ("def solve(rows): return getattr(rows, '_codes')", "_codes"),
        ("from operator import attrgetter\nattrgetter('_codes')", "_codes"),
        ("from shortlist.data.rows import Rows\nclass Mine(Rows):\n    def _check(self): ...", "_check"),
        ("from shortlist.data.rows import Rows\nclass Mine(Rows):\n    def run(self): super()._check()", "_check"),
        ("from shortlist._numba import _cache", "_cache"),
    ],
)
def test_private_names_of_other_packages(source, name):
    assert uses({"solvers/als.py": source}) == {("solvers.als", name, "packages")}


def test_private_names_of_other_modules():
    assert uses({"data/text.py": "from shortlist.data.rows import _private"}) == {("data.text", "_private", "modules")}
    assert uses({"data/text.py": "def f(rows): return rows._codes"}) == {("data.text", "_codes", "modules")}


def test_private_modules_of_other_packages():
    private = {"data/_codes.py": "def encode(): ..."}
    across = {("solvers.als", "_codes", "packages")}
    assert uses(private | {"solvers/als.py": "from shortlist.data._codes import encode"}) == across
    assert uses(private | {"solvers/als.py": "from shortlist.data import _codes"}) == across
    assert uses(private | {"data/text.py": "from shortlist.data import _codes"}) == set()


@pytest.mark.parametrize(
    "source",
    [
        "from shortlist import _numba\n_numba.kernel()",
        "from shortlist._numba import kernel",
        "class A:\n    def __init__(self): self._codes = 1\n    def same(self, b): return self._codes == b._codes",
        "def _check(): ...\n_check()",
        "import os, numpy as np\nos._check(); np.core._private()",
        "def f(row, thing): return row._replace(a=1), thing._asdict(), thing.__dict__, thing._nobody_defines_this",
    ],
)
def test_private_names_that_are_allowed(source):
    assert uses({"solvers/als.py": source}) == set()


def test_hooks_of_a_base_class_in_the_same_package_are_left_to_the_law_of_inheritance():
    hooked = "from shortlist.data.rows import Rows\nclass Mine(Rows):\n    def _check(self): return self._codes"
    assert uses({"data/text.py": hooked}) == set()


def test_too_many_base_classes():
    ours = {"__module__": "shortlist.recommenders.base"}
    recommender = type("Recommender", (), ours)
    family = type("Family", (recommender,), ours)
    allowed = type("Allowed", (family,), ours)
    protocol = type("Ranker", (), ours | {"_is_protocol": True})
    foreign = type("Foreign", (), {"__module__": "shortlisted.base"})
    assert depth(type("WithProtocol", (family, protocol, foreign), ours)) == 3
    deep = type("Deep", (allowed,), ours)
    assert too_deep([recommender, family, allowed, deep]) == {("Deep",): 4}


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("", "module", "rows"),
        ("def f():\n    class Plan: ...", "class", "Plan"),
        ("def judge(): ...", "function", "judge"),
        ("async def judge(): ...", "function", "judge"),
        ("class A:\n    @property\n    def judge(self): ...", "method", "judge"),
        ("a.masses", "attribute", "masses"),
        ("class A:\n    masses: int", "attribute", "masses"),
        ("class A:\n    masses = 1", "attribute", "masses"),
        ("@dataclass(frozen=True)\nclass A:\n    effort: int = 1", "setting", "effort"),
        ("class A:\n    def __init__(self, *, effort=1): ...", "setting", "effort"),
        ("one = 1", "variable", "one"),
        ("a, (one, b) = c", "variable", "one"),
        ("for one in a: ...", "variable", "one"),
        ("[one for one in a]", "variable", "one"),
        ("with a as one: ...", "variable", "one"),
        ("try: ...\nexcept E as one: ...", "variable", "one"),
        ("def f(one): ...", "variable", "one"),
        ("lambda one: 1", "variable", "one"),
        ("def f(*one): ...", "variable", "one"),
        ("(one := 1)", "variable", "one"),
        ("match a:\n    case [one, *_]: ...", "variable", "one"),
    ],
)
def test_old_names(source, kind, name):
    modules = planted({"data/rows.py": source})
    uses = {(kind, name, "shortlist.data.rows"): 1}
    for package in ("*", "data", "data.rows", "shortlist.data"):
        assert old_names_in_use(modules, [OldName(name, kind, package)]) == uses
    for package in ("dat", "solvers", "data.rows.more"):
        assert not old_names_in_use(modules, [OldName(name, kind, package)])
    others = {"module", "class", "function", "method", "setting", "variable"} - {kind, "variable"}
    assert not old_names_in_use(modules, [OldName(name, other) for other in others])


def test_two_of_the_same_name():
    bases = {"data/base.py": "class Plan: ...", "solvers/base.py": "class Plan: ..."}
    modules = planted(bases | {"solvers/rows.py": "", "cli/rows.py": ""})
    assert repeated_modules(modules) == {("module", "rows"): 3}
    assert repeated_classes(modules) == {("class", "Plan"): 2}


def test_lists_may_only_shrink():
    said = {"name": "imports", "sentence": "{0} imports {1}", "advice": "Move it."}
    assert complaints(listed=[("a", "b")], actual=[("a", "b")], **said) == []
    assert complaints(listed=[], actual=[("a", "b")], **said) == ["new violation: a imports b. Move it."]
    assert complaints(listed=[("a", "b")], actual=[], **said) == [
        "no longer true: a imports b. Remove the line 'a b' from exceptions/imports.txt."
    ]


@pytest.mark.parametrize(
    ("limit", "number", "words"),
    [
        (None, 2, "new violation: A has 2; the list has no such line. Split it."),
        (1, 2, "new violation: A has 2; the list has 1. Split it."),
        (3, 2, "better than listed: A has 2. Write 2 instead of 3 in exceptions/depths.txt."),
        (3, None, "better than listed: A has 0. Remove the line 'A 3' from exceptions/depths.txt."),
    ],
)
def test_numbers_may_only_fall(limit, number, words):
    listed, actual = ({("A",): each} if each else {} for each in (limit, number))
    assert count_complaints("depths", listed, actual, "{0} has {number}", "Split it.") == [words]
    assert count_complaints("depths", actual, actual, "{0} has {number}", "Split it.") == []
