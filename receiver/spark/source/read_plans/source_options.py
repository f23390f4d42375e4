"""The options of the data source: names, defaults, and what is wrong with a value.

Spark hands over texts. All of them are checked before a job starts; a name that nobody knows is an
error too, since a misspelt option that is ignored gives a wrong answer.
"""

from __future__ import annotations

import datetime
import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from common.config.shared_rules import PER_MILLISECOND, TimeUnit
from common.errors import UsageError
from receiver.metadata.model.paths import IllegalPathError, Pattern, parse_pattern
from receiver.spark.option_values import (
    WrongValueError,
    boolean,
    byte_size,
    is_json,
    name_text,
    names,
    one_of,
    receiver_url,
)

__all__ = [
    "SourceOptions",
    "bounds",
    "parse_options",
    "refuse_stream_options",
    "to_ticks",
    "without_properties",
]

T = TypeVar("T")
TICKS: Final[Mapping[str, int]] = {"ms": 10**3, "us": 10**6, "ns": 10**9}
"""Of a unit, in a second."""

_INT64: Final = range(-(1 << 63), 1 << 63)
_SPARKS_OWN: Final = ("__", "spark.", "serialization.")
"""What Spark adds to the options of a table by itself."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is to be read; each attribute is an option (``start_time`` is ``startTime``).

    Attributes:
        paths: of ``path`` and ``paths``: files, directories, globs.
        catalog: the receiver: its configuration, its schema directory, or its URL.
        as_of: commit timestamp, or a moment, that the catalogue is read as of.
        token: of a reader or an operator, for a URL.
        ca_cert: PEM file that the server of a URL is checked against.
        client_cert: PEM certificate that it is shown in the place of a token, on the workers too.
        client_key: PEM private key of that, likewise.
        data_dirs: where the receiver's data directories are for the workers, if elsewhere.
        table: the one table of the table model that is read.
        devices: patterns of tree devices; empty for all.
        columns: measurements, exactly; None for all.
        tags: of a table: name, and the values that are read, of which None is NULL.
        form: ``long`` or ``wide``.
        start_time: first time that is read, in the files' unit.
        end_time: last time that is read.
        time_unit: of the files, where it is known.
        deletions: apply ``.mods`` files.
        merge: give each time of a series once, from the highest file; else all that is stored.
        compacted: read merged files in place of those they stand for; ``auto`` where that shows in
            nothing.
        retired: read files too that their senders do not have any more.
        text: Spark type of TEXT and STRING.
        kind: which of a database's files.
        on_error: what a file does that cannot be read.
        push_filters: take filters over from Spark; see `datasource.TsFileBatchReader`.
        partition_bytes: of files, that make up about one partition.
        time_column: its name in the result.
        device_column: the same.
        error_column: the same, with ``onError`` = ``row``.
        file_column: name of a column with the file's path; None for no such column.
        starting_commit: of a stream: files loaded after this commit are read; None for all.
        max_files: of one batch of a stream; None for no limit.
        fail_on_data_loss: of a stream: a batch whose past is gone is an error.
        name_glob: of ``pathGlobFilter``: names of the files below `paths`; None for all.
        store: URL of the object store that has the files, if another than the receiver says.
        store_endpoint: of a store that is compatible with S3.
        store_region: of its bucket.
        store_path_style: its bucket is in the path.
        receiver: URL of the one that gives files to workers that have no other way to them.
    """

    paths: tuple[str, ...] = ()
    catalog: str | None = None
    as_of: int | datetime.datetime | None = None
    token: str | None = None
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    data_dirs: tuple[str, ...] = ()
    table: str | None = None
    devices: tuple[Pattern, ...] = ()
    columns: tuple[str, ...] | None = None
    tags: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    form: Literal["long", "wide"] = "wide"
    start_time: int | datetime.datetime | None = None
    end_time: int | datetime.datetime | None = None
    time_unit: TimeUnit | None = None
    deletions: bool = True
    merge: bool = True
    compacted: Literal["auto", "true", "false"] = "auto"
    retired: bool = True
    text: Literal["string", "binary"] = "string"
    kind: Literal["all", "sequence", "unsequence"] = "all"
    on_error: Literal["fail", "skip", "row"] = "fail"
    push_filters: Literal["auto", "true", "false"] = "auto"
    partition_bytes: int = 128 << 20
    time_column: str = "time"
    device_column: str = "device"
    error_column: str = "_error"
    file_column: str | None = None
    starting_commit: int | datetime.datetime | Literal["latest"] | None = None
    max_files: int | None = None
    fail_on_data_loss: bool = True
    name_glob: str | None = None
    store: str | None = None
    store_endpoint: str | None = None
    store_region: str | None = None
    store_path_style: bool = False
    receiver: str | None = None

    def __repr__(self) -> str:
        """Without the token: Spark writes what it fails on into logs."""
        return f"Options(paths={self.paths!r}, catalog={self.catalog!r}, form={self.form!r})"


