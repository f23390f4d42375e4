"""A receiver for tests that speaks the protocol from memory, and misbehaves as it is told.

It keeps what it is given and answers as docs/protocol.md has it. A test puts faults in a queue:
each names the request it waits for (`"PATCH /files"`) and what happens instead of, or after, the
honest answer. What arrived stands in `requests`.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import re
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import xxhash

from common import wire, zstd
from common.errors import CloneError, DigestError, NotFoundError, OffsetError, TsferryError


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    compressed: int = 0
    """Bytes that came, of a body that came compressed."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    def decompress(self) -> None:
        if self.headers.get("content-encoding") == "zstd":
            self.compressed = len(self.body)
            self.body = zstd.codec().decompress(self.body)
            assert len(self.body) == int(self.headers["tsferry-decompressed-size"])


@dataclass
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Fault:
    """What happens to one request; subclasses override one of the two."""

    times = 1

    def before(self, handler: Handler, request_line: str) -> Reply | bool | None:
        """Before the body is read: a reply, True to drop the connection, None to go on."""
        return None

    def after(self, handler: Handler, request: Request, reply: Reply) -> Reply | bool | None:
        """After the honest work: another reply, True to drop the connection unanswered."""
        return None


@dataclass
class Drop(Fault):
    """The connection is closed: before the body is read, or after the work is done."""

    late: bool = False

    def before(self, handler, request_line):
        return None if self.late else True

    def after(self, handler, request, reply):
        return True if self.late else None


@dataclass
class Answer(Fault):
    """Another answer than the honest one, the body read but nothing done."""

    reply: Reply

    def before(self, handler, request_line):
        handler.read_body()
        return self.reply


@dataclass
class Alter(Fault):
    """The work is done and the answer changed."""

    change: Callable[[Reply], Reply]

    def after(self, handler, request, reply):
        return self.change(reply)


@dataclass
class Stall(Fault):
    """No answer until `release` is set; then the connection is dropped."""

    release: threading.Event
    done: bool = False

    def before(self, handler, request_line):
        self.release.wait(60)
        return True


def problem(kind: type[TsferryError], detail: str = "scripted", **extra: object) -> Reply:
    error = kind(detail, extra=extra)
    status = int(extra.pop("status", error.http_status))  # type: ignore[call-overload]
    document = msgspec.structs.replace(wire.to_problem(error), status=status)
    return Reply(status, {"Content-Type": wire.PROBLEM_TYPE}, wire.encode(document))


def redirect(to: str) -> Reply:
    return Reply(302, {"Location": to})


def html(status: int = 200) -> Reply:
    return Reply(status, {"Content-Type": "text/html"}, b"<html>It works!</html>")


def lie_about_offset(offset: object) -> Callable[[Reply], Reply]:
    def change(reply: Reply) -> Reply:
        reply.headers["Upload-Offset"] = str(offset)
        return reply

    return change


@dataclass
class UploadRecord:
    path: str
    length: int
    data: bytearray = field(default_factory=bytearray)
    done: bool = False


