"""Which module imports which: at the top, inside functions, for types only, and by module paths in strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from laws.cycles import Edge
from laws.package_order import PACKAGES, package_of
from laws.source_code import PACKAGE, WHERE, Module, Modules

Kind = Literal["top", "lazy", "string", "type"]

MODULE_PATH = re.compile(rf"{PACKAGE}(\.\w+)+\.?(:\w+)?")  # the dot at the end: f"shortlist.solvers.{{name}}"
IMPORTERS = {"import_module", "__import__", "find_spec"}


@dataclass(frozen=True)
class Import:
    """One import of one of our modules by another.

    `kind` is `top` (when the module is loaded), `lazy` (inside a function), `string` (a path in a string) or `type`
    (under `if TYPE_CHECKING`).
    """

    importer: str
    imported: str
    kind: Kind
    line: int

    @property
    def edge(self) -> Edge:
        return self.importer, self.imported


def imports(modules: Modules) -> list[Import]:
    """Return every import among these modules.

    Loading `a.b` also loads the package `a`. That is not counted: it would put every module that its package re-exports
    into a cycle.
    """
    return [each for module in modules.values() for each in _Reader(module, modules).read()]


def runtime_edges(modules: Modules) -> set[Edge]:
    """Return importer and imported module of every import that runs; those of the root are left out."""
    return {each.edge for each in imports(modules) if each.kind != "type" and package_of(each.importer) != PACKAGE}


def imports_from_below(modules: Modules) -> set[Edge]:
    """Return the imports, type-only ones included, of a module whose package comes later in the order."""
    place = {package: number for number, package in enumerate(PACKAGES)}
    edges = {each.edge for each in imports(modules)}
    last = len(PACKAGES)  # of a package without a place
    return {edge for edge in edges if place.get(package_of(edge[0]), last) < place.get(package_of(edge[1]), last)}


def unknown_packages(modules: Modules) -> set[str]:
    """Return the packages that have no place in the order."""
    return {package_of(name) for name in modules} - set(PACKAGES)


def package_edges(edges: Iterable[Edge]) -> set[Edge]:
    """Return the same edges between packages."""
    return {(a, b) for a, b in ((package_of(a), package_of(b)) for a, b in edges) if a != b}


class _Reader:
    """Reads the imports of one module."""

    def __init__(self, module: Module, modules: Modules) -> None:
        self.module, self.modules = module, modules

    def read(self) -> list[Import]:
        edges: list[Import] = []
        for where in WHERE:
            for node in (*self.module.nodes[ast.Import, where], *self.module.nodes[ast.ImportFrom, where]):
                edges += self._edges(imported_modules(node, self.module, self.modules), where, node.lineno)
        for call in self.module.each(ast.Call):
            if _called(call) in IMPORTERS:
                edges += self._edges(self._passed(call), "string", call.lineno)
        for constant in self.module.each(ast.Constant):
            if isinstance(constant.value, str) and MODULE_PATH.fullmatch(constant.value):
                edges += self._edges(self._named_by(constant.value), "string", constant.lineno)
        return sorted(set(edges), key=lambda each: (each.line, each.imported, each.kind))

    def _edges(self, imported: Iterable[str], kind: Kind, line: int) -> Iterator[Import]:
        for name in imported:
            if name != self.module.name:
                yield Import(self.module.name, name, kind, line)

    def _passed(self, call: ast.Call) -> Iterator[str]:
        """Return the modules that an `import_module` gets as the root's name or as a relative path."""
        match call.args[:1]:
            case [ast.Constant(value=str(text))] if text == PACKAGE:
                yield PACKAGE
            case [ast.Constant(value=str(text)) | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])] if (
                text.startswith(".")
            ):
                anchor = call.args[1] if len(call.args) > 1 else next((each.value for each in call.keywords), None)
                package = anchor.value if isinstance(anchor, ast.Constant) else self.module.package
                dots = len(text) - len(text.lstrip("."))
                yield from self._named_by(f"{_ancestor(str(package), dots - 1)}.{text.lstrip('.')}")

    def _named_by(self, text: str) -> list[str]:
        """Return the modules that a path may name.

        `shortlist.data.sparse_rows:SparseRows` names `shortlist.data.sparse_rows`. The beginning of an f-string,
        `shortlist.solvers.`, may name every module of that package.
        """
        if text.endswith("."):
            return [name for name in self.modules if name.startswith(text) and "." not in name.removeprefix(text)]
        name = text.replace(":", ".")
        while name not in self.modules and name:
            name = name.rpartition(".")[0]
        return [name] if "." in name else []


def imported_modules(node: ast.Import | ast.ImportFrom, module: Module, modules: Modules) -> set[str]:
    """Return the modules of ours that one import statement names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & modules.keys()
    base = import_base(node, module)
    named = {f"{base}.{alias.name}" for alias in node.names}
    submodules = named & modules.keys()
    return submodules | ({base} if base in modules and len(submodules) < len(named) else set())


def import_base(node: ast.ImportFrom, module: Module) -> str:
    """Return the full path that stands between `from` and `import`."""
    if not node.level:
        return node.module or ""
    parent = _ancestor(module.package, node.level - 1)
    return f"{parent}.{node.module}" if node.module else parent


def _ancestor(package: str, steps: int) -> str:
    return package.rsplit(".", steps)[0] if steps else package


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
