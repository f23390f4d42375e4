"""Rules of the whole: rooms and their order, circles, names that nobody uses, names used twice.

`tests.support.architecture` judges a module by itself; what is here looks at all of them together.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tests.support.architecture import ROOT, Module, modules

# -- the rooms -----------------------------------------------------------------------------------

ROOMS: dict[str, tuple[str, ...]] = {
    "": ("receiver", "sender", "common"),
    "sender": (
        "cli", "daemon", "metrics", "hooks", "round", "schema", "send", "plan", "kept", "select",
        "config",
    ),
    "receiver": (
        "cli", "storagenode", "web", "metrics", "node", "hooks", "exporting", "spark", "follower",
        "executor", "operator", "transfer", "compaction", "placement", "load",
        "shared_points", "row_checks",
        "superseding", "storage", "open_engine", "eviction_place",
        "datadirs", "principal", "background",
        "tablet_copies", "heartbeats", "txn",
        "metadata", "writing", "points", "config", "scope",
    ),
    "receiver.metadata": (
        "sql", "query", "kv", "repair", "following_engine", "engine", "answering_engine",
        "engine_upkeep", "checkpointing", "commit", "log", "state", "schema", "text", "etcd",
        "clock", "model",
    ),
    "receiver.load": (
        "service", "loader", "folder_recovery", "loading", "mandate", "collecting",
        "merge_verdicts", "upkeep", "moving", "merged_files", "placing", "deciding",
        "tail_facts", "schema", "incoming_space", "folder",
    ),
    "receiver.spark": (
        "backlog", "verify", "report", "source", "sink", "value_types", "option_values",
        "late_uploads", "catalogue_opening", "remote_catalogue", "local_catalogue", "catalogue",
        "standing_in", "finder", "noted_deletions", "worker_garbage", "work",
    ),
}  # fmt: skip
"""Package -> its rooms, from the top floor down. A room imports those below it, never one above.

A room is a folder or, where it fills one, a module. Rooms that do not know each other stand in any
order.
"""

API = frozenset({
    # A store is used by who embeds an engine; nothing of tsferry does.
    "SnapshotKV.save", "SnapshotKV.multi_save", "open_kv",
    # Keys are written over no wire, but by who embeds an engine.
    "TxnKeys.save",
    "arm",  # tests put their hook there
    # What others call by name: prompt_toolkit, lark, numba, pyarrow, pyspark, waitress.
    "SchemaCompleter.get_completions", "Words.lex",
    "_Locator.get_cache_path", "_Locator.get_source_stamp", "_Locator.get_disambiguator",
    "_Locator.from_function", "_Sink.seekable",
    "TsFileSource.streamReader", "TsFileBatchWriter.abort",
    "TsFileStreamReader.initialOffset", "TsFileStreamReader.latestOffset",
    "TsFileStreamReader.getDefaultReadLimit", "TsFileStreamReader.reportLatestOffset",
    "TsFileStreamReader.prepareForTriggerAvailableNow",
    "Channel.parser_class", "Server.pull_trigger", "WholeBody.getfile",
    # And http.server.
    "_Handler.do_GET", "_Handler.log_message", "_PortServer.server_bind",
    "_PortServer.handle_error",
})  # fmt: skip
"""Public names whose users are not in the source."""


@dataclass(frozen=True)
class House:
    """All modules of the source, and what each takes from which."""

    modules: Mapping[str, Module]

    @classmethod
    def of(cls, found: Iterable[Module]) -> House:
        return cls({module.name: module for module in found})

    @classmethod
    def as_it_stands(cls) -> House:
        return cls.of(modules())

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """Module -> the modules that it imports, for types only as well."""
        return {name: set(self._imports(module)) for name, module in self.modules.items()}

    def _imports(self, module: Module) -> Iterator[str]:
        for node in module.nodes:
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names if each.name in self.modules)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for each in node.names:
                    full = f"{node.module}.{each.name}"
                    target = full if full in self.modules else node.module
                    if target in self.modules and target != module.name:
                        yield target


def circles(arrows: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan), the members of each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in arrows.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return sorted(found)


def room_of(name: str, package: str) -> str | None:
    """The room of a package that a module is in; None outside of it."""
    prefix = f"{package}." if package else ""
    if not name.startswith(prefix):
        return None
    return name[len(prefix) :].split(".")[0]


def room_arrows(house: House, package: str) -> dict[str, dict[str, list[str]]]:
    """Room -> room that it imports -> the arrows between their modules, in words."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, targets in house.arrows.items():
        here = room_of(name, package)
        for target in targets:
            there = room_of(target, package)
            if here is not None and there is not None and here != there:
                found[here][there].append(f"{name} -> {target}")
    return found


