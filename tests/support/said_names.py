"""Names that the text of the source speaks of: `upkeep.reaper`, `Engine.commit`, `listen.allow`.

A name between back-ticks with a dot in it leads somewhere, or the reader is led astray: to a module
(by the end of its address, as `load.placing`), to what stands in one, to a member of a class, to a
key of the configuration, or to what the module itself writes in its code.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from tests.support.architecture import PACKAGES, ROOT, Module
from tests.support.house import House

NAME = re.compile(r"(?<!`)`{1,2}([A-Za-z_]\w*(?:\.\w+)+)(?:\([^`]*\))?`")
FILES = re.compile(
    r"\.(?:begun|bin|cross|end|html|inner|json|log|md|mods2?|parquet|resource|stage|state|toml|tsfile|txt)\Z"
)
PATHS = frozenset({"a", "root"})
"""First nodes of the paths that stand for series and devices."""
ELSEWHERE = frozenset({
    "Math", "PartialPath", "SchemaUtils", "jdk", "org",  # Java
    "file",  # `file.metadata`, a package of Apache TsFile
    "df", "msgspec", "pyspark", "spark",
    "Event",  # of threading
})  # fmt: skip
"""First parts of names that others gave."""


class SaidNames:
    """What names can mean in a house."""

    def __init__(self, house: House, keys: frozenset[str] = frozenset()) -> None:
        self._modules = house.modules
        self._keys = keys

    def leading_nowhere(self) -> list[str]:
        """Names in docstrings that mean nothing."""
        return [
            f"{name}:{line}: {said}"
            for name, module in self._modules.items()
            for line, text in docstrings(module)
            for said in NAME.findall(text)
            if not self.means_something(said, module)
        ]

    def means_something(self, said: str, module: Module | None = None) -> bool:
        """Whether a name leads somewhere, said in a module or on a page."""
        parts = said.split(".")
        return (
            FILES.search(said) is not None
            or parts[0] in PATHS | ELSEWHERE
            or said in self._keys
            or self._is_in_a_module(parts)
            or self._is_member(parts[0], parts[1:])
            or (module is not None and (parts[0] in _foreign(module) or said in _chains(module)))
        )

    def _is_in_a_module(self, parts: Sequence[str]) -> bool:
        return any(
            self._is_in(self._modules[name], parts[length:])
            for length in range(len(parts), 0, -1)
            for name in self._by_end.get(".".join(parts[:length]), ())
        )

    def _is_in(self, module: Module, parts: Sequence[str]) -> bool:
        if not parts:
            return True
        if parts[0] not in _bound(module.tree.body):
            return False
        return len(parts) == 1 or self._is_member(parts[0], parts[1:])

    def _is_member(self, cls: str, parts: Sequence[str]) -> bool:
        return len(parts) == 1 and any(
            parts[0] in _members(node) or any(self._is_member(base, parts) for base in _bases(node))
            for node in self._classes.get(cls, ())
        )

    @cached_property
    def _by_end(self) -> Mapping[str, list[str]]:
        """Each end of an address -> the modules that have it."""
        found = defaultdict(list)
        for name in self._modules:
            parts = name.split(".")
            for at in range(len(parts)):
                found[".".join(parts[at:])].append(name)
        return found

    @cached_property
    def _classes(self) -> Mapping[str, list[ast.ClassDef]]:
        found = defaultdict(list)
        for module in self._modules.values():
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(node)
        return found


def docstrings(module: Module) -> Iterator[tuple[int, str]]:
    """Lines and texts of what stands by itself as a text: behind attributes, too."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def keys_of_the_configuration() -> frozenset[str]:
    """`section.key` of all that the examples of `conf/` have, commented out or not."""
    found = set()
    for path in (ROOT / "conf").glob("*.toml"):
        section = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if head := re.match(r"#? ?\[\[?([\w.]+)\]", line):
                section = head[1]
            elif key := re.match(r"#? ?(\w+) = ", line):
                found.add(f"{section}.{key[1]}")
    return frozenset(found)


def _foreign(module: Module) -> set[str]:
    """Names that a module imports from other packages."""
    return {
        alias.asname or alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).split(".")[0] not in PACKAGES
    }


def _chains(module: Module) -> set[str]:
    """Every end of every attribute that a module reads: `a.b.c` gives `a.b.c` and `b.c`."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            parts = ast.unparse(node).split(".")
            found.update(".".join(parts[at:]) for at in range(len(parts) - 1))
    return found


def _bound(body: Sequence[ast.stmt]) -> set[str]:
    """Names that statements bind, beneath an `if` as well."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found.update(each.asname or each.name for each in node.names)
        elif isinstance(node, ast.If):
            found |= _bound(node.body)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(
                each.id
                for target in targets
                for each in ast.walk(target)
                if isinstance(each, ast.Name)
            )
    return found


def _members(node: ast.ClassDef) -> set[str]:
    """What a class binds, and the attributes that its methods set."""
    return _bound(node.body) | {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    }


def _bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(each).split("[")[0].split(".")[-1] for each in node.bases]
