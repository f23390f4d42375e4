"""Configuration of both programs: flags over environment over file over defaults.

A schema is a frozen, keyword-only `msgspec.Struct` per table; `load` fills it in and tells where
each value is from, `render` and `as_json` show it. See `kinds` for the types a field may have.
"""

from common.config.kinds import Duration, Size, Url
from common.config.loader import load
from common.config.model import Checked, Finding, Flag, Loaded, Origin, Problem, Secret
from common.config.networks import AllowList, is_loopback
from common.config.render import as_json, render
from common.config.timetable import Timetable, Window
from common.errors import ConfigError

__all__ = [
    "AllowList",
    "Checked",
    "ConfigError",
    "Duration",
    "Finding",
    "Flag",
    "Loaded",
    "Origin",
    "Problem",
    "Secret",
    "Size",
    "Timetable",
    "Url",
    "Window",
    "as_json",
    "is_loopback",
    "load",
    "render",
]
