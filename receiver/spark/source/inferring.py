"""From options to files, columns and a plan: what happens before a job starts."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from common.errors import NotFoundError, TsferryError, UsageError
from common.tsfile import Status, Tail, read_tail
from receiver.metadata.model.ranks import NOW
from receiver.spark.finder import DataFile, list_files
from receiver.spark.source.forms_given.asked_form import form_of
from receiver.spark.source.kept_catalogue import of_planner
from receiver.spark.source.read_plans.picking import (
    DATA_TYPE,
    DEVICE,
    MEASUREMENT,
    TAG_PREFIX,
    Picker,
)
from receiver.spark.source.read_plans.read_plan import ReadPlan
from receiver.spark.source.read_plans.result_columns import ResultColumn, WideSchema, long_columns
from receiver.spark.source.read_plans.selection import Condition, Selection, TimeRange
from receiver.spark.source.read_plans.source_options import SourceOptions, bounds
from receiver.spark.standing_in import with_stand_ins
from receiver.spark.value_types import LONG_VALUES
from receiver.storage.reading.stored_place import StoreAddress

if TYPE_CHECKING:
    from receiver.spark.catalogue import Catalogue

__all__ = [
    "catalogue_of",
    "columns_of",
    "constant_columns",
    "list_sources",
    "plan_of",
    "read_tail_of",
    "selection_of",
    "wanted_of",
    "with_unit",
]


_TAIL = 2 << 20
"""Bytes that are read for a tail, about."""
_log = logging.getLogger(__name__)


def list_sources(options: SourceOptions) -> list[DataFile]:
    """The files that a batch query is about.

    Raises:
        UsageError: a path leads to nothing, or the catalogue cannot be opened.
        HistoryGoneError: ``asOf`` is before the kept history.
    """
    if options.catalog is None:
        return list_files(options.paths, options.kind, required=True, name_glob=options.name_glob)
    shown = options.token, options.ca_cert, options.client_cert, options.client_key
    asked = options.kind, options.data_dirs, *shown, options.receiver
    with of_planner.opened(
        options.catalog, (*asked, _store_of(options)), partial(catalogue_of, options)
    ) as kept:
        catalogue = kept.catalogue
        at = catalogue.at(options.as_of)
        stand_ins = catalogue.stand_ins(at) if _reads_compacted(options, catalogue) else []
        if options.kind == "all" and options.retired:  # so all that they stand for is wanted
            names = frozenset(name for each in stand_ins for name in each.inputs)
            outputs = [file for each in stand_ins for file in each.outputs]
            return [*kept.files(at, names), *outputs]
        return with_stand_ins(wanted_of(options, kept.files(at)), stand_ins)


def _reads_compacted(options: SourceOptions, catalogue: Catalogue) -> bool:
    """Whether merged files give what is asked for, and workers have them too."""
    if options.compacted != "auto":
        return options.compacted == "true"
    if not (options.merge and options.deletions) or options.file_column is not None:
        return False
    # Workers that have no disk of the receiver read its files from the store, where none of these
    # is: unless it was said how they are had.
    return not catalogue.has_store or bool(options.data_dirs or options.receiver)


def wanted_of(options: SourceOptions, files: Iterable[DataFile]) -> list[DataFile]:
    """Without the retired files, if the options leave them out."""
    return [each for each in files if options.retired or each.standing.last == NOW]


def catalogue_of(options: SourceOptions) -> Catalogue:
    """The catalogue that the options name; see `open_catalogue`."""
    from receiver.spark.catalogue_opening import open_catalogue

    return open_catalogue(
        options.catalog or "",
        kind=options.kind,
        data_dirs=options.data_dirs,
        token=options.token,
        ca_cert=options.ca_cert,
        client_cert=options.client_cert,
        client_key=options.client_key,
        store=_store_of(options),
        receiver=options.receiver,
    )


def _store_of(options: SourceOptions) -> StoreAddress | None:
    if options.store is None:
        return None
    return StoreAddress(
        options.store,
        endpoint=options.store_endpoint,
        region=options.store_region,
        path_style=options.store_path_style,
    )


def with_unit(options: SourceOptions) -> SourceOptions:
    """Options with the unit of the times, where the catalogue's configuration knows it."""
    if options.catalog is None or options.time_unit is not None:
        return options
    from receiver.spark.catalogue_opening import unit_of

    return replace(options, time_unit=unit_of(options.catalog))


