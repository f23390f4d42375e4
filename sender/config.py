"""The configuration of the sender; ``conf/sender.toml`` shows every key with its default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from common import zstd
from common.config import ConfigFinding, Duration, Secret, Size, Timetable, Url, is_loopback
from common.config.metrics_rules import check_listen
from common.config.shared_rules import TimeUnit, overlapping, whole_milliseconds
from common.config.toml_file import readable_by_others
from common.console.logs import LogConfig
from common.console.terminal import printable
from common.hooks.hooks_config import HooksConfig
from common.names import endpoint_dir

__all__ = [
    "ENV_PREFIX",
    "FILE",
    "DaemonConfig",
    "ReceiverEntry",
    "SchemaConfig",
    "SenderConfig",
    "SenderMetrics",
    "StorageGroupFilter",
    "TransferConfig",
]

ENV_PREFIX = "TSFERRY_SENDER_"
FILE = Path("/etc/tsferry/sender.toml")

_PORTS = {"http": 80, "https": 443}
_LONGEST_LABEL = 200


class ReceiverEntry(Struct, frozen=True, kw_only=True):
    """A ``[[receiver]]``: a data centre that the files go to.

    Attributes:
        name: what logs, `status` and `--receiver` call it; yours to choose.
        url: its address, https://host:port; without a port that of the scheme (443, 80).
        standby_urls: addresses of receivers that may take its place (`serve --standby`): whichever
            answers as the one at work is spoken to, with the same token; no other address ever is.
        token: what the receiver knows this sender by, as `tsferry-receiver token create` printed
            it.
        token_file: a file that holds the token, instead.
        ca_file: PEM bundle that its certificate is checked against, instead of the system's.
        client_cert: PEM certificate that this sender shows, with those between it and the root, in
            the place of a token; a new one is taken without a restart.
        client_key: PEM private key of that, without a passphrase.
        insecure: allow plain HTTP to a host that is not this machine: everyone on the way can
            read the data and the token, and change them.
        use_env_proxies: go through HTTPS_PROXY and the like.
        nodes: let large files go to the storage nodes that the receiver names, from which it reads
            them; they are told a ticket and no token. What no node takes goes to the receiver.
        nodes_ca_file: PEM bundle that the nodes' certificates are checked against, instead of that
            of the receiver.
        source: where the list of files comes from: the data directories, or the catalogue of the
            receiver on this node, which is then a forwarding centre.
        source_url: address of that receiver, with `source = "receiver"`.
        source_token: a reader token of that receiver.
        source_token_file: a file that holds the reader token, instead.
    """

    name: str
    url: Url
    standby_urls: tuple[Url, ...] = ()
    token: Secret | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    insecure: bool = False
    use_env_proxies: bool = False
    nodes: bool = False
    nodes_ca_file: Path | None = None
    source: Literal["directories", "receiver"] = "directories"
    source_url: Url | None = None
    source_token: Secret | None = None
    source_token_file: Path | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """All of them, in the order in which they are tried."""
        return (self.url, *self.standby_urls)

    @property
    def host(self) -> str:
        """Host of the address: lower case, an IPv6 address without brackets."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Port of the address, or that of its scheme."""
        parts = urlsplit(self.url)
        return parts.port or _PORTS[parts.scheme]

    @property
    def directory(self) -> str:
        """The name ``<host>_<port>`` of its directories on this node."""
        return _directory(self.url)

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        yield from _plain_http("url", self.url, self.insecure)
        for url in self.standby_urls:
            yield from _plain_http("standby_urls", url, self.insecure)
            if url.partition(":")[0] != self.url.partition(":")[0]:
                yield ConfigFinding("standby_urls", "expected the scheme of url")
        if len(set(map(_directory, self.addresses))) < len(self.addresses):
            yield ConfigFinding("standby_urls", "expected others than url, and each once")
        if self.insecure and not any(map(_sent_in_clear, self.addresses)):
            yield ConfigFinding("insecure", "not needed for this url, better left out", fatal=False)
        if self.ca_file is not None and self.url.startswith("http:"):
            yield ConfigFinding("ca_file", "expected only with an https:// url")
        yield from self._check_certificate()
        if self.nodes_ca_file is not None and not self.nodes:
            yield ConfigFinding("nodes_ca_file", "expected only with nodes = true")
        if self.source == "receiver":
            if self.source_url is None:
                yield ConfigFinding("source_url", 'missing: expected with source = "receiver"')
            else:
                yield from _plain_http("source_url", self.source_url, self.insecure)
            return
        for key in ("source_url", "source_token", "source_token_file"):
            if getattr(self, key) is not None:
                yield ConfigFinding(key, 'expected only with source = "receiver"')

    def _check_certificate(self) -> Iterator[ConfigFinding]:
        if self.client_cert is None and self.client_key is None:
            return
        for key, other in (("client_cert", "client_key"), ("client_key", "client_cert")):
            if getattr(self, key) is None:
                yield ConfigFinding(key, f"missing: expected with {other}")
        if self.url.startswith("http:"):
            yield ConfigFinding("client_cert", "expected only with an https:// url")
        if self.client_key is not None and readable_by_others(self.client_key):
            text = f"others than its owner may read it: chmod 600 {printable(str(self.client_key))}"
            yield ConfigFinding("client_key", text, fatal=False)