class ScriptedReceiver:
    """`with ScriptedReceiver() as receiver:` listens on loopback at `receiver.url`."""

    def __init__(self, *, token: str | None = None, engine: str = "e" * 32) -> None:
        self.token = token
        self.engine = engine
        self.requests: list[Request] = []
        self.faults: list[tuple[re.Pattern[str], deque[Fault]]] = []
        self.lock = threading.RLock()
        self.uploads: dict[str, UploadRecord] = {}
        self.received: dict[str, bytes] = {}
        self.loaded: dict[str, bytes] = {}
        self.plans: list[wire.PlanEntry] = []
        self.deleted_pages: list[str] = []
        self.decide: Callable[[wire.PlanEntry], wire.PlanDecision | None] = lambda entry: None
        self.judge: Callable[[str], wire.Outcome | None] = lambda path: None
        self.tasks: dict[str, wire.TaskAnswer] = {}
        self.manifests: dict[str, wire.EndRequest] = {}
        self.pages: list[wire.ManifestPage] = []
        self.loading_polls = 0
        self.commit = 100
        self.epoch: str | None = None
        self.before: str | None = None
        self.wanted: list[wire.Wanted] = []
        self.held: list[wire.Wanted] = []
        self.held_records: list[wire.HeldRecords] = []
        self.verified: wire.VerifiedFiles | None = None
        self.history: wire.History | None = None
        self.resources = False
        self.catalogue: list[wire.CatalogueEntry] = []
        self.looks: int | None = None
        """The number of the last look; None: it knows no looks, and compares no lists."""
        self.agrees = True
        self.anew = False
        self.lost: wire.LostFiles | None = None
        self.ends: tuple[float | None, float | None] = (None, None)
        """When the token and the certificate end."""
        self.limits = wire.Limits(
            max_file_bytes=1 << 40,
            max_chunk_bytes=1 << 24,
            max_batch_bytes=1 << 22,
            max_page_items=1000,
            max_page_bytes=1 << 20,
        )
        self._next = 0
        self._server: _Server | None = None

    def fault(self, where: str, *faults: Fault) -> None:
        """Queue faults for requests whose `METHOD /path` (below the base) matches `where`."""
        self.faults.append((re.compile(where), deque(faults)))

    def __enter__(self) -> ScriptedReceiver:
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.receiver = self
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def names(self) -> list[str]:
        return [request.name for request in self.requests]

    def count(self, pattern: str) -> int:
        return sum(bool(re.match(pattern, name)) for name in self.names())

    # -- honest work -----------------------------------------------------------------------

    def next_fault(self, name: str) -> Fault | None:
        with self.lock:
            for pattern, queue in self.faults:
                if queue and pattern.match(name):
                    return queue.popleft()
        return None

    def work(self, request: Request) -> Reply:
        if self.token is not None and request.headers.get("authorization") != (
            f"Bearer {self.token}"
        ):
            from common.errors import UnauthorizedError

            return problem(UnauthorizedError, "no such token")
        path, _, query = request.path.partition("?")
        try:
            with self.lock:
                return self._route(request, path, query)
        except TsferryError as error:
            document = wire.to_problem(error)
            status = int(error.extra.get("status", error.http_status))  # type: ignore[call-overload]
            return Reply(status, {"Content-Type": wire.PROBLEM_TYPE}, wire.encode(document))

    def _route(self, request: Request, path: str, query: str) -> Reply:
        if path == "/check":
            return self._check(wire.decode(request.body, wire.CheckRequest, "check"))
        if path == "/heartbeat":
            return _json(wire.HeartbeatAnswer(engine=self.engine))
        if path == "/inventory":
            return self._inventory(looked="look=true" in query)
        if path == "/listed" and self.looks is not None:
            return _json(wire.ListedAnswer(agrees=self.agrees))
        if path == "/catalogue":
            return _json(
                wire.CatalogueAnswer(engine=self.engine, commit=self.commit, entries=self.catalogue)
            )
        if path.startswith("/files"):
            return self._files(request, path)
        match = re.fullmatch(r"/tasks/([0-9a-f]{32})(/\w+)?", path)
        if match is None:
            raise NotFoundError(f"no such call: {path}")
        return self._task(request, match[1], match[2])

    def _check(self, asked: wire.CheckRequest) -> Reply:
        history = self.history
        if history is None:
            same = asked.engine == self.engine
            history = wire.History.CONTINUES if same else wire.History.NEW
        if self.looks is not None:
            self.looks = max(self.looks, asked.look) + 1
        return _json(
            wire.CheckAnswer(
                protocol=wire.PROTOCOL,
                version="0.0",
                engine=self.engine,
                newest_commit=self.commit,
                epoch=self.epoch,
                history=history,
                limits=self.limits,
                wanted=self.wanted,
                held=self.held,
                held_records=self.held_records,
                verified=self.verified,
                look=self.looks or 0,
                compares=self.looks is not None,
                anew=self.anew,
                resources=self.resources,
                lost=self.lost,
                token_until=self.ends[0],
                certificate_until=self.ends[1],
            )
        )

    def _inventory(self, *, looked: bool) -> Reply:
        entries = [
            wire.InventoryEntry(
                path=path,
                size=len(data),
                md5=hashlib.md5(data).hexdigest(),
                state="loaded",
                stands=looked,
            )
            for path, data in sorted(self.loaded.items())
        ]
        return _json(
            wire.InventoryAnswer(
                engine=self.engine, commit=self.commit, entries=entries, looked=looked
            )
        )

    def _task(self, request: Request, task: str, what: str | None) -> Reply:
        if what is None and request.method == "PUT":
            return self._start(task, wire.decode(request.body, wire.StartRequest, "start"))
        if task not in self.tasks:
            raise NotFoundError(f"no task {task}")
        if what is None:
            return self._state(task)
        if what == "/plan":
            page = wire.decode(request.body, wire.PlanPage, "plan")
            self.plans += page.entries
            return _json(wire.PlanAnswer(decisions=[self._decide(each) for each in page.entries]))
        if what == "/deleted":
            self.deleted_pages += wire.decode(request.body, wire.DeletedPage, "deleted").paths
            return Reply(204)
        if what == "/batch":
            return self._batch(request.body)
        if what == "/manifest":
            self.pages.append(wire.decode(request.body, wire.ManifestPage, "manifest"))
            return Reply(204)
        assert what == "/end", what
        end = wire.decode(request.body, wire.EndRequest, "end")
        parts = [*(self.pages[-end.pages :] if end.pages else []), end]
        end = msgspec.structs.replace(
            end,
            manifest=[each for part in parts for each in part.manifest],
            deleted=[each for part in parts for each in part.deleted],
            last_looks=[each for part in parts for each in part.last_looks],
        )
        self.manifests[task] = end
        self._load(task, end)
        return self._state(task)

    def _start(self, task: str, asked: wire.StartRequest) -> Reply:
        known = self.tasks.get(task)
        if known is not None:
            return _json(known)
        if asked.epoch not in (self.epoch, self.before):
            raise CloneError("two machines speak under one uuid")
        self.before = asked.epoch
        number = int((self.epoch or "0.").partition(".")[0]) + 1
        self.epoch = f"{number}.{task[:8]}"
        self.tasks[task] = wire.TaskAnswer(task=task, state=wire.TaskState.OPEN, epoch=self.epoch)
        return _json(self.tasks[task])

    def _state(self, task: str) -> Reply:
        if self.loading_polls > 0 and task in self.manifests:
            self.loading_polls -= 1
            return _json(
                wire.TaskAnswer(task=task, state=wire.TaskState.LOADING, epoch=self.epoch), 202
            )
        return _json(self.tasks[task])

    def _decide(self, entry: wire.PlanEntry) -> wire.PlanDecision:
        decided = self.decide(entry)
        if decided is not None:
            return decided
        wants = entry.resource is not None
        data = self.loaded.get(entry.path)
        if data is not None and not entry.replaces and len(data) == entry.size:
            return wire.PlanDecision(
                path=entry.path,
                action=wire.Action.ALREADY,
                resource=wants and self.resources,
                md5=hashlib.md5(data).hexdigest(),
            )
        if entry.path in self.received:
            md5 = hashlib.md5(self.received[entry.path]).hexdigest()
            return wire.PlanDecision(path=entry.path, action=wire.Action.HAVE, md5=md5)
        for upload, record in self.uploads.items():
            if record.path == entry.path and record.length == entry.size and not record.done:
                return wire.PlanDecision(
                    path=entry.path,
                    action=wire.Action.RESUME,
                    upload=upload,
                    offset=len(record.data),
                    resource=wants,
                )
        return wire.PlanDecision(path=entry.path, action=wire.Action.SEND, resource=wants)

    def _batch(self, body: bytes) -> Reply:
        results = []
        for entry, content in wire.decode_batch(body):
            self.received[entry.path] = bytes(content)
            results.append(wire.BatchResult(path=entry.path))
        return _json(wire.BatchAnswer(results=results))

    def _load(self, task: str, end: wire.EndRequest) -> None:
        if self.tasks[task].state is wire.TaskState.DONE:
            return
        outcomes = []
        for path in end.deleted:
            outcome = self.judge(path) or wire.Outcome(path=path, result=wire.Result.DELETED)
            if outcome.result in (wire.Result.DELETED, wire.Result.RETIRED):
                self.loaded.pop(path, None)
            outcomes.append(outcome)
        for entry in end.manifest:
            outcome = self.judge(entry.path)
            if outcome is None and entry.path in self.received:
                data = self.received.pop(entry.path)
                assert hashlib.md5(data).hexdigest() == entry.md5
                self.loaded[entry.path] = data
                outcome = wire.Outcome(path=entry.path, result=wire.Result.LOADED)
            elif outcome is None:
                known = entry.path in self.loaded
                result = wire.Result.ALREADY if known else wire.Result.MISSING
                outcome = wire.Outcome(path=entry.path, result=result)
            outcomes.append(outcome)
        self.commit += 1
        self.tasks[task] = wire.TaskAnswer(
            task=task,
            state=wire.TaskState.DONE,
            epoch=self.tasks[task].epoch,
            commit=self.commit,
            outcomes=outcomes,
            held_records=self.held_records,
        )

    # -- tus -------------------------------------------------------------------------------

    def _files(self, request: Request, path: str) -> Reply:
        if request.method == "POST":
            self._next += 1
            upload = f"{self._next:032x}"
            metadata = dict(
                pair.split(" ") for pair in request.headers["upload-metadata"].split(",")
            )
            record = UploadRecord(
                base64.b64decode(metadata["path"]).decode(),
                int(request.headers["upload-length"]),
            )
            self.uploads[upload] = record
            return Reply(201, {"Location": f"/sync/v1/files/{upload}", "Upload-Offset": "0"})
        upload = path.removeprefix("/files/")
        record = self.uploads.get(upload)
        if record is None:
            raise NotFoundError(f"no upload {upload}")
        if request.method == "DELETE":
            del self.uploads[upload]
            return Reply(204)
        if request.method == "PATCH":
            self._patch(request, record)
        headers = {"Upload-Offset": str(len(record.data)), "Upload-Length": str(record.length)}
        return Reply(204 if request.method == "PATCH" else 200, headers)

    def _patch(self, request: Request, record: UploadRecord) -> None:
        if int(request.headers["upload-offset"]) != len(record.data):
            raise OffsetError("a gap", extra={"offset": len(record.data)})
        algorithm, _, checksum = request.headers["upload-checksum"].partition(" ")
        assert algorithm == "xxh3_128"
        if base64.b64encode(xxhash.xxh3_128_digest(request.body)).decode() != checksum:
            raise DigestError("block", extra={"status": wire.CHECKSUM_MISMATCH})
        record.data += request.body
        if len(record.data) == record.length and not record.done:
            found = base64.b64encode(hashlib.md5(record.data).digest()).decode()
            if request.headers.get("repr-digest") != f"md5=:{found}:":
                record.data.clear()
                raise DigestError(f"{record.path}: whole file")
            record.done = True
            self.received[record.path] = bytes(record.data)


