"""The one text of a statement; `parse` undoes it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from receiver.metadata.commit.operations import NewSeries
from receiver.metadata.model import alterations as alter
from receiver.metadata.model.paths import Nodes, Pattern, format_path
from receiver.metadata.query import questions as query
from receiver.metadata.sql import statements as sql

__all__ = ["format_statement", "quote_name", "quote_text"]


def format_statement(statement: sql.Statement) -> str:
    """The text of a statement, on one line unless a name has a line break."""
    return _FORMS[type(statement)](statement)


def quote_name(name: str) -> str:
    """A name as a statement has it: in back-ticks unless it is a plain word."""
    if name.isascii() and name.replace("_", "a").isalnum():
        return name
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """A value as a statement has it."""
    return "'" + text.replace("'", "''") + "'"


# -- parts -----------------------------------------------------------------------------------------


def _words(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _paths(paths: Iterable[Nodes]) -> str:
    return ", ".join(map(format_path, paths))


def _patterns(patterns: Iterable[Pattern]) -> str:
    return ", ".join(pattern.text for pattern in patterns)


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{quote_name(key)}={quote_text(value)}" for key, value in values.items())


def _labels(tags: Mapping[str, str], attributes: Mapping[str, str]) -> str:
    return _words(
        f"tags({_pairs(tags)})" if tags else "",
        f"attributes({_pairs(attributes)})" if attributes else "",
    )


def _at(at: query.At) -> str:
    if at is None:
        return ""
    if isinstance(at, datetime.datetime):  # the same moment wherever it is read
        return f"at {at.astimezone(datetime.UTC).isoformat()}"
    return f"at {at}"


def _part(asked: query.ShowTimeseries | Any) -> str:
    return _words(
        "" if asked.limit is None else f"limit {asked.limit}",
        f"offset {asked.offset}" if asked.offset else "",
        _at(asked.at),
    )


def _where(where: query.TagFilter | None) -> str:
    if where is None:
        return ""
    sign = "contains" if where.contains else "="
    return f"where {quote_name(where.key)} {sign} {quote_text(where.value)}"


# -- what changes the schema -----------------------------------------------------------------------


def _settings(series: NewSeries, separator: str) -> str:
    settings = []
    if series.encoding is not None:
        settings.append(f"encoding={series.encoding.name}")
    if series.compression is not None:
        settings.append(f"compression={series.compression.name}")
    # Back-ticks in any case: a setting may have the name of a keyword.
    settings += [
        f"`{key.replace('`', '``')}`={quote_text(value)}" for key, value in series.props.items()
    ]
    return separator.join(settings)


def _alias(series: NewSeries) -> str:
    return "" if series.alias is None else f"({quote_name(series.alias)})"


def _create(statement: sql.CreateTimeseries) -> str:
    series = statement.series
    settings = _settings(series, ", ")
    return _words(
        f"create timeseries {format_path((*statement.device, series.name))}{_alias(series)}",
        f"with datatype={series.type.name}{', ' if settings else ''}{settings}",
        _labels(series.tags, series.attributes),
    )


def _create_aligned(statement: sql.CreateAligned) -> str:
    every = ", ".join(
        _words(
            f"{quote_name(series.name)}{_alias(series)} {series.type.name}",
            _settings(series, " "),
            _labels(series.tags, series.attributes),
        )
        for series in statement.series
    )
    return f"create aligned timeseries {format_path(statement.device)}({every})"


def _set_ttl(statement: sql.SetTtl) -> str:
    path = format_path(statement.path)
    return f"unset ttl to {path}" if statement.ttl is None else f"set ttl to {path} {statement.ttl}"


def _partitions(parts: sql.TablePartitions) -> str:
    if parts.splits:
        return f"partitions at ({', '.join(map(str, parts.splits))})"
    if parts.begin is None:
        return ""
    every = "" if parts.every is None else f" every {parts.every}"
    return f"partitions from {parts.begin} to {parts.end}{every}"


def _create_table(statement: sql.CreateTable) -> str:
    replicas = "" if statement.replicas is None else f"replicas = {statement.replicas}"
    parts = ", ".join(filter(None, (_partitions(statement.partitions), replicas)))
    text = f"create table {format_path(statement.path)}"
    return f"{text} with ({parts})" if parts else text


def _alter_table(statement: sql.AlterTable) -> str:
    text = f"alter table {format_path(statement.path)}"
    if statement.as_configured:
        return f"{text} set replicas = default"
    if statement.replicas is not None:
        return f"{text} set replicas = {statement.replicas}"
    return f"{text} add {_partitions(statement.partitions)}"


def _load_files(statement: sql.LoadFiles) -> str:
    text = "load " + ", ".join(map(quote_text, statement.paths))
    if statement.owners:
        text += " as " + ", ".join(map(quote_text, statement.owners))
    if statement.group is not None:
        text += f" into {quote_text(statement.group)}"
    return f"{text} on duplicate {statement.on_duplicate}"


def _set_upload(statement: sql.SetUpload) -> str:
    path = format_path(statement.path)
    if statement.after is None:
        return f"unset upload to {path}"
    when = {-1: "never", 0: "at once"}.get(statement.after, f"after {statement.after}")
    return f"set upload to {path} {when}"


def _alter(statement: sql.AlterTimeseries) -> str:
    change = _ALTERATIONS[type(statement.alteration)](statement.alteration)
    return f"alter timeseries {format_path(statement.path)} {change}"


def _upsert(change: alter.Upsert) -> str:
    alias = "" if change.alias is None else f"alias={quote_name(change.alias)}"
    return _words("upsert", alias, _labels(change.tags, change.attributes))


_ALTERATIONS: dict[type, Callable[[Any], str]] = {
    alter.Rename: lambda change: f"rename {quote_name(change.old)} to {quote_name(change.new)}",
    alter.SetValues: lambda change: f"set {_pairs(change.values)}",
    alter.Drop: lambda change: f"drop {', '.join(map(quote_name, change.keys))}",
    alter.AddTags: lambda change: f"add tags {_pairs(change.tags)}",
    alter.AddAttributes: lambda change: f"add attributes {_pairs(change.attributes)}",
    alter.Upsert: _upsert,
}

# -- what asks -------------------------------------------------------------------------------------


def _show_timeseries(asked: query.ShowTimeseries) -> str:
    heat = "order by heat" if asked.by_heat else ""
    return _words("show timeseries", asked.pattern.text, _where(asked.where), heat, _part(asked))


def _list(what: str) -> Callable[[Any], str]:
    return lambda asked: _words(f"show {what}", asked.pattern.text, _part(asked))


def _count(what: str) -> Callable[[Any], str]:
    return lambda asked: _words(f"count {what}", asked.pattern.text, _at(asked.at))


def _count_timeseries(asked: query.CountTimeseries) -> str:
    level = "" if asked.level is None else f"group by level={asked.level}"
    return _words("count timeseries", asked.pattern.text, _where(asked.where), level, _at(asked.at))


def _count_nodes(asked: query.CountNodes) -> str:
    return _words("count nodes", asked.pattern.text, f"level={asked.level}", _at(asked.at))


def _show_ttl(asked: query.ShowTtl) -> str:
    on = f"on {_patterns(asked.groups)}" if asked.groups else ""
    return _words("show ttl", on, _at(asked.at))


def _show_upload(asked: query.ShowUpload) -> str:
    return _words("show upload", f"on {_patterns(asked.groups)}" if asked.groups else "")


def _show_tag_values(asked: query.ShowTagValues) -> str:
    key = "" if asked.key is None else f"with key={quote_name(asked.key)}"
    return _words("show tag values", asked.pattern.text, key, _part(asked))


def _delete_groups(asked: sql.DeleteStorageGroups) -> str:
    data = "with data" if asked.with_data else ""
    allowed = "" if asked.allowed is None else f"'{asked.allowed}'"
    return _words(f"delete storage group {_patterns(asked.patterns)}", data, allowed)


_FORMS: dict[type, Callable[[Any], str]] = {
    sql.BeginTransaction: lambda _: "begin",
    sql.CommitTransaction: lambda _: "commit",
    sql.RollBackTransaction: lambda _: "rollback",
    sql.ShowTransactions: lambda _: "show transactions",
    sql.CreateSnapshot: lambda _: "create snapshot for schema",
    sql.SetStorageGroups: lambda each: f"set storage group to {_paths(each.paths)}",
    sql.DeleteStorageGroups: lambda each: _delete_groups(each),
    sql.CreateTimeseries: _create,
    sql.CreateAligned: _create_aligned,
    sql.DeleteTimeseries: lambda each: f"delete timeseries {_patterns(each.patterns)}",
    sql.SetTtl: _set_ttl,
    sql.SetUpload: _set_upload,
    sql.CreateTable: _create_table,
    sql.AlterTable: _alter_table,
    sql.LoadFiles: _load_files,
    sql.AlterTimeseries: _alter,
    query.ShowTimeseries: _show_timeseries,
    query.ShowDevices: _list("devices"),
    query.ShowStorageGroups: _list("storage group"),
    query.ShowChildPaths: _list("child paths"),
    query.ShowChildNodes: _list("child nodes"),
    query.ShowFiles: _list("files"),
    query.ShowPartitions: _list("partitions"),
    query.ShowCacheSlots: lambda asked: _words("show cache slots", _part(asked)),
    query.ShowStorageNodes: lambda asked: _words("show nodes", _part(asked)),
    query.ShowTasks: lambda asked: _words("show tasks", _part(asked)),
    query.ShowTtl: _show_ttl,
    query.ShowUpload: _show_upload,
    query.ShowTagKeys: _list("tag keys"),
    query.ShowTagValues: _show_tag_values,
    query.CountTimeseries: _count_timeseries,
    query.CountDevices: _count("devices"),
    query.CountStorageGroups: _count("storage group"),
    query.CountNodes: _count_nodes,
}
