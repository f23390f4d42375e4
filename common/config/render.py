"""A configuration, shown as TOML that loads again, and as JSON; secrets are named alone."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from common.config import keys as schemas
from common.config.keys import ArrayNode, LeafNode, SettingNode, TableNode
from common.config.loaded_values import CheckedTable, Loaded
from common.config.specifiers import as_written
from common.console.terminal import display_width, printable
from common.errors import ConfigError

__all__ = ["as_json", "render", "setting_as_toml"]

_ORIGIN_COLUMN = 40
"""Where origins begin, so that they can be read down the page; longer settings push theirs on."""


def render(loaded: Loaded[Any], *, origin: bool) -> str:
    """TOML with every key; with `origin`, a comment behind each says where its value is from.

    An optional value that is not set is shown as ``"none"``. What is not shown whole (a token,
    an address behind its host) is a comment that names where it stands: as a value it would load,
    as another one. So is what may stand only beside such a value. What has only a stand-in
    (``Loaded.stand_ins``) is not there at all, since there is no word for it that loads again.
    """
    lines: list[str] = []
    for table, header, settings in _tables(loaded.value, ""):
        if header:
            lines += ["", header] if lines else [header]
        for name, value, left_out in settings:
            full = schemas.join_key(table, name)
            if full in loaded.stand_ins:
                continue
            line = f"{name} = {_toml('none' if value is None else value)}"
            where = printable(str(loaded.origins[full]))
            if left_out:
                line = f"#{line}"
                where = where if origin else f"{left_out}: {where}"
            if origin or left_out:
                gap = " " * max(_ORIGIN_COLUMN - display_width(line), 2)
                line = f"{line}{gap}# {where}"
            lines.append(line)
    return "\n".join(lines)


def as_json(loaded: Loaded[Any], *, origin: bool) -> dict[str, Any]:
    """The same for machines.

    Returns:
        Tables in tables as in the file; with `origin`, flat: dotted key -> ``value`` and
        ``origin`` (``kind``, ``where``). What has only a stand-in is None.
    """
    if not origin:
        return _nested(loaded.value, "", loaded.stand_ins)
    flat = {}
    for table, _, settings in _tables(loaded.value, ""):
        for name, value, _ in settings:
            key = schemas.join_key(table, name)
            found = loaded.origins[key]
            shown = None if key in loaded.stand_ins else value
            flat[key] = {"value": shown, "origin": {"kind": found.kind, "where": found.where}}
    return flat


def setting_as_toml(schema: type[msgspec.Struct], key: str, text: str) -> str:
    """What a flag sets, as the value that a new file has for the same.

    A path counts from the working directory, as in a flag; the file may lie elsewhere.

    Args:
        schema: the top table.
        key: dotted.
        text: of the flag.

    Raises:
        ConfigError: there is no such key, the value is none for it, or it is none that `init`
            writes: a table, what stands in an array of them, a secret.
    """
    node: SettingNode | None = TableNode(schema)
    segments = schemas.split_key(key)
    for segment in segments:
        node = None if node is None else schemas.child(node, segment)
    if node is None:
        raise ConfigError(f"--set {key}: there is no such key")
    is_single = isinstance(node, LeafNode) and all(isinstance(each, str) for each in segments)
    if not is_single or not isinstance(node, LeafNode) or node.kind.secret or node.kind.hidden:
        raise ConfigError(
            f"--set {key}: init does not write that into a new file; write it there afterwards"
        )
    kind = node.kind
    try:
        raw = kind.from_text(text)
        value = kind.parse(raw)
    except (ValueError, OverflowError):
        raise ConfigError(f"--set {key} = {kind.quote(text)}: expected {kind.expected}") from None
    if isinstance(value, Path):
        raw = str(value.absolute())
    elif isinstance(value, tuple) and any(isinstance(each, Path) for each in value):
        raw = [str(each.absolute()) for each in value]
    return _toml("none" if raw is None else raw)


_Shown = tuple[str, Any, str]
"""(key, value as TOML has it, why it would not load so; empty where it does)."""


def _tables(value: msgspec.Struct, key: str) -> Iterator[tuple[str, str, list[_Shown]]]:
    """(dotted key, header line, own settings) of each table, in an order that TOML allows."""
    yield key, f"[{key}]" if key else "", list(_settings(value))
    for field, node in schemas.fields(type(value)):
        below = getattr(value, field.name)
        full = schemas.join_key(key, field.encode_name)
        if isinstance(node, TableNode):
            yield from _tables(below, full)
        elif isinstance(node, ArrayNode):
            for index, item in enumerate(below):
                first, *rest = _tables(item, f"{full}[{index}]")
                yield first[0], f"[[{full}]]", first[2]
                yield from rest


def _settings(value: msgspec.Struct) -> Iterator[_Shown]:
    shown: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    bare: dict[str, dict[str, Any]] = {}
    for field, node in schemas.fields(type(value)):
        if isinstance(node, LeafNode):
            leaf = getattr(value, field.name)
            plain = None if leaf is None else node.kind.to_plain(leaf)
            shown[field.encode_name] = plain
            if node.kind.hidden and plain != leaf:
                left_out[field.encode_name] = "not shown"
                bare[field.encode_name] = {field.name: field.default}
    gone = [each for name, each in bare.items() if shown.get(f"{name}_file") is None]
    if gone and isinstance(value, CheckedTable):
        refused = {each.key for each in value.check()}
        for each in msgspec.structs.replace(value, **ChainMap(*gone)).check():
            if each.fatal and each.key not in refused and shown.get(each.key) is not None:
                left_out.setdefault(each.key, each.text)
    for name, plain in shown.items():
        yield name, plain, left_out.get(name, "")


def _nested(value: msgspec.Struct, key: str, stand_ins: frozenset[str]) -> dict[str, Any]:
    nested = {
        name: None if schemas.join_key(key, name) in stand_ins else plain
        for name, plain, _ in _settings(value)
    }
    for field, node in schemas.fields(type(value)):
        below = getattr(value, field.name)
        full = schemas.join_key(key, field.encode_name)
        if isinstance(node, TableNode):
            nested[field.encode_name] = _nested(below, full, stand_ins)
        elif isinstance(node, ArrayNode):
            each = (_nested(item, f"{full}[{at}]", stand_ins) for at, item in enumerate(below))
            nested[field.encode_name] = list(each)
    return nested


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return "".join(map(_toml_character, json.dumps(as_written(value), ensure_ascii=False)))
    return json.dumps(value)


def _toml_character(character: str) -> str:
    """What TOML forbids, or a terminal obeys, as an escape that TOML reads back."""
    if printable(character) == character:
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
