"""An engine with files, a store, and the uploader between them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from common.config import UploadRules
from common.digests import md5
from common.durable import Tree
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.storage.stores.incarnation import own_incarnation
from receiver.storage.stores.object_keys import data_key
from receiver.storage.stores.object_store import ObjectStore
from receiver.storage.uploading.pulled_files import PulledFiles
from receiver.storage.uploading.uploader import Uploader

SENDER = "5e" * 16


class Centre:
    """A directory with an engine, its files, and an uploader; a later life goes on there."""

    def __init__(
        self, root: Path, store: ObjectStore, options: EngineOptions | None = None
    ) -> None:
        self.root = root
        for name in ("data", "schema"):
            (root / name).mkdir(exist_ok=True)
        self.store = store
        self.now = 1000.0
        self.clock: Callable[[], float] = time.time
        self.options = options or EngineOptions()
        self.bad: list[tuple[str, str, str]] = []
        self.start()

    def start(self) -> None:
        self.engine = Engine.open(
            self.root / "schema", options=self.options, clock=self.clock, background=False
        )
        self.home = Tree(self.root / "schema")
        self.tree = Tree(self.root / "data")
        self.owner = own_incarnation(self.store, self.home, self.engine.uuid)
        self.uploader_of()

    def uploader_of(
        self,
        parallel: int = 4,
        paced: Callable[[int], None] = lambda _: None,
        rules: UploadRules | None = None,
        pulled: PulledFiles | None = None,
    ) -> None:
        """Another one in the place of the one that there is."""
        self.uploader = Uploader(
            self.engine,
            self.store,
            self.owner,
            self.home,
            lambda: [self.tree],
            rules=rules,
            parallel=parallel,
            paced=paced,
            clock=lambda: self.now,
            pulled=pulled,
            found_bad=lambda physical, digest, why: self.bad.append((physical, digest, why)),
        )

    def stop(self) -> None:
        self.uploader.close()
        self.engine.close()
        self.home.close()
        self.tree.close()

    def end(self) -> None:
        self.stop()
        self.store.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def load(
        self,
        number: int,
        *,
        size: int = 1500,
        resource: bytes | None = None,
        stem: str = "",
        content: bytes | None = None,
    ) -> str:
        content = random.Random(number).randbytes(size) if content is None else content
        stem = stem or f"sequence/root.sg/0/0/{number}-{number}-0-0"
        physical = f"{stem}.{number:016x}.tsfile"
        place = self.root / "data" / physical
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        meta = None
        if resource is not None:
            place.with_name(place.name + ".resource").write_bytes(resource)
            meta = records.ResourceMeta(len(resource), md5(resource).hexdigest())
        if SENDER not in self.engine_senders():
            self.engine.commit([records.SenderSeen(SENDER, "", f"x_{SENDER}")])
        self.engine.commit(
            [
                records.FileLoaded(
                    sender=SENDER,
                    path=f"{stem}.tsfile",
                    physical=physical,
                    size=len(content),
                    md5=md5(content).hexdigest(),
                    tail=md5(content).hexdigest(),
                    version=4,
                    devices=[records.DeviceRange("root.sg.d", 1, 2)],
                    first=1,
                    last=2,
                    series=1,
                    points=2,
                    task="7a" * 16,
                    resource=meta,
                )
            ]
        )
        return physical

    def note_resource(self, physical: str, content: bytes) -> str:
        """As the commit of a task does; its bytes take their place later."""
        digest = md5(content).hexdigest()
        meta = records.ResourceMeta(len(content), digest)
        self.engine.commit([records.ResourceNoted(physical, meta)])
        return digest

    def write_resource(self, physical: str, content: bytes) -> None:
        (self.root / "data" / f"{physical}.resource").write_bytes(content)

    def resources(self) -> dict[str, str]:
        with self.engine.reading() as state:
            return {row.physical: row.resource for row in state.uploaded_table.rows.values()}

    def engine_senders(self) -> set[str]:
        with self.engine.reading() as state:
            return set(state.senders)

    def files(self) -> set[str]:
        with self.engine.reading() as state:
            return set(state.files)

    def uploaded(self) -> set[str]:
        with self.engine.reading() as state:
            return set(state.uploaded_table.rows)

    def key(self, physical: str) -> str:
        return data_key(self.engine.uuid, self.owner.number, physical)

    def objects(self) -> list[str]:
        return [each.key for each in self.store.objects(f"{self.engine.uuid}/data/")]
