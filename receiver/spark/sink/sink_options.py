"""The options of a write: names, defaults, and what is wrong with a value."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from common.errors import NameRefusedError, UsageError
from common.names import check_component
from common.tsfile import split_database
from receiver.spark.option_values import (
    WrongValueError,
    boolean,
    byte_size,
    name_text,
    names,
    one_of,
    receiver_url,
)

__all__ = ["SinkOptions", "parse_sink_options"]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What is to become of the rows; each attribute is an option (``on_duplicate``: onDuplicate).

    Attributes:
        receiver: its URL.
        token_file: file with the token of a writer or an operator, on the driver and each worker.
        ca_cert: PEM file that the server is checked against.
        client_cert: PEM certificate that it is shown in the place of a token, on the driver and
            each worker.
        client_key: PEM private key of that, likewise.
        owners: of ``as``: uuids or labels of the senders whose devices they are, of which the first
            gets those that nobody owns; none: as the token says, or the centre.
        on_duplicate: what becomes of points that are there already.
        form: of the rows.
        table: that rows of the wide form are of, perhaps behind its database.
        tag_columns: names of its tags, in order; None: as the metadata of the columns says.
        group: of ``sg``: storage group, or database, of devices that are in none.
        aligned: whether new devices of the tree model share their times.
        time_column: its name.
        device_column: the same.
        buffer_bytes: of rows that a task sorts in memory at once.
        constraints: names of those that rows have to pass.
    """

    receiver: str
    token_file: str | None = None
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    owners: tuple[str, ...] = ()
    on_duplicate: Literal["error", "keep", "replace", "skip"] = "error"
    form: Literal["long", "wide"] = "wide"
    table: str | None = None
    tag_columns: tuple[str, ...] | None = None
    group: str | None = None
    aligned: bool = False
    time_column: str = "time"
    device_column: str = "device"
    buffer_bytes: int = 64 << 20
    constraints: tuple[str, ...] = ()

    @property
    def database(self) -> str | None:
        """Of the table; None where nothing says."""
        database = None if self.table is None else split_database(self.table)[0]
        return database or self.group

    @property
    def table_name(self) -> str | None:
        """Without its database."""
        return None if self.table is None else split_database(self.table)[1]


def _group(text: str) -> str:
    try:
        return check_component(text, "storage group")
    except NameRefusedError as error:
        raise WrongValueError(f"expected a storage group or a database ({error})") from error


_KNOWN: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "receiver": ("receiver", receiver_url),
    "tokenFile": ("token_file", name_text),
    "caCert": ("ca_cert", name_text),
    "clientCert": ("client_cert", name_text),
    "clientKey": ("client_key", name_text),
    "as": ("owners", names),
    "onDuplicate": ("on_duplicate", one_of("error", "keep", "replace", "skip")),
    "form": ("form", one_of("long", "wide")),
    "table": ("table", name_text),
    "tagColumns": ("tag_columns", names),
    "sg": ("group", _group),
    "aligned": ("aligned", boolean),
    "timeColumn": ("time_column", name_text),
    "deviceColumn": ("device_column", name_text),
    "bufferBytes": ("buffer_bytes", byte_size),
    "constraints": ("constraints", names),
}
_BY_LOWER: Final = {name.lower(): name for name in _KNOWN}
_REFUSED: Final = {
    "path": "rows go to a receiver, not into a directory: expected option receiver, and save()",
    "token": "who sees the plan of a query would read it: expected TSFERRY_WRITER_TOKEN in the "
    "environment of driver and workers, or option tokenFile",
    "catalog": "expected option receiver, the URL of the server that writes",
}


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check what Spark was given.

    Raises:
        UsageError: names the option, its value and what was expected.
    """
    found: dict[str, Any] = {}
    for key, text in given.items():
        if (why := _REFUSED.get(key.lower())) is not None:
            raise UsageError(f"option {key} of a write: {why}")
        name = _BY_LOWER.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), _BY_LOWER, 1)
            meant = f"; is {_BY_LOWER[near[0]]} meant?" if near else ""
            raise UsageError(
                f"option {key} = {text!r}: a write has no such option{meant} "
                f"(expected one of {', '.join(_KNOWN)})"
            )
        attribute, parse = _KNOWN[name]
        try:
            found[attribute] = parse(str(text))
        except WrongValueError as wrong:
            raise UsageError(f"option {name} = {text!r}: {wrong}") from None
    if "receiver" not in found:
        raise UsageError("option receiver: missing; expected the URL of a receiver")
    options = SinkOptions(**found)
    if options.form == "long" and options.table is not None:
        raise UsageError(
            f"option table = {options.table!r}: the long form has the table in each device's name"
        )
    return options
