"""What `config show --json` writes (`common.config.as_json` makes it)."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from common.console.json_option import OpenForm

__all__ = ["ConfigOrigins", "ConfigTables", "SettingFound", "SettingOrigin"]


class ConfigTables(OpenForm):
    """The keys, tables in tables, as in the file; tokens and passwords are not in it.

    `docs/reference/configuration.md` has them; a key without a value is null.
    """


class SettingOrigin(TypedDict):
    """Where a value comes from.

    Attributes:
        kind: the layer.
        where: the option, the variable, the file and its line, or `default`.
    """

    kind: Literal["flag", "environment", "file", "default"]
    where: str


class SettingFound(TypedDict):
    """A value in force.

    Attributes:
        value: as it stands in the file.
        origin: where it comes from.
    """

    value: Any
    origin: SettingOrigin


class ConfigOrigins(OpenForm):
    """Each key with its table before it, as `listen.port`."""

    member = SettingFound
