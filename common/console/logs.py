"""Logging of both programs: one record is one line, whatever stands in a name.

Text is for people, JSON lines for machines. Values beside the message travel in ``extra``::

    log.info("file loaded", extra={"path": path, "size": size})
"""

from __future__ import annotations

import datetime
import json
import logging
import logging.handlers
import sys
from pathlib import Path
from typing import Any, Literal, TextIO

import msgspec

from common.console.progress_bar import beside_bars
from common.console.terminal import printable
from common.errors import ConfigError

__all__ = ["AUDIT", "JsonFormatter", "LogConfig", "TextFormatter", "set_up"]

_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
AUDIT = "audit"
"""The logger of who did what; its records are written whatever `log.level` says."""
_NOISY = ("urllib3", "watchdog", "waitress", "py4j")
"""Libraries that tell at debug level what we say ourselves, or nothing an operator can use."""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``[log]``: where records go.

    Attributes:
        level: least severe record that is written.
        format: ``text``, or ``json`` for one JSON object a line.
        file: file that records are appended to, opened again after logrotate moved it; none for
            stderr.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    file: Path | None = None


class TextFormatter(logging.Formatter):
    """``2026-01-31T23:59:59.123+00:00 INFO sender.send: message key=value``.

    Lines of a traceback follow behind ``  | ``, so that none of them can pass for a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it where there is one."""
        pairs = "".join(f" {key}={_text_value(value)}" for key, value in _extras(record).items())
        line = printable(
            f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}{pairs}"
        )
        return "".join([line, *(f"\n  | {printable(each)}" for each in _traceback(self, record))])


class JsonFormatter(logging.Formatter):
    """An object a line: ``time``, ``level``, ``logger``, ``message``, extras, ``traceback``.

    An extra that has the name of one of ours stands under its name with ``_`` appended.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line of ASCII: what is no ASCII, and every control character, is escaped."""
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if lines := _traceback(self, record):
            entry["traceback"] = lines
        for key, value in _extras(record).items():
            entry[f"{key}_" if key in entry else key] = value
        return json.dumps(entry, ensure_ascii=True, default=str)


def set_up(config: LogConfig, *, verbose: bool = False, stream: TextIO | None = None) -> None:
    """Send the records of the whole process where the configuration says.

    Args:
        config: the ``[log]`` table.
        verbose: debug level, whatever the configuration says.
        stream: instead of stderr, where no file is named.

    Raises:
        ConfigError: the log file cannot be opened.
    """
    handler = _handler(config, stream)
    handler.setFormatter(JsonFormatter() if config.format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbose else config.level.upper())
    logging.getLogger(AUDIT).setLevel(logging.INFO)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


def _handler(config: LogConfig, stream: TextIO | None) -> logging.Handler:
    if config.file is None:
        return _StreamHandler(stream or sys.stderr)
    try:
        return logging.handlers.WatchedFileHandler(
            config.file, encoding="utf-8", errors="backslashreplace"
        )
    except OSError as error:
        raise ConfigError(
            f"log.file = {printable(str(config.file))}: expected a file that can be written: "
            f"{error.strerror}"
        ) from error


class _StreamHandler(logging.StreamHandler[TextIO]):
    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; above the bars, where there are some."""
        with beside_bars(self.stream):
            super().emit(record)


def _time(record: logging.LogRecord) -> str:
    local = datetime.datetime.fromtimestamp(record.created, datetime.UTC).astimezone()
    return local.isoformat(timespec="milliseconds")


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _OWN_ATTRIBUTES}


def _text_value(value: object) -> str:
    text = str(value)
    quoted = not text or any(c in text for c in ' "=')
    return json.dumps(text, ensure_ascii=False) if quoted else text


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts).splitlines()
