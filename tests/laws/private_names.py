"""Which module uses `_private` names of another, told by the names alone: no type is worked out."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from laws.class_tree import ancestors, class_bodies
from laws.import_graph import import_base, imported_modules, imports
from laws.package_order import BASE, package_of
from laws.source_code import Module, Modules

NAMED_TUPLE = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}  # public in spite of their names
SELF = {"self", "cls", "mcs"}
BY_STRING = {
    "getattr",
    "setattr",
    "hasattr",
    "delattr",
    "__getattribute__",
    "__setattr__",
    "attrgetter",
    "methodcaller",
}
DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Name, ast.Attribute, ast.Call, ast.Assign)


@dataclass(frozen=True)
class Access:
    """A module uses a private name of `owners`. `inherited`: a name that its own object has from a base class."""

    module: str
    name: str
    owners: frozenset[str]
    inherited: bool = False

    @property
    def across_packages(self) -> bool:
        return package_of(self.module) not in {package_of(owner) for owner in self.owners}

    @property
    def across(self) -> str:
        return "packages" if self.across_packages else "modules"


def accesses(modules: Modules) -> set[Access]:
    """Return uses of private names that the module does not define, and every inherited hook of another package.

    An attribute `thing._name` belongs to the modules that define a `_name`: as a function, a class, a field, or by
    `self._name = …`. If the module itself does, the use is allowed. If several others do, those that the module imports
    are meant. If nobody does, it is a name of another library and no concern of this law.

    A base class and its subclasses in one package may share hooks. Their depth is a law of its own.
    """
    owners = _Owners(modules)
    uses = {use for module in modules.values() for use in _uses(module, modules, owners)} | _overridden(modules)
    others = {use for use in uses if use.owners and use.module not in use.owners}
    return {use for use in others if use.across_packages or not use.inherited}


def is_private(name: str) -> bool:
    """Whether the name starts with a single underscore."""
    return name.startswith("_") and name != "_" and not name.startswith("__") and name not in NAMED_TUPLE


class _Owners:
    """The modules that a private name can belong to."""

    def __init__(self, modules: Modules) -> None:
        self.definers: dict[str, set[str]] = defaultdict(set)
        for module in modules.values():
            for name in _defined(module):
                self.definers[name].add(module.name)
        self.imported: dict[str, set[str]] = defaultdict(set)
        for each in imports(modules):
            self.imported[each.importer].add(each.imported)

    def access(self, module: Module, name: str, thing: ast.expr) -> Access:
        """Return what `thing._name` in this module is."""
        definers = self.definers[name]
        if _is_self(thing):  # from any base class, imported here or not
            return Access(module.name, name, frozenset(definers), inherited=True)
        known = set(self.imported[module.name])
        known |= {
            below for each in known for below in self.imported[each] if below.startswith(f"{each}.")
        }  # re-exports
        return Access(module.name, name, frozenset({module.name} & definers or known & definers or definers))


def _defined(module: Module) -> set[str]:
    """Return the private names that a module defines."""
    names: set[str] = set()
    for node in module.each(*DEFINING):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store(), value=owner) if _is_self(owner):
                names.add(name)
            case ast.Call(func=ast.Attribute(attr="__setattr__"), args=[_, ast.Constant(value=str(name)), *_]):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=slots):
                names |= {each.value for each in ast.walk(slots) if isinstance(each, ast.Constant)}
    return {name for name in names if is_private(name)}


def _uses(module: Module, modules: Modules, owners: _Owners) -> Iterator[Access]:
    ours, foreign = _imported_names(module, modules)
    for node in module.each(ast.Import, ast.ImportFrom, ast.Attribute, ast.Call):
        match node:
            case ast.ImportFrom(names=names):
                base = import_base(node, module)
                for alias in names:
                    if is_private(alias.name) and base in modules and f"{base}.{alias.name}" not in modules:
                        yield Access(module.name, alias.name, frozenset({base}))
                yield from _private_modules(imported_modules(node, module, modules), module)
            case ast.Import():
                yield from _private_modules(imported_modules(node, module, modules), module)
            case ast.Attribute(attr=name, value=thing) if is_private(name):
                root, _, rest = _dotted(thing).partition(".")
                path = f"{ours.get(root, root)}.{rest}".rstrip(".")
                if path in modules and f"{path}.{name}" not in modules:
                    yield Access(module.name, name, frozenset({path}))
                elif path not in modules and root not in foreign:
                    yield owners.access(module, name, thing)
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=args) if called in BY_STRING:
                for argument in args[:2]:
                    match argument:
                        case ast.Constant(value=str(name)) if is_private(name):
                            yield owners.access(module, name, args[0])


def _overridden(modules: Modules) -> set[Access]:
    """Return the private names that a class and one of its base classes in another module both define."""
    bodies = class_bodies(modules)
    return {
        Access(module, name, frozenset({base_module}), inherited=True)
        for module, kind in bodies
        for base_module, base in ancestors((module, kind), modules)
        for name in _in_class(bodies[module, kind]) & _in_class(bodies[base_module, base])
    }


def _in_class(node: ast.ClassDef) -> set[str]:
    """Return the private methods and class attributes."""
    names = set()
    for each in node.body:
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if is_private(name)}


def _private_modules(paths: Iterable[str], module: Module) -> Iterator[Access]:
    """Yield the imports of other packages' private modules; those at the top of the package are for everybody."""
    for path in paths:
        private = [part for part in path.split(".")[2:] if is_private(part)]
        if private and package_of(path) not in {BASE, package_of(module.name)}:
            yield Access(module.name, private[0], frozenset({path}))


def _imported_names(module: Module, modules: Modules) -> tuple[dict[str, str], set[str]]:
    """Return the local names of our modules with their full paths, and the names that come from other libraries."""
    ours: dict[str, str] = {}
    foreign: set[str] = set()
    for node in module.each(ast.Import, ast.ImportFrom):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    if top not in modules:
                        foreign.add(alias.asname or top)
                    else:
                        ours[alias.asname or top] = alias.name if alias.asname else top
            case ast.ImportFrom(names=names):
                base = import_base(node, module)
                for alias in names:
                    if base.partition(".")[0] not in modules:
                        foreign.add(alias.asname or alias.name)
                    elif f"{base}.{alias.name}" in modules:
                        ours[alias.asname or alias.name] = f"{base}.{alias.name}"
    return ours, foreign


def _is_self(node: ast.expr) -> bool:
    """Whether this is `self`, `cls`, `super()`, `type(self)` or `self.__class__`."""
    match node:
        case ast.Name(id=name):
            return name in SELF
        case ast.Call(func=ast.Name(id="super")):
            return True
        case ast.Call(func=ast.Name(id="type"), args=[argument]):
            return _is_self(argument)
        case ast.Attribute(attr="__class__", value=thing):
            return _is_self(thing)
    return False


def _dotted(node: ast.expr) -> str:
    """Return `a.b.c` for that expression; what is not a plain chain of names begins with a dot or is empty."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""
