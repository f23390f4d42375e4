"""Loading: flags over environment over files over defaults, and for each value where it is from.

Over the main file lie its drop-ins, in the order of their names. Each layer is spread over the
schema into settings (dotted key -> raw value); a higher layer replaces a lower one key by key, a
whole array of tables at once where it names the array. Then the tables are built bottom up. All
that is wrong is collected, so that one look at the error is enough to put a file right.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from common.config import keys as schemas
from common.config.keys import ArrayNode, LeafNode, SettingNode, TableNode
from common.config.kinds import ValueKind
from common.config.loaded_values import (
    CheckedTable,
    ConfigFinding,
    ConfigProblem,
    Flag,
    Loaded,
    Origin,
    Secret,
    config_error,
)
from common.config.specifiers import Specifiers, expand
from common.config.toml_file import (
    Document,
    drop_ins,
    read_secret,
    read_toml,
    readable_by_others,
)
from common.console.terminal import printable

__all__ = ["load"]

T = TypeVar("T", bound=msgspec.Struct)

_FILE_SUFFIX = "_file"
_OF_THIS_MACHINE: Specifiers = {
    "H": socket.gethostname,
    "l": lambda: socket.gethostname().partition(".")[0],
}

# Kubernetes puts these into each container beside a service named tsferry-receiver.
_INJECTED = re.compile(r"SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?")

_NOTHING: Mapping[str, Mapping[str, object]] = {}


class _Setting(msgspec.Struct, frozen=True):
    """A value as its layer has it.

    Attributes:
        raw: as TOML would have it, or text where `text` is set.
        origin: where it stands.
        text: `raw` comes from a variable or a flag and is still to be read by its kind.
        base: what relative paths are relative to.
        layer: its number; a higher one goes before.
    """

    raw: Any
    origin: Origin
    text: bool
    base: Path
    layer: int


def load(
    schema: type[T],
    *,
    file: Path | None,
    env_prefix: str,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    secrets: bool = True,
    specifiers: Specifiers = _OF_THIS_MACHINE,
    implied: Mapping[str, Mapping[str, object]] = _NOTHING,
) -> Loaded[T]:
    """Load and check a configuration.

    Args:
        schema: the top table.
        file: the TOML file, with whose drop-ins it is read; None for none.
        env_prefix: such as ``TSFERRY_SENDER_``; ``<prefix>TRANSFER__MAX_RETRIES`` is
            ``transfer.max_retries``. An empty variable counts as not set; ``<prefix>CONFIG`` names
            the file and is none of ours.
        environ: the environment.
        flags: dotted key -> value or `Flag`; None counts as not given.
        secrets: read the files that hold tokens; without, they need not be there yet.
        specifiers: what texts in files may say of this machine.
        implied: dotted key -> what others are that have no default, where that one is set and they
            are not.

    Raises:
        ConfigError: names file, key, value and expectation of everything that is wrong.
    """
    loading = _Loading(schema, env_prefix, secrets, specifiers)
    if file is not None:
        main = file.absolute()
        loading.add_file(read_toml(main), main.parent)
        for each in drop_ins(main):
            # As in the main file: a line means the same wherever it stands.
            loading.add_file(read_toml(each), main.parent)
    loading.add_environment(environ)
    loading.add_flags(flags)
    loading.add_implied(implied)
    value = loading.table(schema, "")
    if loading.problems or value is None:
        raise config_error(loading.problems)
    stand_ins = frozenset(loading.stand_ins)
    return Loaded(value, loading.origins, tuple(loading.warnings), stand_ins)


_Maker = Callable[[str, Any], _Setting]
"""(dotted key, raw value) -> the setting, as the layer makes it."""


class _Loading:
    """The settings of all layers, and what has been made of them so far."""

    def __init__(
        self,
        root: type[msgspec.Struct],
        env_prefix: str,
        secrets: bool,
        specifiers: Specifiers,
    ) -> None:
        self.root = root
        self.env_prefix = env_prefix
        self.secrets = secrets
        self.specifiers = specifiers
        self.file = "a configuration file (--config)"
        """As an error names it, in which something is missing."""
        self.layer = 0
        """Number of the layer that is being added; defaults are below the first."""
        self.settings: dict[str, _Setting] = {}
        self.origins: dict[str, Origin] = {}
        self.problems: list[ConfigProblem] = []
        self.warnings: list[str] = []
        self.quotes: dict[str, str] = {}
        """Dotted key -> value as an error may show it."""
        self.stand_ins: set[str] = set()
        """Keys that have what another one implies."""

    def add_file(self, document: Document, base: Path) -> None:
        self.layer += 1
        if self.layer == 1:  # those of a directory beside it come after it
            self.file = str(document.path)

        def setting(key: str, raw: Any) -> _Setting:
            return _Setting(raw, Origin("file", document.where(key)), False, base, self.layer)

        self._spread(TableNode(self.root), "", document.tree, setting)

    def add_environment(self, environ: Mapping[str, str]) -> None:
        self.layer += 1
        # Sorted: `RECEIVER` as a whole comes before `RECEIVER__0__URL`, which adds to it.
        for name in sorted(environ):
            text, rest = environ[name], name.removeprefix(self.env_prefix)
            ignored = rest == "CONFIG" or _INJECTED.fullmatch(rest)
            if rest == name or not text or ignored:
                continue
            segments: list[str | int] = [
                int(part) if part.isdecimal() and len(part) < 5 else part.lower()
                for part in rest.split("__")
            ]
            self._place(segments, text, Origin("environment", name))

    def add_flags(self, flags: Mapping[str, object]) -> None:
        self.layer += 1
        for key in sorted(flags):
            given = flags[key]
            flag = given if isinstance(given, Flag) else Flag(given, _flag_name(key))
            if flag.value is not None:
                self._place(schemas.split_key(key), flag.value, Origin("flag", flag.name))

    def add_implied(self, implied: Mapping[str, Mapping[str, object]]) -> None:
        origin = Origin("default", "default")
        for key, others in implied.items():
            for other, raw in others.items() if key in self.settings else ():
                if other not in self.settings:
                    self.settings[other] = _Setting(raw, origin, False, Path.cwd(), 0)
                    self.stand_ins.add(other)

    def _place(self, segments: list[str | int], raw: object, origin: Origin) -> None:
        """Take a value from a flag or a variable at the place that it names."""
        node: SettingNode = TableNode(self.root)
        key = ""
        for segment in segments:
            below = schemas.child(node, segment)
            if below is None:
                self._unknown(origin, key, str(segment))
                return
            node, key = below, schemas.join_key(key, segment)

        def setting(_key: str, value: Any) -> _Setting:
            return _Setting(value, origin, isinstance(value, str), Path.cwd(), self.layer)

        if isinstance(raw, str) and not isinstance(node, LeafNode):
            raw = _from_json(raw)
        self._spread(node, key, raw, setting)

    def _spread(self, node: SettingNode, key: str, raw: Any, setting: _Maker) -> None:
        """Cut a value along the schema and keep its leaves."""
        if isinstance(node, LeafNode):
            self.settings[key] = setting(key, raw)
        elif isinstance(node, ArrayNode):
            if not isinstance(raw, list) or not all(isinstance(item, dict) for item in raw):
                self._misshapen(setting(key, raw).origin, key, f"an array of tables: [[{key}]]")
                return
            self._forget(key + "[")
            for index, item in enumerate(raw):
                self._spread(TableNode(node.schema), f"{key}[{index}]", item, setting)
        elif not isinstance(raw, Mapping):
            self._misshapen(setting(key, raw).origin, key, f"a table: [{key}]")
        else:
            for name, value in raw.items():
                below = schemas.child(node, name)
                full = schemas.join_key(key, name)
                if below is None:
                    self._unknown(setting(full, value).origin, key, name)
                else:
                    self._spread(below, full, value, setting)

    def _forget(self, prefix: str) -> None:
        for key in [key for key in self.settings if key.startswith(prefix)]:
            del self.settings[key]

    def _unknown(self, origin: Origin, parent: str, name: str) -> None:
        # The value is not shown: behind a misspelt `token` it would be one.
        hint = schemas.suggestion(self.root, parent, name)
        key = printable(schemas.join_key(parent, name))
        self._problem(origin, key, None, f"unknown key, {hint}")

    def _misshapen(self, origin: Origin, key: str, expected: str) -> None:
        self._problem(origin, key, None, f"expected {expected}")

    def _problem(self, origin: Origin, key: str, value: str | None, expected: str) -> None:
        where = "" if origin.kind == "default" else origin.where
        self.problems.append(ConfigProblem(where, key, value, expected))

    def table(self, schema: type[T], key: str) -> T | None:
        """Build a table; None where something in it is wrong."""
        before = len(self.problems)
        values: dict[str, Any] = {}
        for field, node in schemas.fields(schema):
            full = schemas.join_key(key, field.encode_name)
            if isinstance(node, TableNode):
                values[field.name] = self.table(node.schema, full)
            elif isinstance(node, ArrayNode):
                values[field.name] = self._array(node.schema, full)
            elif full in self.settings:
                values[field.name] = self._leaf(node.kind, full, self.settings[full])
            elif field.required:
                self._missing(node.kind, full)
            else:
                values[field.name] = field.default
                self.origins[full] = Origin("default", "default")
        self._read_secrets(schema, key, values)
        if len(self.problems) > before:
            return None
        built = schema(**values)
        checked: object = built
        if isinstance(checked, CheckedTable):
            self._take(checked.check(), key)
        return built if len(self.problems) == before else None

    def _array(self, schema: type[T], key: str) -> tuple[T | None, ...]:
        start = key + "["
        found = {int(k[len(start) :].split("]")[0]) for k in self.settings if k.startswith(start)}
        gap = next((index for index in range(len(found)) if index not in found), None)
        if gap is not None:
            self.problems.append(
                ConfigProblem(
                    "", f"{key}[{gap}]", None, f"missing, but {key}[{max(found)}] is given"
                )
            )
            return ()
        return tuple(self.table(schema, f"{key}[{index}]") for index in range(len(found)))

    def _leaf(self, kind: ValueKind, key: str, setting: _Setting) -> Any:
        self.origins[key] = setting.origin
        self.quotes[key] = kind.quote(setting.raw)
        try:
            value = kind.parse(self._raw(kind, setting))
        except (ValueError, OverflowError) as error:
            why = f" ({printable(str(error))})" if str(error) and not kind.secret else ""
            expected = f"expected {kind.expected}{why}"
            self._problem(setting.origin, key, self.quotes[key], expected)
            return None
        if kind.secret and value is not None and setting.origin.kind == "file":
            self._warn_if_open(Path(re.sub(r":[0-9]+$", "", setting.origin.where)), key)
        return _rooted(value, setting.base)

    def _raw(self, kind: ValueKind, setting: _Setting) -> Any:
        if setting.text:
            return kind.from_text(setting.raw)
        # A percent sign of a password is one; and what a program hands over is meant as it is.
        is_text_of_file = setting.origin.kind == "file" and not kind.secret
        return expand(setting.raw, self.specifiers) if is_text_of_file else setting.raw

    def _missing(self, kind: ValueKind, key: str) -> None:
        variable = self.env_prefix + re.sub(r"[.\[]", "__", key).replace("]", "").upper()
        expected = f"missing: expected {kind.expected}, in {self.file} or in {variable}"
        self.problems.append(ConfigProblem("", key, None, expected))

    def _read_secrets(self, schema: type[msgspec.Struct], key: str, values: dict[str, Any]) -> None:
        """Fill in ``token`` from ``token_file``, unless a higher layer has the token itself."""
        for field, node in schemas.fields(schema):
            path = values.get(field.name + _FILE_SUFFIX)
            if not (isinstance(node, LeafNode) and node.kind.secret and isinstance(path, Path)):
                continue
            full = schemas.join_key(key, field.encode_name)
            origin = self.origins[full + _FILE_SUFFIX]
            rank, given = self._layer_of(full + _FILE_SUFFIX), self._layer_of(full)
            if given == rank and values[field.name] is not None:
                both = f"expected one of {full} and {full}{_FILE_SUFFIX}, not both"
                self._problem(origin, full + _FILE_SUFFIX, None, both)
            elif given <= rank and self.secrets:
                values[field.name] = self._secret(node.kind, full, path, origin)

    def _layer_of(self, key: str) -> int:
        return self.settings[key].layer if key in self.settings else 0

    def _secret(self, kind: ValueKind, key: str, path: Path, origin: Origin) -> Secret | None:
        try:
            secret = kind.parse(read_secret(path))
        except ValueError as error:
            expected = f"expected a file that holds {kind.expected}"
            why = f" ({error})" if str(error) else ""
            self._problem(origin, key + _FILE_SUFFIX, printable(str(path)), expected + why)
            return None
        self.origins[key] = Origin(origin.kind, str(path))
        self._warn_if_open(path, key)
        assert isinstance(secret, Secret)
        return secret

    def _warn_if_open(self, path: Path, key: str) -> None:
        if readable_by_others(path):
            self.warnings.append(
                f"{printable(str(path))}: holds {key} and others than its owner may read it: "
                f"chmod 600 it"
            )

    def _take(self, findings: Iterable[ConfigFinding], key: str) -> None:
        for finding in findings:
            full = schemas.join_key(key, finding.key)
            if any(problem.key == full for problem in self.problems):
                continue  # said already, and nearer to its cause
            origin = self.origins.get(full, Origin("default", "default"))
            if finding.fatal:
                self._problem(origin, full, self.quotes.get(full), finding.text)
            else:
                where = "" if origin.kind == "default" else f"{origin.where}: "
                self.warnings.append(f"{where}{full}: {finding.text}")


def _rooted(value: Any, base: Path) -> Any:
    """Paths made absolute, relative ones below the directory of what names them."""
    if isinstance(value, Path):
        return base / value
    if isinstance(value, tuple):
        return tuple(_rooted(item, base) for item in value)
    return value


def _flag_name(key: str) -> str:
    return "--" + key.rpartition(".")[2].replace("_", "-")


def _from_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