def against_the_order(house: House, rooms: Mapping[str, tuple[str, ...]] = ROOMS) -> list[str]:
    """Imports of a room above, and rooms that stand on no floor or on one that is not there."""
    said = []
    for package, order in rooms.items():
        floor = {room: number for number, room in enumerate(order)}
        there = {room_of(name, package) for name in house.modules} - {None, ""}
        said += [
            f"{package or 'the top'}: {room} is no floor" for room in sorted(there - set(floor))
        ]
        said += [
            f"{package or 'the top'}: {room} is not there" for room in sorted(set(floor) - there)
        ]
        for here, targets in room_arrows(house, package).items():
            for target, arrows in targets.items():
                if here in floor and target in floor and floor[here] > floor[target]:
                    said += [f"{package}: {arrow} runs up" for arrow in arrows]
    return said


# -- names ---------------------------------------------------------------------------------------

GRAMMARS = ("receiver/metadata/sql/grammar.lark",)
"""A rule of a grammar is called by its name."""
TEMPLATES = "receiver/web/ui/templates/*.html"
"""What a page shows is asked for by its name."""

FRAMEWORKS = {"command", "group", "errorhandler", "call", "page", "form", "app_errorhandler"}
"""Decorators that hand a function to somebody who calls it."""


ONE_EACH: dict[str, tuple[str, ...]] = {
    # Each program has its own of what `common.console.cli` and `common.config` ask of all of them.
    "ENV_PREFIX": ("sender.config", "receiver.config"),
    "FILE": ("sender.config", "receiver.config"),
    "NAME": ("sender.cli", "receiver.cli", "receiver.spark.verify"),
    "PROGRAM": ("sender.cli.program", "receiver.cli.commands", "receiver.spark.verify"),
    # A row of calls, and a table of decoders, are put together of those of the modules.
    "ROUTES": ("receiver.web",),
    "DECODERS": ("receiver.points.encodings",),
}  # fmt: skip
"""Constants of which several modules have one each: where (modules, or the package of them all)."""

VARIABLES = {"TypeVar", "ParamSpec", "TypeVarTuple"}
"""What makes a type that has no meaning outside of a signature."""


def names_twice(house: House, one_each: Mapping[str, tuple[str, ...]] = ONE_EACH) -> list[str]:
    """Public classes, aliases of types and constants of one name in several modules.

    Args:
        house: all modules.
        one_each: names that several modules may have, and which.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for name, module in house.modules.items():
        for each in {*_named(module)}:
            found[each].append(name)
    return [
        f"{each}: {', '.join(where)}"
        for each, where in sorted(found.items())
        if len(where) > 1
        and not all(_is_within(module, one_each.get(each, ())) for module in where)
    ]


def _is_within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def _named(module: Module) -> Iterator[str]:
    """Public names with a capital that a module gives to what is its own."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names = [] if _makes_a_variable(node.value) else list(_targets(node))
        else:  # `type X = ...`, which is read by Python 3.12 and later
            names = [ast.unparse(node.name)] if type(node).__name__ == "TypeAlias" else []
        yield from (name for name in names if name[0].isupper())


