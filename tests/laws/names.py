"""Which modules, classes, functions and variables there are, by the names that they have."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable

from laws.old_names import OldName
from laws.source_code import PACKAGE, Module, Modules

NAMING = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Attribute, ast.Name, ast.arg, ast.ExceptHandler),
    *(ast.MatchAs, ast.MatchStar, ast.MatchMapping),
)
MAY_REPEAT = {"__init__", "__main__", "base"}  # file names that every package may have


def old_names_in_use(modules: Modules, table: Iterable[OldName]) -> Counter[tuple[str, ...]]:
    """Count the uses of old names by (kind, name, module)."""
    table = list(table)
    counts: Counter[tuple[str, ...]] = Counter()
    for module in modules.values():
        names = names_in(module)
        for old in table:
            if _within(module.name, old.package) and (number := names[old.kind, old.name]):
                counts[old.kind, old.name, module.name] = number
    return counts


def names_in(module: Module) -> Counter[tuple[str, str]]:
    """Count the names of a module by (kind, name), the kinds being those of `OldName`."""
    names = Counter([("module", module.name.rpartition(".")[2])])
    in_classes: set[ast.AST] = set()  # methods, and the names that class attributes are assigned to
    for kind in module.each(ast.ClassDef):
        names["class", kind.name] += 1
        in_classes |= _count_class(kind, names)
    for node in module.each(*NAMING):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names["method" if node in in_classes else "function", name] += 1
            case ast.Attribute(attr=name):
                names["attribute", name] += 1
            case ast.Name(id=name, ctx=ast.Store()) if node not in in_classes:
                names["variable", name] += 1
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                names["variable", name] += 1
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                names["variable", name] += 1
    return names


def repeated_modules(modules: Modules) -> dict[tuple[str, ...], int]:
    """Return the file names that several modules have, and how many."""
    stems = Counter(module.stem for module in modules.values())
    return {("module", stem): number for stem, number in stems.items() if number > 1 and stem not in MAY_REPEAT}


def repeated_classes(modules: Modules) -> dict[tuple[str, ...], int]:
    """Return the names that several classes at the top of modules have, and how many."""
    names = Counter(
        node.name for module in modules.values() for node in module.tree.body if isinstance(node, ast.ClassDef)
    )
    return {("class", name): number for name, number in names.items() if number > 1}


def _within(module: str, package: str) -> bool:
    return package == "*" or f"{module}.".startswith(f"{PACKAGE}.{package.removeprefix(f'{PACKAGE}.')}.")


def _count_class(kind: ast.ClassDef, names: Counter[tuple[str, str]]) -> set[ast.AST]:
    """Count fields and settings of a class; return its methods and the names that it assigns to."""
    is_dataclass = any("dataclass" in ast.unparse(decorator) for decorator in kind.decorator_list)
    members: set[ast.AST] = set()
    for node in kind.body:
        match node:
            case ast.FunctionDef(name=name, args=arguments) | ast.AsyncFunctionDef(name=name, args=arguments):
                members.add(node)
                if name == "__init__":
                    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                    names.update(("setting", each.arg) for each in given if each.arg != "self")
            case ast.AnnAssign(target=ast.Name(id=name)):
                members.add(node.target)
                names["attribute", name] += 1
                names["setting", name] += is_dataclass
            case ast.Assign(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Name):
                        members.add(target)
                        names["attribute", target.id] += 1
    return members
