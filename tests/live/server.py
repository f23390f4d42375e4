"""Starts a real server of a version on loopback, with bounded memory, and ends it by its pid."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 120.0
STOP_SECONDS = 60.0
ANSWER_SECONDS = 60.0
COMPACTION_DELAY = 22.0
"""So long after its start a server of 1.0 or 2.0 looks for files to compact."""
HEAP = "-Xmx512m"
OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
)
"""Packages of the base module that servers older than Java 17 reach into."""
LOGGING = """<configuration>
<appender name="O" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %p %c{20} %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="O"/></root></configuration>
"""
STANDALONE_CONSENSUS = "org.apache.iotdb.consensus.simple.SimpleConsensus"


class ServerFailed(Exception):
    """A server did not start, or answered with an error."""


@dataclass(frozen=True)
class Kind:
    """What differs between the versions.

    Attributes:
        settings_file: where the settings are read from, below the directory of configuration.
        processes: (main class, its arguments) in the order in which they are started.
        quiet: settings with which nothing is compacted.
        inner: settings with which files of one kind are.
        cross: settings with which unsequence files are compacted into sequence files.
        groups: the statement that makes a database.
        aligned: whether it knows aligned devices.
        tables: whether it knows tables.
        drops: whether it deletes series: one of 1.0 that stands alone does not.
    """

    settings_file: str
    processes: tuple[tuple[str, tuple[str, ...]], ...]
    quiet: Mapping[str, str]
    inner: Mapping[str, str]
    cross: Mapping[str, str]
    groups: str
    aligned: bool
    tables: bool
    drops: bool = True


_FEW_POINTS = "30"
"""Points of a series after which a memtable is flushed as one more chunk of the open file."""
_SCHEDULED = {
    "enable_seq_space_compaction": "false",
    "enable_unseq_space_compaction": "false",
    "enable_cross_space_compaction": "false",
    "compaction_schedule_interval_in_ms": "1000",
    "compaction_submission_interval_in_ms": "1000",
    "avg_series_point_number_threshold": _FEW_POINTS,
}
_INNER = {
    "enable_seq_space_compaction": "true",
    "enable_unseq_space_compaction": "true",
    "max_inner_compaction_candidate_file_num": "2",
    "inner_compaction_candidate_file_num": "2",
    "inner_compaction_total_file_num_threshold": "100",
}
_CROSS = {
    "enable_cross_space_compaction": "true",
    "min_cross_compaction_unseq_file_level": "0",
}
_LEVELS = {
    "compaction_strategy": "LEVEL_COMPACTION",
    "merge_interval_sec": "0",
    "avg_series_point_number_threshold": _FEW_POINTS,
    "enable_mem_control": "false",
    "seq_level_num": "4",
    "unseq_level_num": "4",
    "seq_file_num_in_each_level": "1000",
    "unseq_file_num_in_each_level": "1000",
    "enable_unseq_compaction": "false",
    "merge_page_point_number": "1000",
}

KINDS: Mapping[str, Kind] = {
    "0.12": Kind(
        settings_file="iotdb-engine.properties",
        processes=(("org.apache.iotdb.db.service.IoTDB", ()),),
        quiet={**_LEVELS},
        inner={
            **_LEVELS,
            "seq_file_num_in_each_level": "2",
            "unseq_file_num_in_each_level": "2",
        },
        cross={
            **_LEVELS,
            "unseq_level_num": "1",
            "unseq_file_num_in_each_level": "1",
            "enable_unseq_compaction": "true",
        },
        groups="set storage group to",
        aligned=False,
        tables=False,
    ),
    "1.0": Kind(
        settings_file="iotdb-datanode.properties",
        processes=(("org.apache.iotdb.db.service.NewIoTDB", ()),),
        quiet=_SCHEDULED,
        inner={**_SCHEDULED, **_INNER},
        cross={**_SCHEDULED, **_CROSS},
        groups="create database",
        aligned=True,
        tables=False,
        drops=False,
    ),
    "2.0": Kind(
        settings_file="iotdb-system.properties",
        processes=(
            ("org.apache.iotdb.confignode.service.ConfigNode", ("-s",)),
            ("org.apache.iotdb.db.service.DataNode", ("-s",)),
        ),
        quiet=_SCHEDULED,
        inner={**_SCHEDULED, **_INNER},
        cross={**_SCHEDULED, **_CROSS},
        groups="create database",
        aligned=True,
        tables=True,
    ),
}


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def versions(servers: Path) -> list[str]:
    """Those that lie below a directory as `scripts/live fetch` makes it."""
    return sorted(each.name for each in servers.iterdir() if (each / "lib").is_dir())


@dataclass
class Server:
    """A version's server and its directory; started and stopped as often as one likes.

    Args:
        unpacked: has `lib/*.jar` and the Python of the version's client as `client/`.
        run: for its data, settings and logs.
    """

    unpacked: Path
    run: Path
    kind: Kind = field(init=False)
    port: int = field(init=False)
    rest: str = field(init=False)
    sync_port: int = field(init=False)

    def __post_init__(self) -> None:
        self.kind = KINDS[".".join(self.unpacked.name.split(".")[:2])]
        self.data = self.run / "data"
        self._made: list[subprocess.Popen[bytes]] = []
        self._client: subprocess.Popen[str] | None = None
        self._ports = _free_ports(10)
        self.port = self._ports[0]
        self.sync_port = self._ports[6]
        self.rest = f"http://127.0.0.1:{self._ports[-2]}"

    @property
    def version(self) -> str:
        return self.unpacked.name

    @property
    def files(self) -> Path:
        """The data directory: below it are `sequence/` and `unsequence/`."""
        return self.data / "data"

    @property
    def pids(self) -> list[int]:
        """Of its processes, in the order in which they were started."""
        return [each.pid for each in self._made]

    @property
    def conf(self) -> Path:
        """The directory of its settings, from its first start on."""
        return self.run / "conf"

    def log(self, number: int = 0) -> Path:
        """What a process of it has said."""
        return self.run / f"log.{number}"

    @contextmanager
    def running(self, settings: Mapping[str, str]) -> Iterator[Server]:
        self.start(settings)
        try:
            yield self
        finally:
            self.stop()

    def start(self, settings: Mapping[str, str]) -> None:
        """Raises ServerFailed if it does not answer in time."""
        conf = self.conf
        conf.mkdir(parents=True, exist_ok=True)
        lines = {**self._places(), **settings}
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        (conf / self.kind.settings_file).write_text(text)
        if self.kind.settings_file == "iotdb-datanode.properties":
            (conf / "iotdb-common.properties").write_text(text)
        (conf / "logging.xml").write_text(LOGGING)
        self._begin_of_1_0()
        for number, (main, arguments) in enumerate(self.kind.processes):
            log = self.log(number).open("ab")
            with log:
                self._made.append(
                    subprocess.Popen(
                        self.command(main, arguments, (HEAP, "-XX:MaxDirectMemorySize=512m")),
                        cwd=self.run,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        stdin=subprocess.DEVNULL,
                    )
                )
            self._await(self._ports[number - len(self.kind.processes) + 1])

    def stop(self) -> None:
        """In the opposite order; each by its pid, and killed if it does not end."""
        self._hang_up()
        for each in reversed(self._made):
            each.terminate()
            try:
                each.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()
        self._made.clear()

    def say(self, sql: str, *, table: bool = False) -> dict[str, Any]:
        """One statement; raises ServerFailed with the server's words."""
        if self._client is None:
            self._client = subprocess.Popen(
                [
                    str(self.unpacked / "client" / "bin" / "python"),
                    str(Path(__file__).with_name("client.py")),
                    str(self.port),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={"PATH": os.environ["PATH"]},
            )
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(json.dumps({"sql": sql, "table": table}) + "\n")
        self._client.stdin.flush()
        overdue = threading.Timer(ANSWER_SECONDS, self._client.kill)
        overdue.start()
        line = self._client.stdout.readline()
        overdue.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "no answer"}
        if "error" in answer:
            raise ServerFailed(f"{self.version}: {sql}: {answer['error']}")
        return answer

    def quiet(self, seconds: float = 4.0, limit: float = 60.0) -> None:
        """Until no file has come, gone or changed for so long."""
        deadline = time.monotonic() + limit
        seen, since = self.listing(), time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - since < seconds:
            time.sleep(0.25)
            if (now := self.listing()) != seen:
                seen, since = now, time.monotonic()

    def copy(self, group: str, target: Path) -> None:
        """The files of one database, at their paths below the data directory."""
        for kind in ("sequence", "unsequence"):
            source = self.files / kind / group
            if source.is_dir():
                shutil.copytree(source, target / kind / group, dirs_exist_ok=True)

    def listing(self) -> list[tuple[str, int, int]]:
        """Path, size and time of change of all files."""
        found = []
        for each in self.files.rglob("*"):
            try:
                facts = each.stat()
            except FileNotFoundError:
                continue
            if each.is_file():
                found.append((str(each), facts.st_size, facts.st_mtime_ns))
        return sorted(found)

    def command(
        self, main: str, arguments: Sequence[str] = (), bounds: Sequence[str] = ()
    ) -> list[str]:
        """How a class of this version is run, with the settings of this server."""
        conf = self.conf
        opens = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENED]
        return [
            "java",
            *bounds,
            "-XX:ParallelGCThreads=2",
            *opens,
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            f"-Dlogback.configurationFile={conf / 'logging.xml'}",
            *(f"-D{name}_HOME={self.run}" for name in ("IOTDB", "CONFIGNODE")),
            *(f"-D{name}_CONF={conf}" for name in ("IOTDB", "CONFIGNODE")),
            "-cp",
            f"{self.unpacked / 'lib'}/*",
            main,
            *arguments,
        ]

    def _hang_up(self) -> None:
        if self._client is not None:
            assert self._client.stdin is not None
            with suppress(BrokenPipeError):
                self._client.stdin.close()
            self._client.wait(STOP_SECONDS)
            assert self._client.stdout is not None
            self._client.stdout.close()
            self._client = None

    def _await(self, port: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._made[-1].poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.25)
        self.stop()
        raise ServerFailed(f"{self.version} does not listen on {port}: see {self.run}/log.*")

    def _begin_of_1_0(self) -> None:
        """Its standalone main class wants the file that only the cluster's would make."""
        if self.kind is KINDS["1.0"]:
            properties = self.data / "system" / "schema" / "system.properties"
            if not properties.exists():
                properties.parent.mkdir(parents=True)
                properties.write_text(f"iotdb_version={self.version}\n")

    def _places(self) -> dict[str, str]:
        names = {"data_dirs": "data", "system_dir": "system", "wal_dir": "wal", "wal_dirs": "wal"}
        names |= {f"{each}_dir": each for each in ("query", "tracing", "sync", "consensus")}
        places = {"base_dir": str(self.data)}
        for setting, name in names.items():
            places[setting] = places[f"dn_{setting}"] = str(self.data / name)
        for name in ("system", "consensus"):
            places[f"cn_{name}_dir"] = str(self.data / "confignode" / name)
        places["dn_pipe_receiver_file_dirs"] = str(self.data / "pipe")
        # The process that is started last listens on the first port, the one before on the last.
        config = self._ports[-1]
        ports = dict(
            zip(
                (
                    "dn_internal_port",
                    "dn_mpp_data_exchange_port",
                    "dn_schema_region_consensus_port",
                    "dn_data_region_consensus_port",
                    "cn_consensus_port",
                ),
                map(str, self._ports[1:]),
                strict=False,
            )
        )
        node = f"127.0.0.1:{config}"
        return {
            **places,
            **ports,
            "rpc_address": "127.0.0.1",
            "rpc_port": str(self.port),
            "sync_server_port": str(self.sync_port),
            "dn_rpc_address": "127.0.0.1",
            "dn_rpc_port": str(self.port),
            "dn_internal_address": "127.0.0.1",
            "dn_seed_config_node": node,
            "dn_target_config_node_list": node,
            "cn_internal_address": "127.0.0.1",
            "cn_internal_port": str(config),
            "cn_seed_config_node": node,
            "cluster_name": "edge",
            "data_region_consensus_protocol_class": STANDALONE_CONSENSUS,
            "schema_region_consensus_protocol_class": STANDALONE_CONSENSUS,
            "config_node_consensus_protocol_class": STANDALONE_CONSENSUS,
            "schema_replication_factor": "1",
            "data_replication_factor": "1",
            "virtual_storage_group_num": "1",
            "data_region_num": "1",
            "enable_mqtt_service": "false",
            "enable_rest_service": "true",
            "rest_service_port": str(self._ports[-2]),
            "wal_buffer_size": "262144",
            "partition_interval": "604800",
        }
