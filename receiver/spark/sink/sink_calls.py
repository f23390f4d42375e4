"""Calls of a write to its receiver: by a token of each process's own environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from common import wire
from common.digests import md5 as new_md5
from common.digests import xxh3_64
from common.errors import TsferryError, UsageError
from receiver.operator.centre.load_owners import named_owners
from receiver.operator.views.load_wire import CentreLoadAnswer
from receiver.operator.views.write_wire import (
    KnownDevice,
    KnownDevicesAnswer,
    KnownDevicesRequest,
    StagedPart,
    WriteCommit,
    WriteOpened,
    WriteRequest,
)
from receiver.storage.reading.reader_calls import OPTION_NAMES, ReaderCalls, shown_certificate

if TYPE_CHECKING:
    from receiver.spark.sink.sink_options import SinkOptions

__all__ = ["SentPart", "WriteCalls", "writer_token"]

T = TypeVar("T")

_TOKEN: Final = "TSFERRY_WRITER_TOKEN"  # noqa: S105  # names of variables, not what is in them
_TOKEN_PATH: Final = "TSFERRY_WRITER_TOKEN_FILE"  # noqa: S105
_PATIENCE: Final = 60.0
"""Seconds for which a receiver that cannot now is asked again."""
_COMMIT_PATIENCE: Final = 900.0
_PAUSE: Final = 0.5
_BLOCK: Final = 4 << 20
_DEVICES: Final = 1000
_JSON: Final = "application/json"


def writer_token(environ: Mapping[str, str], file: str | None) -> str | None:
    """The token of this process; None if neither its environment nor an option says one.

    Args:
        environ: of the process.
        file: that has it, by an option.

    Raises:
        UsageError: the file cannot be read.
    """
    if file is None and environ.get(_TOKEN):
        return environ[_TOKEN].strip()
    file = file or environ.get(_TOKEN_PATH)
    if not file:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: expected a readable file with a token: {error}") from error


class WriteCalls:
    """Asks about one write; each of its calls may be made twice."""

    def __init__(
        self,
        options: SinkOptions,
        task: str,
        environ: Mapping[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            options: of the write.
            task: its id.
            environ: that the token is in.
            sleep: waits for so many seconds.
            monotonic: seconds.

        Raises:
            UsageError: there is no token, or it would travel where others can read it.
        """
        certificate = shown_certificate(
            options.client_cert, options.client_key, options.ca_cert, OPTION_NAMES
        )
        token = None
        if certificate is None or options.token_file is not None:
            token = writer_token(environ, options.token_file)
        if token is None and certificate is None:
            raise UsageError(
                f"option receiver = {options.receiver!r}: a write needs a writer's token: "
                f"{_TOKEN} or {_TOKEN_PATH} in the environment of driver and workers, or option "
                "tokenFile; or a certificate: options clientCert and clientKey"
            )
        self.task = task
        self._calls = ReaderCalls(
            options.receiver,
            token=token,
            ca_cert=options.ca_cert,
            certificate=certificate,
            what="option receiver",
        )
        self._sleep, self._monotonic = sleep, monotonic

    def open(self, owners: Sequence[str], on_duplicate: str) -> WriteOpened:
        """Begin the write.

        Raises:
            TsferryError: as the receiver refused it.
        """
        owner, others = named_owners(owners)
        body = WriteRequest(owner=owner, others=others, on_duplicate=on_duplicate)
        return self._ask("PUT", "", WriteOpened, body)

    def known(self, devices: Sequence[str]) -> list[KnownDevice]:
        """What is known of devices, in their order.

        Raises:
            TsferryError: as the receiver refused it.
        """
        found: list[KnownDevice] = []
        for low in range(0, len(devices), _DEVICES):
            body = KnownDevicesRequest(devices=list(devices[low : low + _DEVICES]))
            found += self._ask("POST", "/devices", KnownDevicesAnswer, body).devices
        return found

    def put(self, attempt: str, number: int, offset: int, content: bytes) -> None:
        """A block of a file.

        Raises:
            TsferryError: as the receiver refused it.
        """
        query: dict[str, str | int | None] = {"offset": offset, "xxh3": xxh3_64(content)}
        path, media = f"/parts/{attempt}/{number}", {"Content-Type": "application/octet-stream"}
        self._patiently(lambda: self._calls.ask("PUT", self._at(path), query, media, content).body)

    def commit(self, parts: Sequence[StagedPart]) -> CentreLoadAnswer:
        """Load files, all in one commit or none: what became of each, when all is over.

        Raises:
            TsferryError: as the receiver refused it; nothing is loaded, but where it does not
                answer: then it is not known.
        """
        body = WriteCommit(parts=list(parts))
        answer = self._ask("POST", "/commit", CentreLoadAnswer, body, _COMMIT_PATIENCE)
        while not answer.done:
            answer = self._ask("POST", "/commit", CentreLoadAnswer, body, _COMMIT_PATIENCE)
        return answer

    def drop(self) -> None:
        """End the write with nothing.

        Raises:
            TsferryError: as the receiver refused it.
        """
        self._patiently(lambda: self._calls.ask("DELETE", self._at(""), {}).body)

    def close(self) -> None:
        """Let go of connections."""
        self._calls.close()

    def _at(self, path: str) -> str:
        return f"/v1/writes/{self.task}{path}"

    def _ask(
        self, method: str, path: str, kind: type[T], body: wire.Struct, patience: float = _PATIENCE
    ) -> T:
        content, at = wire.encode(body), self._at(path)
        got = self._patiently(
            lambda: self._calls.ask(method, at, {}, {"Content-Type": _JSON}, content).body, patience
        )
        return wire.decode(got, kind, f"answer to {at}")

    def _patiently(self, call: Callable[[], bytes], patience: float = _PATIENCE) -> bytes:
        until = self._monotonic() + patience
        while True:
            try:
                return call()
            except TsferryError as error:
                if not error.retry or self._monotonic() >= until:
                    raise
                self._sleep(min(error.retry_after or _PAUSE, 5.0))


class SentPart:
    """A file on its way: what is written to it goes in blocks, and is not kept here."""

    def __init__(self, calls: WriteCalls, attempt: str, number: int, block: int) -> None:
        """Send nothing yet.

        Args:
            calls: of the write.
            attempt: id of this attempt of the task.
            number: of the file in it.
            block: bytes that the receiver takes at once, at most.
        """
        self._calls, self._attempt, self._number = calls, attempt, number
        self._block = min(block, _BLOCK)
        self._waiting = bytearray()
        self._sent = 0
        self._md5 = new_md5()

    def write(self, content: bytes) -> None:
        """More of it."""
        self._md5.update(content)
        self._waiting += content
        while len(self._waiting) >= self._block:
            self._send(self._block)

    def finish(self, group: str, partition: int) -> StagedPart:
        """The rest of it; what is said of it at the commit."""
        while self._waiting:
            self._send(self._block)
        return StagedPart(
            attempt=self._attempt,
            number=self._number,
            group=group,
            partition=partition,
            size=self._sent,
            md5=self._md5.hexdigest(),
        )

    def _send(self, size: int) -> None:
        block = bytes(self._waiting[:size])
        self._calls.put(self._attempt, self._number, self._sent, block)
        del self._waiting[:size]
        self._sent += len(block)
