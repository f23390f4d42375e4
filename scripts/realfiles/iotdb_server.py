"""A database server of a given version: its jars from Maven, its configuration, start and stop.

A server lives in a directory of its own, which can be thrown away when it has stopped; all
addresses are of the loopback interface. It is stopped with SIGTERM: its shutdown hook closes all
files, as the database's own stop script has it do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from iotdb_client import Client

__all__ = ["RELEASES", "Release", "Server", "Toolchain"]

JAVA: Final = Path(__file__).resolve().parent / "java"
FIRST_PORT: Final = 21700
RPC_PORT: Final = FIRST_PORT + 67
STARTS_WITHIN: Final = 120.0
"""Seconds; on two quiet cores it takes five."""

_OPENED: Final = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.io",
        "java.lang",
        "java.net",
        "java.nio",
        "java.util",
        "java.util.concurrent",
        "sun.nio.ch",
    )
]
"""What the start scripts of the database open to it under Java 17."""


_CLUSTER: Final = (
    ("org.apache.iotdb.confignode.service.ConfigNode", "300m", "-s"),
    ("org.apache.iotdb.db.service.DataNode", "700m", "-s"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """A version of the database, and how it differs from others.

    Attributes:
        version: of the Maven artifacts.
        artifacts: of the group ``org.apache.iotdb``; what they need comes with them.
        isession, tsfile, enums: Java packages of ``SessionDataSet``, of the TsFile library, and of
            its ``TSDataType``.
        format: of its TsFiles.
        nodes: main classes to start, in this order, with heap and argument.
        configuration: names of the files of its settings; each gets all of them.
        without: artifacts that it can do without, as ``group:name``.
        launcher: a main class of ours, compiled with the client.
        aligned: whether it knows aligned devices.
        create: the statement that makes a database.
        below: the pattern of all below a path.
        unbounded: whether a query need not say from when to when.
        profiles: what it is asked for unless told; of the older ones not all, to keep the outcome
            small.
    """

    version: str
    artifacts: tuple[str, ...]
    isession: str
    tsfile: str
    enums: str
    format: int
    nodes: tuple[tuple[str, str, str], ...] = _CLUSTER
    configuration: tuple[str, ...] = ("iotdb-system.properties",)
    without: tuple[str, ...] = ()
    launcher: str | None = None
    aligned: bool = True
    create: str = "create database"
    below: str = "**"
    unbounded: bool = True
    profiles: tuple[str, ...] = ("main", "tables", "compaction", "us", "ns")


RELEASES: Final = {
    "2.0.1-beta": Release(
        "2.0.1-beta",
        ("iotdb-server", "iotdb-confignode"),
        "org.apache.iotdb.isession",
        "org.apache.tsfile",
        "org.apache.tsfile.enums",
        4,
    ),
    "1.0.1": Release(
        "1.0.1",
        ("iotdb-server", "iotdb-session"),
        "org.apache.iotdb.session",
        "org.apache.iotdb.tsfile",
        "org.apache.iotdb.tsfile.file.metadata.enums",
        3,
        # one process, its own config node: no artifact has the separate one
        nodes=(("IotdbStandalone", "700m", ""),),
        launcher="IotdbStandalone",
        unbounded=False,
        profiles=("main", "compaction"),
        configuration=("iotdb-datanode.properties", "iotdb-common.properties"),
    ),
    "0.12.0": Release(
        "0.12.0",
        ("iotdb-server", "iotdb-session"),
        "org.apache.iotdb.session",
        "org.apache.iotdb.tsfile",
        "org.apache.iotdb.tsfile.file.metadata.enums",
        3,
        nodes=(("org.apache.iotdb.db.service.IoTDB", "700m", ""),),
        configuration=("iotdb-engine.properties",),
        without=("io.moquette:moquette-broker",),
        aligned=False,
        create="set storage group to",
        below="*",
        profiles=("main", "chunks"),
    ),
}

_CONSENSUS: Final = "org.apache.iotdb.consensus"
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>realfiles</groupId><artifactId>iotdb</artifactId><version>1</version>
<dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY: Final = """
<dependency>
<groupId>org.apache.iotdb</groupId><artifactId>{}</artifactId><version>{}</version>
<exclusions>{}</exclusions>
</dependency>
"""
_EXCLUSION: Final = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"


@dataclasses.dataclass(frozen=True, slots=True)
class Toolchain:
    """The jars of a release and the client compiled against them, below ``directory``."""

    release: Release
    directory: Path

    @property
    def classpath(self) -> str:
        """Of the server and of the client."""
        return f"{self.directory / 'client'}{os.pathsep}{self.directory / 'lib'}/*"

    def prepare(self) -> None:
        """Fetch and compile, unless it is there already."""
        done = self.directory / "done"
        if done.exists():
            return
        lib, client = self.directory / "lib", self.directory / "client"
        client.mkdir(parents=True, exist_ok=True)
        pom = self.directory / "pom.xml"
        release = self.release
        without = "".join(_EXCLUSION.format(*name.split(":")) for name in release.without)
        dependencies = (
            _DEPENDENCY.format(name, release.version, without) for name in release.artifacts
        )
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={lib}"]
        pom.write_text(_POM.format("".join(dependencies)))
        subprocess.run(command, check=True)
        source = (JAVA / "IotdbClient.java").read_text()
        for word in ("isession", "tsfile", "enums"):
            source = source.replace(f"@{word}@", getattr(release, word))
        filled = client / "IotdbClient.java"
        filled.write_text(source)
        sources = [filled] + ([JAVA / f"{release.launcher}.java"] if release.launcher else [])
        subprocess.run(["javac", "-cp", f"{lib}/*", "-d", client, *sources], check=True)
        done.touch()

    def java(self, *arguments: str) -> list[str]:
        """A command line of the Java virtual machine."""
        return ["java", *_OPENED, "-cp", self.classpath, *arguments]


class Server:
    """A running server."""

    def __init__(self, tools: Toolchain, home: Path, settings: Mapping[str, str]) -> None:
        self._tools = tools
        self.home = home
        self._processes: list[subprocess.Popen[bytes]] = []
        self._write_configuration(settings)

    @property
    def release(self) -> Release:
        """What it is a server of."""
        return self._tools.release

    @property
    def data(self) -> Path:
        """Where it has its ``sequence`` and ``unsequence``."""
        return self.home / "data/datanode/data"

    @property
    def port(self) -> int:
        """Of clients; a launcher of ours has the one above the server's."""
        return RPC_PORT + (self.release.launcher is not None)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start it; stop it cleanly."""
        try:
            for main, heap, argument in self._tools.release.nodes:
                self._start(main, heap, argument)
            yield
        finally:
            for process in reversed(self._processes):
                process.send_signal(signal.SIGTERM)
                process.wait(120)
            self._processes.clear()

    def client(self, dialect: str = "tree") -> Client:
        """A session of the tree or the table dialect of SQL."""
        arguments = (self._logback, "-Xmx200m", "IotdbClient", str(self.port), dialect)
        return Client(self._tools.java(*arguments), self.home / "client.log")

    def _start(self, main: str, heap: str, argument: str) -> None:
        home, configuration = self.home, self.home / "conf"
        command = self._tools.java(
            f"-Xmx{heap}",
            "-XX:MaxDirectMemorySize=512m",
            "-DOFF_HEAP_MEMORY=512M",
            f"-DIOTDB_HOME={home}",
            f"-DIOTDB_CONF={configuration}",
            f"-DTSFILE_CONF={configuration}",
            f"-DCONFIGNODE_HOME={home}",
            f"-DCONFIGNODE_CONF={configuration}",
            self._logback,
            main,
            *argument.split(),
        )
        name = main.rpartition(".")[2]
        with (home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=home)
        self._processes.append(process)
        self._await(process, self.port if len(self._processes) == self._last else FIRST_PORT + 10)

    @property
    def _logback(self) -> str:
        return f"-Dlogback.configurationFile={self.home / 'conf/logback.xml'}"

    @property
    def _last(self) -> int:
        return len(self.release.nodes)

    def _await(self, process: subprocess.Popen[bytes], port: int) -> None:
        until = time.monotonic() + STARTS_WITHIN
        while time.monotonic() < until:
            if process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                time.sleep(2)  # the port is open before all of it is
                return
            time.sleep(0.3)
        raise RuntimeError(f"{process.args!r} does not answer at {port}; see the logs")

    def _write_configuration(self, settings: Mapping[str, str]) -> None:
        configuration = self.home / "conf"
        configuration.mkdir(parents=True)
        ports = {
            "cn_internal_port": 10,
            "cn_consensus_port": 20,
            "dn_rpc_port": 67,
            "dn_internal_port": 30,
            "dn_mpp_data_exchange_port": 40,
            "dn_schema_region_consensus_port": 50,
            "dn_data_region_consensus_port": 60,
        }
        seed = f"127.0.0.1:{FIRST_PORT + 10}"
        lines = {
            "cluster_name": "realfiles",
            # one node, one region a database: no elections to wait for, and all in one file
            "config_node_consensus_protocol_class": f"{_CONSENSUS}.simple.SimpleConsensus",
            "schema_region_consensus_protocol_class": f"{_CONSENSUS}.simple.SimpleConsensus",
            "data_region_consensus_protocol_class": f"{_CONSENSUS}.iot.IoTConsensus",
            "schema_region_group_extension_policy": "CUSTOM",
            "default_schema_region_group_num_per_database": "1",
            "data_region_group_extension_policy": "CUSTOM",
            "default_data_region_group_num_per_database": "1",
            "cn_internal_address": "127.0.0.1",
            "rpc_address": "127.0.0.1",
            "rpc_port": str(RPC_PORT),
            "data_dirs": str(self.data),
            "dn_data_dirs": str(self.data),
            "dn_rpc_address": "127.0.0.1",
            "dn_internal_address": "127.0.0.1",
            "cn_seed_config_node": seed,
            "dn_seed_config_node": seed,
            "wal_buffer_size_in_byte": "1048576",  # of direct memory, twice, each database
            **{name: str(FIRST_PORT + offset) for name, offset in ports.items()},
            **settings,
        }
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        for name in self.release.configuration:
            (configuration / name).write_text(text)
        (configuration / "logback.xml").write_text(_LOGBACK)


_LOGBACK: Final = """\
<configuration>
<appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<target>System.err</target>
<encoder><pattern>%d %-5p %logger{20} - %m%n</pattern></encoder>
</appender>
<root level="info"><appender-ref ref="out"/></root>
</configuration>
"""
