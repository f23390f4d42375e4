"""A master, storage nodes and an edge in one process, over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from common.config import Secret
from receiver.config import LimitsConfig, NodeConfig, ReceiverConfig
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.edges.tokens import make_token
from receiver.storagenode.node_web.node_app import ServedNode
from receiver.web.app import create_app, site_of
from receiver.web.server import ServerTls
from tests.support.edge import Edge
from tests.support.node_world import World
from tests.support.web import running, until

LARGE = 300_000
Environ = dict[str, Any]


class Fault(Exception):
    """The program behind a request dies."""


class StorageMachine:
    """A storage node and its server; `before` hears of each request, and may break it.

    Attributes:
        seen: (method, path) of each request that came, with its headers.
        taken: bytes of bodies.
        runs: whether it does.
        alter: changes the bytes of an answer to the master.
    """

    def __init__(
        self,
        root: Path,
        master: str,
        token: str,
        tls: ServerTls | None,
        *,
        ca_cert: Path | None = None,
    ) -> None:
        self.ca_cert = ca_cert
        self.root = root
        self.master = master
        self.token = token
        self.tls = tls
        self.port = 0
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.taken = 0
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.alter: Callable[[bytes], bytes] = lambda content: content
        self._stack = ExitStack()
        self.start()

    def start(self) -> None:
        config = ReceiverConfig(
            schema_dir=self.root / "home",
            data_dirs=(self.root / "disk",),
            limits=LimitsConfig(min_free_bytes=0),
            node=NodeConfig(
                master=(self.master,),
                token=Secret(self.token),
                host=self.root.name,
                ca_cert=self.ca_cert,
            ),
        )
        self.served = ServedNode(config, lambda: None)
        self._stack = ExitStack()
        self._stack.callback(self.served.close)
        server = self._stack.enter_context(
            running(self._app, gate=self.served.gate, tls=self.tls, port=self.port)
        )
        self.port = server.effective_port
        self.runs = True
        scheme = "https" if self.tls else "http"
        self.served.node._url = f"{scheme}://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End: nobody listens there any more."""
        self.runs = False
        self._stack.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def uuid(self) -> str:
        return self.served.node.home.start.uuid

    def _app(self, environ: Environ, start_response: Any) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        headers = {key: each for key, each in environ.items() if key.startswith("HTTP_")}
        self.seen.append((method, path, headers))
        self.before(method, path)
        self.taken += int(environ.get("CONTENT_LENGTH") or 0)
        answer = self.served.application.wsgi_app(environ, start_response)
        if path == "/node/v1/staged":
            return [self.alter(b"".join(answer))]
        return answer

    def heal(self) -> None:
        """Do nothing wrong any more."""
        self.before = lambda method, path: None
        self.alter = lambda content: content

    def files(self) -> int:
        """How many its replicas have."""
        copies = self.served.node.copies
        return sum(copies.replica(each).held().files for each in copies.tablets())

    def count(self, method: str) -> int:
        return sum(each == method for each, _, _ in self.seen)

    def beat(self, master: Node) -> None:
        """Say what there is to say."""
        talk = self.served.node._talk
        more: float | None = 0.0
        while more is not None:
            more = talk.answered(master.nodes.heartbeat(talk.next()))


class UploadCluster:
    """All of it; `nodes` have a tablet already, which files of the edge are in."""

    def __init__(
        self,
        root: Path,
        nodes: int = 1,
        *,
        tls: ServerTls | None = None,
        node_tls: ServerTls | None = None,
        **receiver: Any,
    ) -> None:
        self.root = root
        self.tls = tls
        more = {"replicas": nodes, "uploads_from": 1 << 16}
        more |= {"ca_cert": receiver.pop("ca_cert")} if "ca_cert" in receiver else {}
        more |= receiver.pop("of_nodes", {})
        self.node_ca_cert = receiver.pop("node_ca_cert", None)
        storage = receiver.pop("storage", {})
        self.world = World(root / "centre", nodes=more, storage=storage)
        self.port = 0
        self._stack = ExitStack()
        self.start()
        token = make_token(self.node.engine, "node").token
        self.machines = [
            StorageMachine(
                root / f"host{number}", self.url, token, node_tls, ca_cert=self.node_ca_cert
            )
            for number in range(nodes)
        ]
        transfer = {"batch_bytes": 1 << 15, "chunk_bytes": 1 << 16, "max_retries": 2}
        self.edge = Edge(root / "edge", self.url, transfer=transfer)
        self.node.engine.commit([records.SenderSeen(self.edge.uuid, "", f"x_{self.edge.uuid}")])
        self.secret = make_token(self.node.engine, "sender", sender=self.edge.uuid).token
        entry = msgspec.structs.replace(
            self.edge.config.receivers[0], nodes=True, token=Secret(self.secret), **receiver
        )
        self.edge.with_settings(receivers=(entry,))
        self.number = 1

    def settle(self) -> None:
        """Have a tablet at the nodes that runs."""
        self.first = self.edge.write(1)
        self.beat()
        report = self.edge.round()
        assert report.exit_code == 0, report
        until(self._runs, "a tablet that runs")

    def with_nodes(self, wanted: bool, **more: Any) -> None:
        """Whether the edge sends to nodes, with a memory of them that begins anew."""
        entry = msgspec.structs.replace(self.edge.config.receivers[0], nodes=wanted, **more)
        self.edge.with_settings(receivers=(entry,))

    def start(self) -> None:
        self.node = self.world.node()
        self._stack = ExitStack()
        self._stack.callback(self.node.close)
        app = create_app(self.world.config, self.node)
        self._stack.callback(site_of(app).polls.close)
        server = self._stack.enter_context(
            running(app, gate=site_of(app).gate, tls=self.tls, port=self.port)
        )
        self.port = server.effective_port
        scheme = "https" if self.tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        assert urlsplit(self.url).port == self.port

    def restart(self) -> None:
        """Another life of the master; what it knew of nodes is gone."""
        self._stack.close()
        self.start()

    def _runs(self) -> bool:
        self.beat()
        with self.node.engine.reading() as state:
            rows = [*state.placement_table.rows.values()]
        held = [each.served.node.copies.tablets() for each in self.machines]
        return bool(rows) and all(each.running for each in rows) and all(held)

    def beat(self) -> None:
        """Twice, so that the master may use the keys that it has given."""
        for each in 2 * self.machines:
            each.beat(self.node)

    def write(self) -> str:
        self.number += 1
        return self.edge.write(self.number, size=LARGE)

    def has(self, *paths: str) -> bool:
        """Whether these are loaded, each once, as the edge has them."""
        with self.node.engine.reading() as state:
            rows = [row for row in state.files.values() if row.path in paths]
        content = sorted(self.edge.content(each) for each in paths)
        return content == sorted((self.world.data / each.physical).read_bytes() for each in rows)

    def staged(self) -> list[str]:
        """What lies at nodes and is in no replica."""
        return [
            each.name for machine in self.machines for each in machine.root.glob("disk/uploads/*")
        ]

    def close(self) -> None:
        for each in self.machines:
            each.stop()
        self._stack.close()