class StorageGroupFilter(Struct, frozen=True, kw_only=True):
    """``[storage_groups]``: which of them are sent.

    Patterns are paths; ``*`` stands for one level or part of it, ``**`` for any number of levels.

    Attributes:
        include: patterns of storage groups that are sent.
        exclude: patterns of those that are not, though `include` has them. A narrower filter
            deletes nothing at the receiver.
    """

    include: Annotated[tuple[str, ...], Meta(min_length=1)] = ("**",)
    exclude: tuple[str, ...] = ()

    def check(self) -> Iterator[ConfigFinding]:
        """Patterns that can match nothing."""
        for key, patterns in (("include", self.include), ("exclude", self.exclude)):
            if any(not _is_path(pattern) for pattern in patterns):
                yield ConfigFinding(key, "expected patterns such as root.site1.** or root.*.wind")


class SchemaConfig(Struct, frozen=True, kw_only=True):
    """``[schema]``: the database that is asked for its schema; without one files are read.

    Attributes:
        server: address of its REST service (`enable_rest_service` there), such as
            http://127.0.0.1:18080; none to read files.
        user: a user of the database that may show all series.
        password: of that user; without one it is "root".
        password_file: a file that holds the password, instead.
        ca_file: PEM bundle that its certificate is checked against, instead of the system's.
        insecure: allow plain HTTP to a host that is not this machine.
        every: time between two readings of the whole schema; only what changed travels.
    """

    server: Url | None = None
    user: str = "root"
    password: Secret | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    insecure: bool = False
    every: Annotated[Duration, Meta(ge=1)] = 600.0

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        if self.server is not None:
            yield from _plain_http("server", self.server, self.insecure)
        elif self.password is not None or self.password_file is not None:
            yield ConfigFinding("password", "expected only with server")


class TransferConfig(Struct, frozen=True, kw_only=True):
    """``[transfer]``: how files travel.

    Attributes:
        chunk_bytes: bytes of a file that travel in one request, each with its own checksum; fewer
            where several files are on their way. At most `limits.max_chunk_bytes` of the receiver.
        parallel: files on their way at a time, for each receiver.
        batch_bytes: files up to this size travel many in one request; 0 for never.
        max_retries: tries after the first for one file, before it is left for the next round.
        retry_first: pause before the first of these tries; each further one about doubles, with
            jitter.
        retry_max: longest pause between two tries.
        connect_timeout: time until the receiver has to have taken a connection.
        read_timeout: time without a byte of an answer, until a request has failed.
        load_poll: how long one question for the outcome of a task waits at the receiver; less than
            `read_timeout`.
        load_timeout: time until a round gives up asking for the outcome; the next round goes on.
        bandwidth_limit: bytes a second of all transfers to one receiver together, or by the hour
            in local time.
        compression: of what travels, by zstd: `auto` where the line is so slow that what is saved
            pays for the work, `off` never, `zstd` wherever it makes a body smaller. Needs Python
            3.14 or `tsferry[zstd]`.
    """

    chunk_bytes: Annotated[Size, Meta(ge=4096, le=2**30)] = 8 * 2**20
    parallel: Annotated[int, Meta(ge=1, le=64)] = 4
    batch_bytes: Size = 2**20
    max_retries: Annotated[int, Meta(ge=0, le=1000)] = 5
    retry_first: Duration = 0.5
    retry_max: Duration = 30.0
    connect_timeout: Annotated[Duration, Meta(ge=0.1)] = 10.0
    read_timeout: Annotated[Duration, Meta(ge=0.1)] = 60.0
    load_poll: Duration = 20.0
    load_timeout: Duration = 3600.0
    bandwidth_limit: Timetable = Timetable()
    compression: Literal["auto", "off", "zstd"] = "auto"

    def check(self) -> Iterator[ConfigFinding]:
        """Times that contradict each other, and what is wanted and not installed."""
        if self.compression == zstd.ZSTD and zstd.codec() is None:
            yield ConfigFinding(
                "compression",
                f'needs a package that is not installed: pip install "{zstd.PACKAGE}"',
            )
        if self.retry_max < self.retry_first:
            yield ConfigFinding("retry_max", "expected at least retry_first")
        if self.load_poll >= self.read_timeout:
            yield ConfigFinding(
                "load_poll", "expected less than read_timeout, which would cut it off"
            )