def _targets(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    """Names that an assignment gives, those of `A, B = ...` too."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _makes_a_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in VARIABLES


SUBJECTS = frozenset({
    "background_tasks", "batch", "clock", "compact", "daemon", "deletes", "files", "fsck", "init",
    "hooks",
    "metrics",
    "listed", "lost", "owners", "quarantine",
    "retired", "schema", "senders", "series", "sql", "status", "storage", "sync", "tasks", "tree",
    "ttl",
})  # fmt: skip
"""Modules of one name on several floors, about one thing: its table, its calls, its command."""
ON_EACH_SIDE = frozenset({
    "__main__", "cli", "commands", "config", "errors", "node_calls", "wire",
})  # fmt: skip
"""Names that each program, or each room that needs one, has for the same thing of its own."""


def modules_of_one_name(
    house: House, shared: frozenset[str] = SUBJECTS | ON_EACH_SIDE
) -> list[str]:
    """Modules and packages that are called the same and are not about the same.

    A module that bears the name of its package is the heart of it, and is no second thing.

    Args:
        house: all modules.
        shared: names that several may have.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for name in house.modules:
        package, _, own = name.rpartition(".")
        if own != package.rpartition(".")[2]:
            found[own].append(name)
    return [
        f"{each}: {', '.join(sorted(where))}"
        for each, where in sorted(found.items())
        if len(where) > 1 and each not in shared
    ]


FACES = frozenset({"receiver.spark.source.pyspark_tsfile"})
"""Modules whose only work is to hand on a name, as packages may do too."""


def handed_on(house: House, packages: Iterable[str] = ()) -> list[str]:
    """Names with two addresses: in `__all__` of a module that only imports them.

    Args:
        house: all modules.
        packages: modules that may.
    """
    said = []
    for name, module in house.modules.items():
        imported = {
            each.asname or each.name
            for node in module.tree.body
            if isinstance(node, ast.ImportFrom)
            for each in node.names
        }
        if name not in packages:
            said += [f"{name}: {each}" for each in _listed(module) if each in imported]
    return said


def not_offered(house: House) -> list[str]:
    """Names that a module of another package imports, and that are not in `__all__`.

    Within a package modules may take from each other what they like.
    """
    offered = {name: set(_listed(module)) for name, module in house.modules.items()}
    said: set[str] = set()
    for name, module in house.modules.items():
        for node in module.nodes:
            if not isinstance(node, ast.ImportFrom) or node.module not in house.modules:
                continue
            if name.rpartition(".")[0] == node.module.rpartition(".")[0]:
                continue
            said |= {
                f"{node.module}: {each.name}"
                for each in node.names
                if f"{node.module}.{each.name}" not in house.modules
                and each.name not in offered[node.module] | {"__version__"}
                and not node.module.startswith(f"{name}.")  # a package that names its parts
            }
    return sorted(said)


def _listed(module: Module) -> Iterator[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and _is_all(node):
            for each in ast.walk(node.value):
                if isinstance(each, ast.Constant):
                    yield each.value


def unused_names(house: House, elsewhere: Iterable[str] = ()) -> list[str]:
    """Public functions, classes, methods and constants that nothing in the source uses.

    Told by the name alone: one use of an attribute of this name anywhere is a use. `__all__` and a
    mere import are none.

    Args:
        house: all modules.
        elsewhere: names that are used by what is no module: grammars, frameworks, an API's users.
    """
    used = set(elsewhere).union(*map(_names_used, house.modules.values()))
    return [
        f"{name}:{line}: {what}"
        for name, module in house.modules.items()
        for line, what in _defined(module)
        if what.rsplit(".", 1)[-1] not in used and what not in used
    ]


def names_of_grammars() -> set[str]:
    """Every word of the grammars, and of what templates compute."""
    found = set()
    for path in GRAMMARS:
        found |= set(re.findall(r"[a-z_]+", (ROOT / path).read_text(encoding="utf-8")))
    for template in ROOT.glob(TEMPLATES):
        for code in re.findall(r"\{[{%].*?[%}]\}", template.read_text(encoding="utf-8")):
            found |= set(re.findall(r"[a-z_]+", code))
    return found


def _names_used(module: Module) -> set[str]:
    """Identifiers that are read, called, handed as keywords, or written as a text of their own."""
    found: set[str] = set()
    for top in module.tree.body:
        if _is_all(top):
            continue
        for node in ast.walk(top):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
            elif isinstance(node, ast.alias) and node.asname:
                found.add(node.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
    )


def _defined(module: Module) -> Iterator[tuple[int, str]]:
    """Line and name of what a module defines for others; members as `Class.member`."""
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not _is_for_a_framework(node):
            yield from _public(node, "")
            for each in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(each, ast.FunctionDef) and not _is_for_a_framework(each):
                    yield from _public(each, f"{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and not target.id.startswith("_"):
                    yield node.lineno, target.id


def _public(node: ast.FunctionDef | ast.ClassDef, before: str) -> Iterator[tuple[int, str]]:
    if not node.name.startswith("_"):
        yield node.lineno, f"{before}{node.name}"


def _is_for_a_framework(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return any(
        isinstance(each, ast.Call) and ast.unparse(each.func).split(".")[-1] in FRAMEWORKS
        for each in node.decorator_list
    )


# -- the page ------------------------------------------------------------------------------------

BEGIN = "<!-- rooms: made by python -m tests.support.house -->"
END = "<!-- end of rooms -->"


def table(house: House) -> str:
    """The rooms as the page shows them: what each is, and what it imports of its own package."""
    lines = []
    for package, order in ROOMS.items():
        lines += [f"**{package or 'tsferry'}**", "", "| room | is | imports |", "|---|---|---|"]
        arrows = room_arrows(house, package)
        for room in order:
            below = ", ".join(f"`{each}`" for each in order if each in arrows.get(room, {}))
            name = f"{package}.{room}" if package else room
            lines.append(f"| `{room}` | {_first_line(house.modules[name])} | {below or '-'} |")
        lines.append("")
    return "\n".join(lines) + "\n"


def _first_line(module: Module) -> str:
    return (ast.get_docstring(module.tree) or "").split("\n")[0].replace("|", "\\|")


def on_the_page(page: str) -> str:
    """What a page has between the marks."""
    return page.partition(f"{BEGIN}\n")[2].partition(END)[0]


if __name__ == "__main__":
    place = ROOT / "docs/architecture.md"
    text = place.read_text(encoding="utf-8")
    before, _, rest = text.partition(f"{BEGIN}\n")
    after = rest.partition(END)[2]
    place.write_text(
        f"{before}{BEGIN}\n{table(House.as_it_stands())}{END}{after}", encoding="utf-8"
    )
