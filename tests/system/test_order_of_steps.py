"""The order of durable steps, over whole rounds at both ends, as the kernel saw it.

Write, flush the file, rename, flush the directory, append to the log, flush the log, then tell: a
power cut on ext4 does not show each of these missing, a trace of the calls does. One history goes
through the ways that a file can take, another through deaths; `tests.support.debts` judges them.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import xxhash

from common import wire
from tests.support import trace
from tests.support.centre import Centre
from tests.support.debts import Debts, Forgiven
from tests.support.edge import WEEK_MS, Edge
from tests.support.procs import children
from tests.support.recording import Recorded
from tests.support.schemas import SchemaLog
from tests.support.tsfile_bytes import build

SENDER = str(Path(sys.executable).with_name("tsferry-sender"))
DIRECT = "d" * 32
"""A client that is no sender of ours."""

EITHER = (
    Forgiven(r".*\.lock", ("bytes", "cut", "name"), "a lock is made anew, whatever is in it"),
    Forgiven(r".*\.[0-9a-f]{16}\.tmp", ("bytes", "name", "end"), "is swept", own=False),
)
FORGIVEN_SENDER = (
    *EITHER,
    Forgiven(
        r"data/sync-sender/.*", ("bytes", "name", "moved", "end"),
        "a check says nothing of it", word="/check$", own=False,
    ),
    Forgiven(r".*/snapshot/.*", ("end",), "a link that comes back is found and dropped again"),
    Forgiven(r".*/snapshot/.*", ("name",), "what was not linked is linked again", own=False),
)  # fmt: skip
FORGIVEN_CENTRE = (
    *EITHER,
    Forgiven(r"schema/tlog-\d+\.tsf", ("bytes",), "the log has its bytes too", left=False),
    Forgiven(r"schema/sync/device_owner\.log", ("bytes",), "the log's shadow", end=False),
    Forgiven(r".*/data/\.uploads/.*", ("end",), "half an upload that comes back is swept"),
    Forgiven(r".*\.part", ("bytes",), "what no line counts is cut off", own=False),
    Forgiven(r".*\.part", ("cut",), "what no line counts is cut off again"),
    Forgiven(r"data/sync-receiver/[^/]+/data/.*", ("end",), "what comes back is verified again"),
    Forgiven(r".*/quarantine/.*", ("end",), "what no row names is swept, after a week"),
    Forgiven(r".*/schema\.stage", ("end",), "a stage that comes back is taken for what it is"),
    Forgiven(r"data/(un)?sequence(/.*)?", ("name",), "flushed before its commit", own=False),
    Forgiven(r".*/data/.*", ("moved",), "flushed before its commit", own=False),
)


class History:
    """Both ends, recorded."""

    def __init__(self, root: Path, centre: Recorded, edge: Recorded) -> None:
        self._centre, self._edge = centre, edge
        (root / "dc").mkdir()
        self.centre = Centre(root / "dc" / "centre", centre)  # type: ignore[arg-type]
        self.debts = {
            "centre": Debts(
                self.centre.root, FORGIVEN_CENTRE, log=r"schema/mlog-.*", plan=r".*/plan\.log"
            ),
            "edge": Debts(root / "edge", FORGIVEN_SENDER),
            "new": Debts(root / "new", FORGIVEN_SENDER),
        }
        self.url = self.centre.start()
        self.edge = Edge(
            root / "edge",
            self.url,
            propagate_deletes="all",
            transfer={"batch_bytes": 1 << 16, "chunk_bytes": 1 << 20},
        )
        settings = self.edge.write_config(propagate_deletes="all")
        one = settings.read_text().replace("[transfer]", "[transfer]\nparallel = 1")
        settings.write_text(one)  # so that an answer speaks of all that was written before it
        self._settings = settings
        self.root = root
        self.edge_of_client = Edge(root / "client", self.url)

    def sync(self, *, die_at: str | None = None, done: bool | None = True) -> None:
        """A round; one that is not done fails, as the centre dies meanwhile; None: it may."""
        self.call_sender("edge", self._settings, "sync", die_at=die_at, done=done)

    def call_sender(
        self,
        end: str,
        config: Path,
        *arguments: str,
        die_at: str | None = None,
        done: bool | None = True,
        inherits: bool = False,
    ) -> None:
        """A command of the sender, of the end whose debts they are."""
        env = None if die_at is None else {"TSFERRY_CRASH_AT": die_at}
        child = self._edge.start([SENDER, "--config", str(config), *arguments], env=env)
        found = child.wait()
        assert (found == -9) == (die_at is not None), child.text()
        if done is not None:
            assert (found == 0) == (done and die_at is None), child.text()
        steps = self._edge.steps(self._edge.processes)
        self.debts[end].follow(steps, killed=die_at is not None, inherits=inherits)

    def restart(self, *, die_at: str | None = None) -> None:
        """The centre's next process; the one before ends, if it has not."""
        if self.centre.server is not None and self.centre.server.running:
            self.end()
        self.centre.start(env=None if die_at is None else {"TSFERRY_CRASH_AT": die_at})

    def die(self, *, told: bool | None = False) -> None:
        """A round in which the centre dies; behind a commit it may just have told of it."""
        self.sync(done=told)
        self.end(killed=True)

    def end(self, *, killed: bool = False) -> None:
        """The centre's process, which may have died by itself."""
        server = self.centre.server
        assert server is not None
        assert (server.wait() if killed else server.terminate()) == (-9 if killed else 0)
        steps = self._centre.steps(self._centre.processes)
        self.debts["centre"].follow(steps, killed=killed)

    def copy_staged(self, path: str) -> None:
        """Put a copy in the place of a file that was received, as somebody does who moves disks."""
        (there,) = self.centre.data.glob(f"sync-receiver/*/data/{path}")
        beside = self.centre.root / "copy"
        beside.write_bytes(there.read_bytes())
        beside.rename(there)
        self.debts["centre"].replaced(str(there.relative_to(self.centre.root)))

    def judge(self, seen: tuple[str, ...]) -> None:
        """All words were kept, and those that are to be looked at were looked at."""
        self.end()
        broken = [each for debts in self.debts.values() for each in debts.broken]
        assert not broken, "\n".join(broken)
        words = set().union(*(debts.words for debts in self.debts.values()))
        assert not [each for each in seen if not any(re.search(each, word) for word in words)]

    # -- a client that is none of ours -----------------------------------------------------

    def tus(
        self, content: bytes, name: str, *, block: int | None, refused: int | None = None
    ) -> None:
        """Upload a file without a task: whole with its creation, or in blocks."""
        if block is None:
            head = {"Content-Type": "application/offset+octet-stream"}
            self.create(content, name, head, content, code=refused or 201)
            return
        where = self.create(content, name)
        for at in range(0, len(content), block):
            last = at + block >= len(content)
            code = refused if last and refused else 204
            self.patch(where, at, content[at : at + block], code=code)

    def create(
        self,
        content: bytes,
        name: str,
        head: dict[str, str] | None = None,
        body: bytes = b"",
        code: int = 201,
    ) -> str:
        """Begin an upload; where it is."""
        path = f"sequence/root.direct/0/0/{name}.tsfile"
        pairs = (("path", path), ("md5", hashlib.md5(content).hexdigest()))
        given = {
            "Upload-Length": str(len(content)),
            "Upload-Metadata": ",".join(f"{key} {b64(value.encode())}" for key, value in pairs),
        }
        answer = self.call("POST", "/files", given | (head or {}), body, code=code)
        return answer.headers.get("Location", "").removeprefix("/sync/v1")

    def batch(self, *contents: tuple[str, bytes]) -> list[bool]:
        """Send files in one body, of a task that stays open; which of them were taken."""
        remote = self.edge_of_client.remote()
        check = remote.client.check(
            wire.CheckRequest(
                protocol=wire.PROTOCOL, version="1", sender=self.edge_of_client.uuid,
                partition_interval_ms=WEEK_MS,
            )
        )  # fmt: skip
        task = "b" * 32
        start = wire.StartRequest(engine=check.engine, propagate=wire.Propagate.REPLACED)
        epoch = remote.client.start_task(task, start).epoch
        body = wire.encode_batch(
            (
                wire.BatchEntry(
                    path=f"sequence/root.batch/0/0/{name}.tsfile", size=len(content),
                    md5=hashlib.md5(content).hexdigest(), xxh3=xxh3_64(content),
                ),
                content,
            )
            for name, content in contents
        )  # fmt: skip
        answer = remote.client.batch(task, epoch, body)
        remote.close()
        return [each.problem is None for each in answer.results]

    def patch(self, where: str, at: int, part: bytes, *, code: int = 204) -> None:
        head = {
            "Content-Type": "application/offset+octet-stream",
            "Upload-Offset": str(at),
            "Upload-Checksum": f"xxh3_128 {b64(xxhash.xxh3_128_digest(part))}",
        }
        self.call("PATCH", where, head, part, code=code)

    def call(
        self, method: str, path: str, head: dict[str, str], body: bytes = b"", *, code: int
    ) -> requests.Response:
        given = {"Tus-Resumable": "1.0.0", "Tsferry-Sender": DIRECT, **head}
        url = f"{self.url}/sync/v1{path}"
        answer = requests.request(method, url, headers=given, data=body, timeout=60)
        assert answer.status_code == code, answer.text
        return answer


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def xxh3_64(data: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(data)


def of_direct(number: int, size: int) -> bytes:
    return build({"root.direct.d": {"s": [(number, number)]}}, pad_to=size)


HAPPENED = (
    r"before the request PUT .*/tasks/X$",
    r"before the request POST .*/end$",
    r"before the answer to PATCH .*/files/X$",
    r"before the answer to POST .*/batch$",
    r"before the answer to POST .*/files$",
    r"before the answer to PATCH .*/schema$",
    r"before the answer to POST .*/deleted$",
    r"before the answer to POST .*/end$",
    r"^done$",
    r"before a line in .*\.upload$",
    r"verified\.log names .*/data/sequence/X\.tsfile$",
    r"verified\.log names .*/data/sequence/X\.tsfile\.resource$",
    r"mlog-N\.tsf names data/sequence/X\.tsfile$",
    r"mlog-N\.tsf names data/unsequence/X\.tsfile$",
    r"before a line in .*/load\.log$",
    r"rename to .*/quarantine/",
    r"rename to .*/sync\.end$",
    r"rename to .*/last_local_files\.txt$",
    r"rename to .*/local_files\.state$",
    r"link to .*/snapshot/sequence/X\.tsfile\.resource$",
    r"sync-sender/N/sync\.log names .*/snapshot/sequence/X\.tsfile$",
)
"""What a trace without it would say nothing of."""


def happen(history: History) -> None:
    """Every kind of file, and every way through the programs that a file can take."""
    edge = history.edge
    log = SchemaLog(edge.schema)
    log.write("2,root.a")
    log.series("root.a.d1.s1", 2, tags={"unit": "V"})
    for number, size in enumerate((None, None, 200_000, 1_300_000, 2_500_000)):
        edge.write(number, size=size)
    history.sync()

    edge.write(0, points=30)
    edge.remove(edge.path(1))
    edge.write(5, first=10, kind="unsequence")
    edge.write(6, size=3_000_000, resource=b"r" * 200_000)
    log.series("root.a.d1.s2", 2)
    history.sync(die_at="upload.block.acknowledged")
    history.sync()

    good = build({"root.batch.d": {"s": [(1, 1)]}})
    assert history.batch(("1-1-0-0", good), ("2-2-0-0", b"no TsFile")) == [True, False]
    history.tus(of_direct(1, 20_000), "1-1-0-0", block=None)
    history.tus(of_direct(2, 1_200_000), "2-2-0-0", block=500_000)
    history.tus(b"no TsFile" * 1000, "3-3-0-0", block=None, refused=422)
    history.tus(b"no TsFile either" * 1000, "3-3-0-0", block=9_000, refused=422)


FAILED = (
    r"before the answer to POST .*/plan$",
    r"before the request POST .*/check$",
    r"verified\.log names .*/data/sequence/X\.tsfile$",
    r"mlog-N\.tsf names data/unsequence/X\.tsfile$",
)


def fail(history: History) -> None:
    """Deaths between a change and its flush: who comes next relies on nothing that is not there."""
    edge, log = history.edge, SchemaLog(history.edge.schema)
    edge.write(9)
    history.sync()
    edge.write(10)
    history.sync(die_at="durable.rename.renamed")  # the list
    edge.write(11)
    history.sync(die_at="durable.write_atomic.renamed")  # the memory of the receiver
    history.sync()

    new = history.root / "new"
    (new / "data" / "sequence").mkdir(parents=True)
    init = f"init --schema-dir {new}/schema --data-dir {new}/data --url {history.url}".split()
    config = new / "sender.toml"
    history.call_sender("new", config, *init, die_at="durable.write_atomic.renamed:2")
    history.call_sender("new", config, "init", inherits=True)  # tells the uuid to people

    history.restart(die_at="placing.moved")
    edge.write(12, kind="unsequence", first=100)
    history.die()
    history.restart(die_at="intake.moved")
    edge.write(13, size=100_000)
    history.die()
    history.copy_staged(edge.path(13))
    history.restart(die_at="load.committed")
    log.series("root.a.d1.s3", 2, tags={"unit": "A"})
    history.die(told=None)
    history.restart()
    history.sync()


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    if reason := trace.impossible():
        pytest.skip(reason)
    with children(tmp_path) as processes:
        recorded = [Recorded(processes, tmp_path / f"calls-{end}") for end in ("centre", "edge")]
        yield History(tmp_path, *recorded)


def test_in_rounds_of_all_kinds_nobody_is_told_what_is_not_on_the_disk(history):
    happen(history)
    history.judge(HAPPENED)


def test_after_a_death_nobody_relies_on_what_is_not_on_the_disk(history):
    fail(history)
    history.judge(FAILED)
