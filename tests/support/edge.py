"""An edge for tests: a data directory with valid TsFiles, a configuration, rounds."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import msgspec

from common.config import Secret
from sender.config import ReceiverEntry, SenderConfig, TransferConfig
from sender.kept import identity
from sender.round.freed_files.freeing import Freeing, FreeOptions, FreeReport
from sender.round.round import Round, RoundOptions
from sender.round.round_words.round_report import RoundReport
from sender.select.data_dirs import mark
from sender.select.known_digests import KnownDigests
from sender.send.remote import Remote
from tests.support.tsfile_bytes import build

WEEK_MS = 604_800_000


class Edge:
    """One sender below `root`, with one receiver."""

    def __init__(self, root: Path, url: str, *, token: str | None = None, **settings: Any) -> None:
        self.root = root
        self.sg = "root.a"
        """Storage group of the files that are written without one."""
        self.data = root / "data"
        self.schema = root / "schema"
        for kind in ("sequence", "unsequence"):
            (self.data / kind).mkdir(parents=True, exist_ok=True)
        transfer = {
            "retry_first": 0.01,
            "retry_max": 0.02,
            "connect_timeout": 5.0,
            "read_timeout": 20.0,
            "load_poll": 1.0,
            "load_timeout": 20.0,
        } | settings.pop("transfer", {})
        self.config = SenderConfig(
            schema_dir=self.schema,
            data_dirs=(self.data,),
            receivers=(ReceiverEntry(name="dc1", url=url, token=Secret(token) if token else None),),
            transfer=TransferConfig(**transfer),
            **settings,
        )
        self.uuid = identity.create(self.schema)
        mark(self.data, self.uuid)
        self.stop = threading.Event()
        self.digests = KnownDigests()

    def with_settings(self, **changes: Any) -> None:
        """Change the configuration."""
        self.config = msgspec.structs.replace(self.config, **changes)

    def write_config(self, **settings: object) -> Path:
        """The same as a file, for the command line; `settings` are further top-level lines."""
        entry, transfer = self.config.receivers[0], self.config.transfer
        lines = [f'schema_dir = "{self.schema}"', f'data_dirs = ["{self.data}"]']
        lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        lines += ["[[receiver]]", 'name = "dc1"', f'url = "{entry.url}"']
        if entry.standby_urls:
            lines.append(f"standby_urls = {json.dumps(entry.standby_urls)}")
        if entry.token is not None:
            lines.append(f'token = "{entry.token.reveal()}"')
        lines.append("[transfer]")
        for name in ("chunk_bytes", "batch_bytes", "retry_first", "retry_max", "read_timeout"):
            lines.append(f"{name} = {getattr(transfer, name)}")
        lines += ["load_poll = 1", "load_timeout = 30"]
        target = self.root / "sender.toml"
        target.write_text("\n".join(lines) + "\n")
        target.chmod(0o600)
        return target

    def with_url(self, url: str) -> None:
        """The same directories, another address (they keep the name of the first)."""
        entry = msgspec.structs.replace(self.config.receivers[0], url=url)
        self.with_settings(receivers=(entry,))

    def with_standbys(self, *urls: str) -> None:
        """Addresses of receivers that may take the place of the first."""
        entry = msgspec.structs.replace(self.config.receivers[0], standby_urls=urls)
        self.with_settings(receivers=(entry,))

    # -- files -----------------------------------------------------------------------------

    def path(
        self, number: int, sg: str | None = None, level: int = 0, kind: str = "sequence"
    ) -> str:
        name = f"{1581324718762 + number}-{number}-{level}-0.tsfile"
        return f"{kind}/{sg or self.sg}/0/0/{name}"

    def write(
        self,
        number: int,
        *,
        device: str | None = None,
        sg: str | None = None,
        level: int = 0,
        points: int = 10,
        first: int | None = None,
        size: int | None = None,
        resource: bytes | None = b"resource",
        kind: str = "sequence",
    ) -> str:
        """A closed file with one device; returns its path."""
        path = self.path(number, sg, level, kind)
        start = number * 1000 if first is None else first
        series = {"s1": [(start + each, each) for each in range(points)]}
        content = build({device or f"{sg or self.sg}.d1": series}, pad_to=size)
        self.put(path, content, resource=resource)
        return path

    def put(self, path: str, content: bytes, *, resource: bytes | None = b"resource") -> None:
        target = self.data / path
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(target.name + ".new")
        beside.write_bytes(content)
        beside.rename(target)
        if resource is not None:
            target.with_name(target.name + ".resource").write_bytes(resource)

    def remove(self, path: str) -> None:
        (self.data / path).unlink()
        (self.data / f"{path}.resource").unlink(missing_ok=True)

    def content(self, path: str) -> bytes:
        return (self.data / path).read_bytes()

    @property
    def files(self) -> dict[str, str]:
        """path -> MD5 of every TsFile here."""
        return {
            str(each.relative_to(self.data)): hashlib.md5(each.read_bytes()).hexdigest()
            for kind in ("sequence", "unsequence")
            for each in self.data.glob(f"{kind}/**/*.tsfile")
        }

    # -- rounds ----------------------------------------------------------------------------

    def remote(self) -> Remote:
        entry = self.config.receivers[0]
        return Remote.make(self.config, entry, self.uuid, self.stop, digests=self.digests)

    def round(self, **options: bool) -> RoundReport:
        """A round in this process, under the lock."""
        remote = self.remote()
        lock = remote.lock()
        try:
            return Round(remote, RoundOptions(**options)).run()
        finally:
            lock.release()
            remote.close()

    def free(self, **options: Any) -> FreeReport:
        """Free in this process what the receiver holds."""
        remote = self.remote()
        try:
            return Freeing([remote], FreeOptions(**options), stop=self.stop).run()
        finally:
            remote.close()

    @property
    def listed(self) -> list[str]:
        """What `last_local_files.txt` says; nothing of a list that is being replaced."""
        lines: list[str] = []
        for found in self.data.glob("sync-sender/*/last_local_files.txt"):
            # The old list is deleted before the new one takes its name: seen between, it is away.
            with contextlib.suppress(FileNotFoundError):
                lines += found.read_text().splitlines()
        return sorted(lines)

    @property
    def leftovers(self) -> list[str]:
        """What a finished round must not leave behind."""
        places = ("sync.log", "current_local_files.txt", "snapshot/**/*")
        return [
            str(each.relative_to(self.data))
            for place in places
            for each in self.data.glob(f"sync-sender/*/{place}")
        ]
