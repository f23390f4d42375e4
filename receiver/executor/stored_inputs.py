"""Files of a receiver read from its object store, where that has them: else it gives them itself.

Which objects they are is asked of the receiver, a thousand at a time; with which credentials the
store is read is a matter of this process, and of nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common import wire
from receiver.metadata.state.uploaded_rows import UploadedRow
from receiver.storage.cache.stored_files import place_of
from receiver.storage.reading.file_tiers import FileTiers, ShutStores
from receiver.storage.reading.open_stores import OpenStores
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress, StoredPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.executor.worker_calls import AsksServer
    from receiver.storage.reading.receiver_reads import ReceiverReads
    from receiver.superseding.asking import FileAsked

__all__ = ["StoredInputs"]

_AT_ONCE: Final = 1000


class StoredInputs:
    """Reads files of tasks; any thread may call `read`."""

    def __init__(
        self, calls: AsksServer, receiver: ReceiverReads, address: ReceiverAddress
    ) -> None:
        """Ask nothing yet.

        Args:
            calls: to the receiver.
            receiver: gives what the store does not.
            address: of the receiver.
        """
        self._calls = calls
        self._receiver = receiver
        self._address = address
        self._stores = OpenStores()
        self._shut = ShutStores()
        self._places: dict[str, StoredPlace] = {}

    def expect(self, files: Sequence[FileAsked]) -> None:
        """Hear which files are read next, in place of those before.

        Raises:
            TsferryError: as the receiver refused to say where they are.
        """
        self._places = {}
        for low in range(0, len(files), _AT_ONCE):
            some = {each.physical: each for each in files[low : low + _AT_ONCE]}
            path, kind = f"{wire.BASE}/catalogue/objects", {"Content-Type": "application/json"}
            body = wire.encode(wire.ObjectsRequest(paths=list(some)))
            answer = wire.decode(
                self._calls.ask("POST", path, {}, kind, body).body,
                wire.ObjectsAnswer,
                f"answer to {path}",
            )
            if answer.store is None:
                return
            store = StoreAddress(
                answer.store.url,
                endpoint=answer.store.endpoint,
                region=answer.store.region,
                path_style=answer.store.path_style,
            )
            for physical, found in answer.objects.items():
                there = UploadedRow(
                    created=0,
                    changed=0,
                    physical=physical,
                    incarnation=found.incarnation,
                    size=some[physical].size,
                    digests=found.digests,
                    again=found.again,
                )
                self._places[physical] = place_of(
                    store, answer.engine, there, some[physical].md5, self._address
                )

    def read(self, physical: str, begin: int, length: int) -> bytes:
        """So many bytes at an offset; whoever reads all of a file compares it.

        Raises:
            TsferryError: neither the store gives them, nor the receiver.
        """
        place = self._places.get(physical)
        if place is None:
            return self._receiver.read(physical, begin, length)
        tiers = FileTiers(place, self._stores.store, self._receiver, self._shut)
        return tiers.read(place.key, begin, length)
