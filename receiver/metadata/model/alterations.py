"""The six alterations of tags, attributes and alias, as pure functions of what a series has.

    new = alter("root.turbine.d1.s1", Labels(tags={"unit": "C"}), Rename("unit", "si"))

A series has a key once, be it a tag or an attribute. What is not said stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from receiver.metadata.model.errors import TagExistsError, TagMissingError, TagRefusedError

__all__ = [
    "AddAttributes",
    "AddTags",
    "Alteration",
    "Drop",
    "Labels",
    "Rename",
    "SetValues",
    "Upsert",
    "alter",
    "check_labels",
]


@dataclass(frozen=True, slots=True)
class Labels:
    """What a series is labelled with.

    Attributes:
        tags: what it can be found by.
        attributes: what else is known of it.
        alias: its other name in the device.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Rename:
    """A tag or attribute gets another key; its value and its place stay."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SetValues:
    """Tags or attributes that are there get other values."""

    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Drop:
    """Tags or attributes go; a key that is not there is passed over."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddTags:
    """Tags that are not there yet."""

    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AddAttributes:
    """Attributes that are not there yet."""

    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Upsert:
    """Tags and attributes, whether there or not, and an alias; an alias of None stays as it is."""

    alias: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


Alteration = Rename | SetValues | Drop | AddTags | AddAttributes | Upsert


def alter(path: str, labels: Labels, alteration: Alteration) -> Labels:
    """What a series has after an alteration.

    Args:
        path: of the series, for messages.
        labels: what it has.
        alteration: of it.

    Raises:
        TagExistsError: a key that is new would be there twice.
        TagMissingError: a key that is to be renamed or set is not there.
        TagRefusedError: a key is empty.
    """
    altered = _ALTER[type(alteration)](path, labels, alteration)
    check_labels(path, altered.tags, altered.attributes)
    return altered


def check_labels(path: str, tags: Mapping[str, str], attributes: Mapping[str, str]) -> None:
    """See that tags and attributes of a series have keys, each of them once.

    Raises:
        TagExistsError: a tag and an attribute have the same key.
        TagRefusedError: a key is empty.
    """
    if "" in tags or "" in attributes:
        raise TagRefusedError(f"{path}: a tag or attribute has an empty key", extra={"path": path})
    for key in tags:
        if key in attributes:
            raise _exists(path, key, "would be a tag and an attribute")


def _rename(path: str, labels: Labels, alteration: Rename) -> Labels:
    old, new = alteration.old, alteration.new
    _need(path, labels, [old])
    if new in labels.tags or new in labels.attributes:
        raise _exists(path, new, f"is there already, so {old!r} cannot be renamed to it")
    return replace(
        labels,
        tags=_renamed(labels.tags, old, new),
        attributes=_renamed(labels.attributes, old, new),
    )


def _renamed(values: Mapping[str, str], old: str, new: str) -> Mapping[str, str]:
    return {new if key == old else key: value for key, value in values.items()}


def _set(path: str, labels: Labels, alteration: SetValues) -> Labels:
    _need(path, labels, alteration.values)
    return replace(
        labels,
        tags={key: alteration.values.get(key, value) for key, value in labels.tags.items()},
        attributes={
            key: alteration.values.get(key, value) for key, value in labels.attributes.items()
        },
    )


def _drop(path: str, labels: Labels, alteration: Drop) -> Labels:
    return replace(
        labels,
        tags=_without(labels.tags, alteration.keys),
        attributes=_without(labels.attributes, alteration.keys),
    )


def _without(values: Mapping[str, str], keys: Iterable[str]) -> Mapping[str, str]:
    gone = set(keys)
    return {key: value for key, value in values.items() if key not in gone}


def _add_tags(path: str, labels: Labels, alteration: AddTags) -> Labels:
    _need_new(path, labels, alteration.tags)
    return replace(labels, tags={**labels.tags, **alteration.tags})


def _add_attributes(path: str, labels: Labels, alteration: AddAttributes) -> Labels:
    _need_new(path, labels, alteration.attributes)
    return replace(labels, attributes={**labels.attributes, **alteration.attributes})


def _upsert(path: str, labels: Labels, alteration: Upsert) -> Labels:
    return Labels(
        tags={**labels.tags, **alteration.tags},
        attributes={**labels.attributes, **alteration.attributes},
        alias=labels.alias if alteration.alias is None else alteration.alias,
    )


def _need(path: str, labels: Labels, keys: Iterable[str]) -> None:
    for key in keys:
        if key not in labels.tags and key not in labels.attributes:
            raise TagMissingError(
                f"{path} has no tag or attribute {key!r}", extra={"path": path, "key": key}
            )


def _need_new(path: str, labels: Labels, keys: Iterable[str]) -> None:
    for key in keys:
        if key in labels.tags or key in labels.attributes:
            kind = "tag" if key in labels.tags else "attribute"
            raise _exists(path, key, f"is there already, as {kind}")


def _exists(path: str, key: str, why: str) -> TagExistsError:
    return TagExistsError(f"{path}: the key {key!r} {why}", extra={"path": path, "key": key})


_ALTER: dict[type, Callable[[str, Labels, Any], Labels]] = {
    Rename: _rename,
    SetValues: _set,
    Drop: _drop,
    AddTags: _add_tags,
    AddAttributes: _add_attributes,
    Upsert: _upsert,
}
