"""The modules of a package as syntax trees, read without importing them."""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

Where = Literal["top", "lazy", "type"]  # run at import, inside a function, under `if TYPE_CHECKING`
WHERE: tuple[Where, ...] = get_args(Where)
PACKAGE = "shortlist"
ROOT = Path(__file__).parents[2] / "src" / PACKAGE


@dataclass(frozen=True)
class Module:
    """One file of Python: `name` is `shortlist.data.sparse_rows`; `__init__` has its package's name."""

    name: str
    path: str
    tree: ast.Module
    nodes: Mapping[tuple[type[ast.AST], Where], list[ast.AST]]  # without docstrings

    def each(self, *types: type[ast.AST]) -> list[ast.AST]:
        """Return every node of these types."""
        return [node for kind in types for where in WHERE for node in self.nodes[kind, where]]

    @property
    def is_package(self) -> bool:
        return self.stem == "__init__"

    @property
    def stem(self) -> str:
        """The file's name without `.py`."""
        return PurePosixPath(self.path).stem

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


Modules = Mapping[str, Module]


def parse_modules(files: Mapping[str, str]) -> dict[str, Module]:
    """Parse files given as relative path → source text, such as `{"data/sparse_rows.py": "import numpy"}`."""
    modules = {}
    for path, text in sorted(files.items()):
        parts = PurePosixPath(path).with_suffix("").parts
        name = ".".join([PACKAGE, *(part for part in parts if part != "__init__")])
        tree = ast.parse(text, path)
        modules[name] = Module(name, path, tree, _nodes(tree))
    return modules


def read_modules(root: Path) -> dict[str, Module]:
    """Parse every `.py` file below `root`."""
    gc.disable()  # it would take most of the time: there are very many nodes, and none of them is garbage
    try:
        return parse_modules({path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*.py")})
    finally:
        gc.enable()


def _nodes(tree: ast.Module) -> dict[tuple[type[ast.AST], Where], list[ast.AST]]:
    """Return every node of the tree by its type and by where it is; docstrings are left out."""
    nodes: dict[tuple[type[ast.AST], Where], list[ast.AST]] = defaultdict(list)
    waiting: list[tuple[ast.AST, Where]] = [(tree, "top")]
    while waiting:
        node, where = waiting.pop()
        nodes[type(node), where].append(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            waiting += [(child, "type") for child in node.body] + [(child, where) for child in node.orelse]
            continue
        if where == "top" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            where = "lazy"
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                waiting += [(child, where) for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST) and field != "ctx":
                waiting.append((value, where))
    return nodes


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
