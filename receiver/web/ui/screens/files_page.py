"""Loaded files: searched, as they are or as they were at a time; and one of them."""

from __future__ import annotations

import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final

from common.config.shared_rules import PER_MILLISECOND
from common.errors import NotFoundError, UsageError
from common.text_numbers import signed_number
from receiver.operator.stored.file_search import SEARCHED_STATES, FileSearch, search_files
from receiver.operator.stored.files import view_of_file
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_SIZES: Final = ("50", "100", "200")
_DEVICES: Final = 200


@ROUTES.page("/ui/files", "Loaded files")
def files_page(page: PageCall) -> Response:
    """Loaded files."""
    edge, at = page.query("edge"), page.query("at")
    begin, end = page.query("begin"), page.query("end")
    search = FileSearch(
        prefix=page.query("path"),
        state=page.chosen("state", SEARCHED_STATES),
        sender=page.edge_named(edge) if edge else None,
        begin=_data_time(begin, page.time_unit, "begin"),
        end=_data_time(end, page.time_unit, "end"),
        at=at or None,
        after=page.query("after") or None,
        count=int(page.chosen("count", _SIZES)),
    )
    page.call.answering.reach(page.engine.timestamp_at(_asked(at)))
    found = search_files(page.there, search)
    labels = {each: page.label_of(each) for each in {file.sender for file in found.files}}
    asked = {
        "path": search.prefix,
        "state": search.state if search.state != SEARCHED_STATES[0] else "",
        "edge": edge,
        "begin": begin,
        "end": end,
        "at": at,
        "count": search.count if search.count != int(_SIZES[0]) else "",
    }
    return page.shown(
        "files.html",
        "Files",
        found=found,
        search=search,
        asked=asked,
        labels=labels,
        states=SEARCHED_STATES,
    )


@ROUTES.page("/ui/file", "One file")
def file_page(page: PageCall) -> Response:
    """One file."""
    physical = page.query("physical")
    with page.engine.reading() as state:
        row = state.files.get(physical)
    if row is None:
        raise NotFoundError(f"there is no file {physical[:200]!a}")
    times = {name: span for name, *span in islice(row.devices.ranges(), _DEVICES)}
    none = (None, None)  # without points, or deleted
    devices = [(name, *times.get(name, none)) for name in islice(row.devices, _DEVICES)]
    return page.shown(
        "file.html",
        "File",
        file=view_of_file(row, page.there),
        label=page.label_of(row.sender),
        version=row.version,
        devices=devices,
        names=row.paths,
        rests=row.rests,
    )


def _asked(at: str) -> int | datetime.datetime | None:
    from receiver.metadata.sql.executing import moment

    found = moment(at or None)
    return found if isinstance(found, int | datetime.datetime) else None


def _data_time(text: str, unit: str, name: str) -> int | None:
    """A time of the data: a date, or a number in the unit of the files."""
    text = text.strip()
    if not text:
        return None
    number = signed_number(text)
    if number is not None:
        return number
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{name}: {text[:40]!a} is no time; expected 2026-01-31, 2026-01-31T08:00:00Z, or a "
            "number in the unit of the files"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000) * PER_MILLISECOND[unit]