# -- one value -----------------------------------------------------------------------------------


def _store(text: str) -> str:
    # What stands here may be read by everybody who sees the plan of a query.
    if not text.startswith(("s3://", "file:///")) or "@" in text or "?" in text:
        expected = "expected s3://bucket/prefix or file:///directory, without credentials"
        raise WrongValueError(expected)
    return text


def _columns(text: str) -> tuple[str, ...]:
    if is_json(text):  # a file may have a name with its back-ticks
        return names(text)
    return tuple(each.replace("``", "`") for each in map(_bare, names(text)))


def _bare(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "`" else text


def _patterns(text: str) -> tuple[Pattern, ...]:
    try:
        return tuple(map(parse_pattern, names(text)))
    except IllegalPathError as error:
        raise WrongValueError(f"expected paths such as root.site.*, root.** ({error})") from error


def _tags(text: str) -> tuple[tuple[str, tuple[str | None, ...]], ...]:
    expected = """expected a JSON object such as {"site": "p1", "line": ["1", "2", null]}"""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise WrongValueError(f"{expected} ({error})") from error
    if not isinstance(found, dict):
        raise WrongValueError(expected)
    wanted = []
    for name, value in found.items():
        values = value if isinstance(value, list) else [value]
        if not values or not all(each is None or isinstance(each, str) for each in values):
            raise WrongValueError(expected)
        wanted.append((name, tuple(values)))
    return tuple(wanted)


def _time(text: str) -> int | datetime.datetime:
    if re.fullmatch(r"\s*[+-]?[0-9]{1,20}\s*", text):
        ticks = int(text)
        if ticks in _INT64:
            return ticks
    else:
        try:
            moment = datetime.datetime.fromisoformat(text.strip())
        except ValueError:
            pass
        else:
            # As the times of a database: without a zone it is UTC, on every machine the same.
            return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    raise WrongValueError("expected an integer, or a time such as 2026-01-31T08:00:00Z")


def _commit(text: str) -> int | datetime.datetime:
    found = _time(text)
    if isinstance(found, int) and found < 0:
        raise WrongValueError("expected a commit timestamp, or a time such as 2026-01-31T08:00:00Z")
    return found


def _starting_commit(text: str) -> int | datetime.datetime | str:
    return "latest" if text.lower() == "latest" else _commit(text)


def _positive(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise WrongValueError("expected a whole number from 1 on")
    return int(text)


_KNOWN: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "path": ("paths", lambda text: (text,)),
    "paths": ("paths", names),
    "catalog": ("catalog", name_text),
    "asOf": ("as_of", _commit),
    "token": ("token", name_text),
    "tokenFile": ("token", name_text),
    "caCert": ("ca_cert", name_text),
    "clientCert": ("client_cert", name_text),
    "clientKey": ("client_key", name_text),
    "dataDirs": ("data_dirs", names),
    "table": ("table", name_text),
    "devices": ("devices", _patterns),
    "columns": ("columns", _columns),
    "tags": ("tags", _tags),
    "form": ("form", one_of("long", "wide")),
    "startTime": ("start_time", _time),
    "endTime": ("end_time", _time),
    "timeUnit": ("time_unit", one_of(*PER_MILLISECOND)),
    "deletions": ("deletions", boolean),
    "merge": ("merge", boolean),
    "compacted": ("compacted", one_of("auto", "true", "false")),
    "retired": ("retired", boolean),
    "text": ("text", one_of("string", "binary")),
    "kind": ("kind", one_of("all", "sequence", "unsequence")),
    "onError": ("on_error", one_of("fail", "skip", "row")),
    "pushFilters": ("push_filters", one_of("auto", "true", "false")),
    "partitionBytes": ("partition_bytes", byte_size),
    "timeColumn": ("time_column", name_text),
    "deviceColumn": ("device_column", name_text),
    "errorColumn": ("error_column", name_text),
    "fileColumn": ("file_column", name_text),
    "startingCommit": ("starting_commit", _starting_commit),
    "maxFilesPerTrigger": ("max_files", _positive),
    "failOnDataLoss": ("fail_on_data_loss", boolean),
    "pathGlobFilter": ("name_glob", name_text),
    "store": ("store", _store),
    "storeEndpoint": ("store_endpoint", name_text),
    "storeRegion": ("store_region", name_text),
    "storePathStyle": ("store_path_style", boolean),
    "receiver": ("receiver", receiver_url),
}
_GENERIC: Final = {
    "recursivefilelookup": "directories are always looked through to their ends",
    "ignorecorruptfiles": "expected onError = skip or row for files that cannot be read",
    "ignoremissingfiles": "expected onError = skip or row for files that are not there",
    "mergeschema": "the columns of all files are always put together",
    "modifiedbefore": "expected endTime, or asOf with a catalog",
    "modifiedafter": "expected startTime, or startingCommit in a stream",
    "basepath": "partitions are no columns here; see fileColumn",
}
"""Options of Spark's own file sources that are not ours, and what to write instead."""
_ALWAYS: Final = frozenset({"recursivefilelookup", "mergeschema"})
"""Those of them that may be asked for, since it is always so."""
_OF_TABLES: Final = frozenset(
    {"owner", "location", "provider", "comment", "external", "collation", "is_managed_location"}
)
"""What Spark adds to the options of a table of its own catalogue, beside `option.<name>`."""
_TWIN: Final = "option."
_OF_STREAMS: Final = frozenset({"startingCommit", "maxFilesPerTrigger", "failOnDataLoss"})
_BY_LOWER: Final = {name.lower(): name for name in _KNOWN}


# -- all of them ---------------------------------------------------------------------------------


def parse_options(
    given: Mapping[str, str], read_text: Callable[[str], str] | None = None
) -> SourceOptions:
    """Check what Spark was given.

    Args:
        given: names, in any case, to texts.
        read_text: gives the content of a ``tokenFile``.

    Raises:
        UsageError: names the option, its value and what was expected.
    """
    found: dict[str, Any] = {}
    for key, text in without_properties(given).items():
        if key.lower() in _ALWAYS and text.lower() == "true":
            continue
        name = _BY_LOWER.get(key.lower())
        if name is None:
            if key.lower().startswith(_SPARKS_OWN):
                continue
            raise _unknown(key, text)
        attribute, parse = _KNOWN[name]
        value = _parsed(name, str(text), parse)
        if name == "tokenFile":
            value = _token(value, read_text)
        # `load("a", ...)` and `option("path", ...)` add up; of all others there is one.
        found[attribute] = found.get(attribute, ()) + value if attribute == "paths" else value
    options = SourceOptions(**found)
    _check_together(options, given)
    return options


def _parsed(name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except WrongValueError as wrong:
        raise UsageError(f"option {name} = {text!r}: {wrong}") from None


def without_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The options, without what belongs to a table of Spark's catalogue.

    `CREATE TABLE ... USING tsfile` hands over the table's properties too, in one heap: those of
    Spark's own, those of `TBLPROPERTIES`, and each of `OPTIONS` a second time as `option.<name>`.
    """
    lower = {key.lower() for key in given}
    if "provider" not in lower:
        return dict(given)
    kept = {}
    for key, text in given.items():
        name = key.lower()
        is_option = f"{_TWIN}{name}" in lower or name in _BY_LOWER
        if is_option and name not in _OF_TABLES:
            kept[key] = text
    return kept


def _unknown(key: str, text: str) -> UsageError:
    if key.lower() in _GENERIC:
        return UsageError(f"option {key} = {text!r}: not of tsfile: {_GENERIC[key.lower()]}")
    near = difflib.get_close_matches(key.lower(), _BY_LOWER, 1)
    meant = f"; is {_BY_LOWER[near[0]]} meant?" if near else ""
    return UsageError(
        f"option {key} = {text!r}: there is no such option{meant} "
        f"(expected one of {', '.join(_KNOWN)})"
    )


def _token(file: str, read_text: Callable[[str], str] | None) -> str:
    try:
        text = (read_text or _read_file)(file).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"option tokenFile = {file!r}: expected a readable file ({error})"
        ) from error
    if not text:
        raise UsageError(f"option tokenFile = {file!r}: expected a file with a token, it is empty")
    return text


def _read_file(file: str) -> str:
    with open(file, encoding="utf-8") as stream:  # noqa: PTH123  # a text, as Spark gives it
        return stream.read(1 << 16)


def _check_together(options: SourceOptions, given: Mapping[str, str]) -> None:
    if bool(options.paths) is (options.catalog is not None):
        what = "both are given" if options.paths else "neither is given"
        raise UsageError(
            f"option path, option catalog: {what}; expected path (a file, a directory or a glob) "
            "or catalog (a receiver's configuration file, schema directory or URL)"
        )
    lower = {key.lower(): str(text) for key, text in given.items()}
    if options.catalog is None:
        for name in (
            "asOf", "token", "tokenFile", "caCert", "clientCert", "clientKey", "dataDirs",
            "startingCommit", "retired", "compacted", "store", "receiver",
        ):  # fmt: skip
            if name.lower() in lower:
                shown = "..." if name == "token" else repr(lower[name.lower()])
                raise UsageError(f"option {name} = {shown}: expected together with catalog only")
    if options.compacted == "true" and not (options.merge and options.deletions):
        raise UsageError(
            "option compacted = 'true': expected together with neither merge = false nor "
            "deletions = false; what they ask for is in no merged file"
        )
    if options.store is None:
        for name in ("storeEndpoint", "storeRegion", "storePathStyle"):
            if name.lower() in lower:
                raise UsageError(f"option {name}: expected together with store only")
    if "token" in lower and "tokenfile" in lower:
        raise UsageError("option token, option tokenFile: both are given; expected one of them")
    if (options.client_cert is None) is not (options.client_key is None):
        raise UsageError("option clientCert: expected with option clientKey, and that with it")
    if options.devices and options.table is not None:
        raise UsageError(
            f"option devices, option table = {options.table!r}: both are given; expected devices "
            "for the tree model, or table for the table model"
        )
    if options.devices and options.tags:
        raise UsageError("option devices, option tags: both are given; only tables have tags")
    if options.name_glob is not None and options.catalog is not None:
        raise UsageError("option pathGlobFilter: expected with path only; a catalog has no paths")
    if options.catalog is None:
        bounds(options)


def refuse_stream_options(given: Mapping[str, str]) -> None:
    """See that a batch query has no option that means nothing to it.

    Raises:
        UsageError: it has one.
    """
    for key, text in given.items():
        if (name := _BY_LOWER.get(key.lower())) in _OF_STREAMS:
            raise UsageError(
                f"option {name} = {text!r}: expected in streams only (readStream); a batch query "
                "reads all files, as of option asOf"
            )


def bounds(options: SourceOptions) -> tuple[int | None, int | None]:
    """First and last time that is wanted, in the unit of the files.

    Raises:
        UsageError: one is given as a moment, and the unit of the files is not known.
    """
    unit = options.time_unit
    # The first tick that is not before a moment, and the last that is not behind one.
    return (
        to_ticks(options.start_time, unit, "startTime", up=True),
        to_ticks(options.end_time, unit, "endTime"),
    )


def to_ticks(
    time: int | datetime.datetime | None, unit: TimeUnit | None, option: str, *, up: bool = False
) -> int | None:
    """A time in the unit of the files; a moment between two ticks is the earlier, or the later.

    Raises:
        UsageError: it is a moment, and the unit is not known.
    """
    if time is None or isinstance(time, int):
        return time
    if unit is None:
        raise UsageError(
            f"option {option} = {time.isoformat()!r}: expected together with timeUnit, or as an "
            "integer in the unit of the files"
        )
    since = time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    micro = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
    ticks, rest = divmod(micro * TICKS[unit], 10**6)
    return ticks + 1 if up and rest else ticks