class DaemonConfig(Struct, frozen=True, kw_only=True):
    """``[daemon]``: when rounds begin.

    Attributes:
        period: time from the begin of one round to that of the next.
        look_period: time between two looks at every file, where the file system tells of changes
            and told of none; rounds between only ask the receiver. 0 looks in each round.
        watch: whether a new file starts a round early.
        watch_settle: rest after the last change of a file, before `watch` starts a round.
        watch_poll: time between two looks where the file system tells of no changes, as network
            file systems do not.
        heartbeat: time between two signs of life to the receiver, also while nothing is sent.
        pid_file: file that holds the process id while the daemon runs; none for no file.
    """

    period: Annotated[Duration, Meta(ge=1)] = 60.0
    look_period: Duration = 3600.0
    watch: bool = True
    watch_settle: Duration = 2.0
    watch_poll: Annotated[Duration, Meta(ge=1)] = 10.0
    heartbeat: Annotated[Duration, Meta(ge=1)] = 60.0
    pid_file: Path | None = None


class SenderMetrics(Struct, frozen=True, kw_only=True):
    """``[metrics]``: what a monitoring system reads.

    Attributes:
        listen: host:port on which the daemon is scraped, without TLS and token; none for no port.
        textfile: file that is written for node_exporter's textfile collector, by the daemon and at
            the end of each `sync`; its name ends in .prom. Better in memory: it is flushed each
            time.
        textfile_every: time between two times that the daemon writes that file.
    """

    listen: str | None = None
    textfile: Path | None = None
    textfile_every: Annotated[Duration, Meta(ge=1)] = 60.0

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        yield from check_listen(self.listen)
        if self.textfile is not None and self.textfile.suffix != ".prom":
            yield ConfigFinding("textfile", "expected a name that ends in .prom")