def selection_of(options: SourceOptions) -> Selection:
    """What the options alone select, but for devices and columns, which `Picker` knows.

    Raises:
        UsageError: a time is given as a moment, and the unit of the files is not known.
    """
    span = TimeRange().cut(*bounds(options))
    tags = (
        Condition(f"{TAG_PREFIX}{name.lower()}", "OneOf", values) for name, values in options.tags
    )
    return Selection(span, tuple(tags))


def columns_of(options: SourceOptions) -> list[ResultColumn]:
    """The columns of the result; the wide form reads the tail of every file for them.

    Raises:
        UsageError: they cannot be made.
    """
    options = with_unit(options)
    selection = selection_of(options)
    if options.form == "long":
        columns = long_columns(options)
        if options.catalog is None:
            list_files(options.paths, required=True)  # a path that leads to nothing is said at once
        return columns
    # Times do not matter here: the columns of a query do not depend on where it looks.
    picker = Picker(options, replace(selection, span=TimeRange()))
    schema = WideSchema(options)
    broken: list[str] = []
    files = [each for each in list_sources(options) if picker.takes_file(each)]
    for file, tail in _tails_of(files):
        if tail is not None and tail.status is Status.COMPLETE:
            schema.add(file.name, file.database, tail, picker)
        else:
            broken.append(file.why_absent() if tail is None else f"{file.name}: {tail.reason}")
    if broken and not schema.files:
        raise UsageError(f"form = 'wide': no file shows its columns: {broken[0]}")
    return schema.columns()


def read_tail_of(file: DataFile) -> Tail | None:
    """The tail of a file, its structure checked: all of its series can be decoded.

    None where it cannot be read: its task will say why.
    """
    try:
        return _tail_of(file)
    except TsferryError as error:
        _log.warning("%s is planned without its index: %s", file.name, error)
        return None


def _tail_of(file: DataFile) -> Tail | None:
    for path in file.locations:
        try:
            return read_tail(path)
        except OSError:
            continue
    if file.place is None:
        return None
    from receiver.spark.late_uploads import place_again, place_now
    from receiver.storage.reading.open_stores import of_process

    place = place_now(file.place)
    try:
        with of_process.file(place) as source:
            return read_tail(source)
    except NotFoundError as error:
        with of_process.file(place_again(place, error)) as source:
            return read_tail(source)


def _tails_of(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, Tail | None]]:
    """Each with its tail; those of the store are fetched ahead.

    Raises:
        TsferryError: of the store: without one of the files columns might be missing.
    """
    if all(each.place is None for each in files):
        yield from ((each, _tail_of(each)) for each in files)
        return
    from receiver.storage.reading.open_stores import of_process
    from receiver.storage.reading.prefetching import fetched_ahead

    for file, tail in fetched_ahead(files, _tail_of, lambda _: _TAIL, of_process.pool):
        yield file, tail()


def plan_of(options: SourceOptions, columns: Sequence[ResultColumn]) -> ReadPlan:
    """What tasks need to know, checked as far as can be without a file.

    Raises:
        UsageError: a column cannot be had.
    """
    options = with_unit(options)
    own = {options.time_column, options.device_column, options.file_column, options.error_column}
    if options.form == "wide" and options.columns is None:
        # A schema that was given is a choice of columns: only those are decoded.
        options = replace(
            options, columns=tuple(each.name for each in columns if each.name not in own) or None
        )
    plan = ReadPlan(options, selection_of(options), tuple(columns))
    form_of(plan)  # looks at the columns
    return plan


def constant_columns(options: SourceOptions, tags: Collection[str]) -> Mapping[str, str]:
    """Columns that do not change within a series, in lower case, as conditions call them."""
    found = {options.device_column.lower(): DEVICE}
    if options.form == "long":
        found |= {MEASUREMENT: MEASUREMENT, DATA_TYPE: DATA_TYPE}
        found |= {each: each for each in LONG_VALUES}
    else:
        found |= {each.lower(): f"{TAG_PREFIX}{each.lower()}" for each in tags}
    return found
