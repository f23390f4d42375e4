"""What the old sync tool leaves behind, at both ends: written as its servers write it.

The facts are in docs/formats.md. Nothing here is shared with what reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.java_map import java_map

UUID = "a45b6e63eb434aad891264b5c08d448e"
OTHER = "0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f"
RECEIVER = "192.168.130.16_5555"


def lay(root: Path, files: Mapping[str, bytes]) -> Path:
    """Files below a directory."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return root


def tree_of(root: Path) -> dict[str, bytes]:
    """All that lies below a directory, to compare it with what it was."""
    return {
        each.relative_to(root).as_posix(): each.read_bytes()
        for each in sorted(root.rglob("*"))
        if each.is_file()
    }


@dataclass
class OldReceiverTree:
    """The directories of a server that was an old receiver: `data/data` and `data/system`."""

    home: Path

    @property
    def root(self) -> Path:
        return self.home / "data"

    def loaded(self, files: Mapping[str, bytes]) -> None:
        """Files among the server's own, by their paths there."""
        lay(self.root / "data", files)

    def owners(self, pairs: Mapping[str, str], name: str = "device_owner") -> Path:
        """Device -> owner, as the server writes it."""
        where = self.root / "system" / "sync" / name
        lay(where.parent, {name: java_map(pairs)})
        return where

    def received(self, uuid: str, address: str, files: Mapping[str, bytes]) -> Path:
        """What a round had brought when it was cut off: `data/<group>/<path from the group on>`."""
        folder = self.root / "data" / "sync-receiver" / f"{address}_{uuid}"
        lay(folder, {})
        lines = ["sync deleted file names start", "sync tsfile start"]
        for path, content in files.items():
            inner = path.partition("/")[2]
            place = f"data/{inner.partition('/')[0]}/{inner}"
            lay(folder, {place: content})
            lines.append(str(folder / place))
        lay(folder, {"sync.log": "".join(f"{each}\n" for each in lines).encode()})
        return folder


def name_of(uuid: str = UUID, address: str = "192.168.130.14") -> str:
    """The owner of a device, as 0.10 and 0.11 have it."""
    return f"{address}_{uuid}"


@dataclass
class OldSenderTree:
    """What the tool keeps at an edge, beside the files of its database."""

    data: Path
    system: Path
    receiver: str = RECEIVER

    @property
    def folder(self) -> Path:
        return self.data / "sync-sender" / self.receiver

    def identity(self, uuid: str = UUID) -> None:
        """No line break follows it."""
        lay(self.system / "sync", {"uuid.txt": uuid.encode()})

    def schema_position(self, text: str) -> None:
        """A number without a line break."""
        lay(self.system / "sync" / self.receiver, {"sync_schema_pos": text.encode()})
        lay(self.system / "sync" / self.receiver, {"sync_lock": b""})

    def listed(self, paths: Iterable[str], name: str = "last_local_files.txt") -> None:
        """Absolute paths, a line each, in no order."""
        lines = "".join(f"{self.data / path}\n" for path in paths)
        lay(self.folder, {name: lines.encode()})

    def cut_off(self, deleted: Iterable[str], sent: Iterable[str]) -> None:
        """The log of a round that did not come to its end."""
        lines = ["sync deleted file names start", *(str(self.data / each) for each in deleted)]
        lines += ["sync tsfile start", *(str(self.data / each) for each in sent)]
        lay(self.folder, {"sync.log": "".join(f"{each}\n" for each in lines).encode()})
