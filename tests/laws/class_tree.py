"""The classes of a package and their base classes, worked out from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from laws.import_graph import import_base
from laws.source_code import Modules

ClassName = tuple[str, str]  # module and name of a class at the top of a module


def class_bodies(modules: Modules) -> dict[ClassName, ast.ClassDef]:
    """Return the classes at the top of modules."""
    return {
        (module.name, node.name): node
        for module in modules.values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    }


def ancestors(kind: ClassName, modules: Modules) -> Iterator[ClassName]:
    """Yield the base classes of ours, and theirs. Those that are named as `module.Class` are not followed."""
    for node in modules[kind[0]].tree.body:
        if isinstance(node, ast.ClassDef) and node.name == kind[1]:
            names = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            for base in (_home(kind[0], name.id, modules) for name in names if isinstance(name, ast.Name)):
                if base is not None and base != kind:
                    yield base
                    yield from ancestors(base, modules)


def _home(module: str, name: str, modules: Modules) -> ClassName | None:
    """Return the class that a module knows by this name, be it imported through a package."""
    for node in modules[module].tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, name
        if isinstance(node, ast.ImportFrom) and (base := import_base(node, modules[module])) in modules:
            for alias in node.names:
                if name == (alias.asname or alias.name) and base != module:
                    return _home(base, alias.name, modules)
    return None