class SenderConfig(Struct, frozen=True, kw_only=True):
    """The whole of ``sender.toml``.

    Attributes:
        schema_dir: directory that holds the schema log, where there is one, and ``sync/`` with this
            sender's uuid. Another one needs a restart.
        data_dirs: directories that hold ``sequence/`` and ``unsequence/`` (with `layout = "flat"`:
            the TsFiles themselves).
        label: what the receivers call this edge in lists, metrics and alerts: a name that no other
            edge has; the name of the host, if left out.
        receivers: the ``[[receiver]]`` tables.
        storage_groups: which of them are sent.
        closed_by: what tells that a file is closed: its ``.resource``, or a complete tail and
            `quiet_seconds` of rest.
        quiet_seconds: rest of a file with a complete tail, until it counts as closed; a number is
            in seconds.
        wait_alarm: time after which a file that is here and cannot be sent (not closed, being
            changed, unreadable) counts in the exit code of a round; 0 for never.
        layout: ``iotdb`` for ``<kind>/<storage group>/<virtual>/<partition>/<file>``, ``flat`` for
            TsFiles side by side.
        storage_group: the storage group that a flat directory belongs to.
        partition_interval: width of a time partition: the same as in the database and at the
            receiver.
        time_unit: unit of the timestamps in the data.
        propagate_deletes: what a file that is gone here means at the receiver: `replaced` keeps it
            until others are proved to give all of its points, `all` deletes it, `never` keeps it
            for ever.
        deletion_files: what becomes of points that were deleted in a closed file (`.mods`,
            `.mods2`): `apply` has readers at the receiver leave them out, too; `keep` tells of
            them, and they stay visible there; with `wait` a file that has some is not sent.
        max_delete_fraction: without effect; the receiver has it as `deletes.max_fraction`.
        guard_from_files: without effect; the receiver has it as `deletes.from_files`.
        task_max_files: files of one task, at most; a round has as many tasks as it needs.
        task_max_bytes: bytes of one task, at most, unless a single partition has more.
        schema: the database that is asked for its schema.
        transfer: how files travel.
        daemon: when rounds begin.
        metrics: what a monitoring system reads.
        hooks: who is told of what happens.
        log: where records go.
    """

    schema_dir: Path
    data_dirs: Annotated[tuple[Path, ...], Meta(min_length=1)]
    label: str | None = None
    receivers: tuple[ReceiverEntry, ...] = msgspec.field(name="receiver", default=())
    storage_groups: StorageGroupFilter = StorageGroupFilter()
    closed_by: Literal["resource", "tail"] = "resource"
    quiet_seconds: Duration = 10.0
    wait_alarm: Duration = 86400.0
    layout: Literal["iotdb", "flat"] = "iotdb"
    storage_group: str | None = None
    partition_interval: Annotated[Duration, Meta(ge=0.001)] = 604800.0
    time_unit: TimeUnit = "ms"
    propagate_deletes: Literal["replaced", "all", "never"] = "replaced"
    deletion_files: Literal["apply", "keep", "wait"] = "apply"
    max_delete_fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    guard_from_files: Annotated[int, Meta(ge=0)] | None = None
    task_max_files: Annotated[int, Meta(ge=1)] = 1000
    task_max_bytes: Annotated[Size, Meta(ge=1)] = 4 * 2**30
    schema: SchemaConfig = SchemaConfig()
    transfer: TransferConfig = TransferConfig()
    daemon: DaemonConfig = DaemonConfig()
    metrics: SenderMetrics = SenderMetrics()
    hooks: HooksConfig = HooksConfig()
    log: LogConfig = LogConfig()

    @property
    def partition_interval_ms(self) -> int:
        """The width of a time partition in milliseconds."""
        return round(self.partition_interval * 1000)

    def check(self) -> Iterator[ConfigFinding]:
        """What no single table can tell."""
        yield from self._check_layout()
        label = self.label
        if label is not None and not _is_name(label):
            yield ConfigFinding("label", f"expected 1 to {_LONGEST_LABEL} printable characters")
        yield from overlapping("data_dirs", self.data_dirs)
        yield from whole_milliseconds("partition_interval", self.partition_interval)
        for old, new in (
            ("max_delete_fraction", "max_fraction"),
            ("guard_from_files", "from_files"),
        ):
            if getattr(self, old) is not None:
                text = f"without effect: the receiver has it now, as deletes.{new}"
                yield ConfigFinding(old, text, fatal=False)
        if not self.receivers:
            yield ConfigFinding("receiver", "missing: expected at least one [[receiver]]")
        yield from _repeated("name", [entry.name for entry in self.receivers])
        # Both would share a directory, and each would take the other's progress for its own.
        yield from _repeated("url", [entry.directory for entry in self.receivers])
        yield from self._check_standbys()

    def _check_standbys(self) -> Iterator[ConfigFinding]:
        """One address has one receiver: else each would take the other's progress for its own."""
        of = {_directory(url): entry for entry in self.receivers for url in entry.addresses}
        for number, entry in enumerate(self.receivers):
            for url in entry.addresses:
                other = of[_directory(url)]
                if other is not entry and (url in entry.standby_urls or url in other.standby_urls):
                    key = "standby_urls" if url in entry.standby_urls else "url"
                    text = f"{url} is an address of {other.name} as well"
                    yield ConfigFinding(f"receiver[{number}].{key}", text)

    def _check_layout(self) -> Iterator[ConfigFinding]:
        if self.layout == "iotdb" and self.storage_group is not None:
            yield ConfigFinding("storage_group", 'expected only with layout = "flat"')
        if self.layout == "flat":
            if self.storage_group is None:
                yield ConfigFinding("storage_group", 'missing: expected with layout = "flat"')
            elif "*" in self.storage_group or not _is_path(self.storage_group):
                yield ConfigFinding("storage_group", "expected a path such as root.turbine")
            if self.closed_by == "resource":
                text = 'flat directories seldom have resources: "tail" may be meant'
                yield ConfigFinding("closed_by", text, fatal=False)


def _directory(url: str) -> str:
    parts = urlsplit(url)
    return endpoint_dir(parts.hostname or "", parts.port or _PORTS[parts.scheme])


def _sent_in_clear(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def _plain_http(key: str, url: str, insecure: bool) -> Iterator[ConfigFinding]:
    if not _sent_in_clear(url):
        return
    if insecure:
        yield ConfigFinding(key, "plain HTTP: data and token can be read on the way", fatal=False)
    else:
        yield ConfigFinding(key, "expected https:// (or insecure = true, to send all in clear)")


def _is_name(text: str) -> bool:
    return bool(text.strip()) and len(text) <= _LONGEST_LABEL and printable(text) == text


def _is_path(text: str) -> bool:
    nodes = text.split(".")
    return all(nodes) and nodes != ["root"] and "/" not in text


def _repeated(key: str, values: Sequence[str]) -> Iterable[ConfigFinding]:
    first = {value: number for number, value in reversed(list(enumerate(values)))}
    for value, times in Counter(values).items():
        for number in range(first[value] + 1, len(values)) if times > 1 else ():
            if values[number] == value:
                other = f"receiver[{first[value]}]"
                yield ConfigFinding(
                    f"receiver[{number}].{key}", f"expected another than that of {other}"
                )
