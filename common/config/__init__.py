"""Configuration of both programs: flags over environment over files over defaults.

A schema is a frozen, keyword-only `msgspec.Struct` per table; `load` fills it in and tells where
each value is from, `render` and `as_json` show it. See `kinds` for the types a field may have.
"""

from common.config.kinds import Duration, SecretUrl, Size, Url
from common.config.layers import load
from common.config.loaded_values import (
    CheckedTable,
    ConfigFinding,
    ConfigProblem,
    Flag,
    Loaded,
    Origin,
    Secret,
)
from common.config.networks import AllowList, is_loopback
from common.config.render import as_json, render, setting_as_toml
from common.config.timetable import DayWindow, Hours, Timetable
from common.config.toml_file import drop_in_directory
from common.config.upload_rules import UploadRules
from common.errors import ConfigError

__all__ = [
    "AllowList",
    "CheckedTable",
    "ConfigError",
    "ConfigFinding",
    "ConfigProblem",
    "DayWindow",
    "Duration",
    "Flag",
    "Hours",
    "Loaded",
    "Origin",
    "Secret",
    "SecretUrl",
    "Size",
    "Timetable",
    "UploadRules",
    "Url",
    "as_json",
    "drop_in_directory",
    "is_loopback",
    "load",
    "render",
    "setting_as_toml",
]
