"""When loaded files go into an object store: at once, after a while, or never; by storage group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.config.units import format_duration, parse_duration

__all__ = ["UploadRule", "UploadRules", "upload_text"]

_WORDS = {"at once": 0.0, "never": math.inf}


@dataclass(frozen=True)
class UploadRule:
    """One rule.

    Attributes:
        after: seconds behind the load; infinite for never.
        group: storage group that it holds for, with what is below it; empty for all.
    """

    after: float
    group: str = ""

    def holds(self, group: str) -> bool:
        """Whether it is for files of this storage group."""
        return not self.group or f"{group}.".startswith(f"{self.group}.")


@dataclass(frozen=True)
class UploadRules:
    """The first rule that holds decides; where none does, files go at once."""

    rules: tuple[UploadRule, ...] = ()

    @property
    def is_always_at_once(self) -> bool:
        """Whether no file waits."""
        return not any(each.after for each in self.rules)

    def after(self, group: str) -> float:
        """Seconds behind its load that a file of a storage group goes; infinite for never."""
        return next((each.after for each in self.rules if each.holds(group)), 0.0)

    @classmethod
    def parse(cls, value: object) -> UploadRules:
        """From ``"at once"``, ``"never"``, a duration, or a list of rules.

        A rule is a table with ``upload`` (one of those) and, but for the last, ``group``.

        Raises:
            ValueError: says which rule is wrong and why.
        """
        if isinstance(value, str | int | float):
            after = _after(value)
            return cls((UploadRule(after),) if after else ())
        if not isinstance(value, Sequence):
            raise ValueError('expected "at once", "never", a duration, or a list of rules')
        rules = []
        for number, item in enumerate(value, start=1):
            try:
                rules.append(_rule(item))
            except ValueError as error:
                raise ValueError(f"rule {number}: {error}") from None
            if number < len(value) and not rules[-1].group:
                raise ValueError(f"rule {number + 1} is never reached: the one before it holds")
        return cls(tuple(rules))

    def to_plain(self) -> str | float | list[dict[str, object]]:
        """What `parse` reads back."""
        if not self.rules:
            return "at once"
        if len(self.rules) == 1 and not self.rules[0].group:
            return _plain(self.rules[0].after)
        return [
            {"group": each.group, "upload": _plain(each.after)}
            if each.group
            else {"upload": _plain(each.after)}
            for each in self.rules
        ]


def upload_text(after: float) -> str:
    """When files go, as SQL says it; seconds behind their load, infinite for never."""
    words = [word for word, known in _WORDS.items() if known == after]
    return words[0] if words else f"after {format_duration(after)}"


def _after(value: object) -> float:
    if isinstance(value, str) and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValueError(f'{error} (expected "at once", "never", or such as "30d")') from None


def _plain(after: float) -> str | float:
    words = [word for word, known in _WORDS.items() if known == after]
    return words[0] if words else format_duration(after)


def _rule(item: object) -> UploadRule:
    if not isinstance(item, Mapping) or "upload" not in item or item.keys() - {"upload", "group"}:
        raise ValueError("expected a table with upload and group")
    group = item.get("group", "")
    if not isinstance(group, str):
        raise ValueError("group is the name of a storage group")
    return UploadRule(_after(item["upload"]), group)