def _json(value: wire.Struct, status: int = 200) -> Reply:
    return Reply(status, {"Content-Type": "application/json"}, wire.encode(value))


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    receiver: ScriptedReceiver

    def handle_error(self, request, client_address):  # a dropped connection is no news
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each body waits 40 ms for the head to be acknowledged
    server: _Server

    def log_message(self, *args):
        pass

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _serve(self):
        receiver = self.server.receiver
        path = self.path.removeprefix(wire.BASE)
        fault = receiver.next_fault(f"{self.command} {path}")
        instead = fault.before(self, path) if fault is not None else None
        headers = {key.lower(): value for key, value in self.headers.items()}
        if instead is not None:
            receiver.requests.append(Request(self.command, path, headers, b""))
            return self._drop() if instead is True else self._write(instead)
        request = Request(self.command, path, headers, self.read_body())
        if receiver.limits.encodings:
            request.decompress()
        receiver.requests.append(request)
        reply = receiver.work(request)
        altered = fault.after(self, request, reply) if fault is not None else None
        if altered is True:
            return self._drop()
        return self._write(altered or reply)

    do_GET = do_PUT = do_POST = do_PATCH = do_HEAD = do_DELETE = _serve

    def _drop(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _write(self, reply: Reply):
        self.send_response(reply.status)
        for key, value in reply.headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Poll a condition of another process or thread, within a bound."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


__all__ = [
    "Alter",
    "Answer",
    "Drop",
    "Reply",
    "ScriptedReceiver",
    "Stall",
    "html",
    "json",
    "lie_about_offset",
    "problem",
    "redirect",
    "wait_until",
]
