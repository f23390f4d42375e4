"""The configuration of the receiver; ``conf/receiver.toml`` shows every key with its default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from msgspec import Meta, Struct

from common.config import (
    AllowList,
    ConfigFinding,
    Duration,
    Hours,
    Secret,
    Size,
    Timetable,
    UploadRules,
    Url,
    is_loopback,
)
from common.config.metrics_rules import check_listen
from common.config.shared_rules import TimeUnit, overlapping, whole_milliseconds
from common.config.toml_file import readable_by_others
from common.errors import UsageError
from common.hooks.hooks_config import HooksConfig
from common.logs import LogConfig

__all__ = [
    "ENV_PREFIX",
    "FILE",
    "NO_DIRECTORY",
    "AuthConfig",
    "DeletesConfig",
    "EtcdConfig",
    "FollowConfig",
    "LimitsConfig",
    "ListenConfig",
    "LoadConfig",
    "MergeConfig",
    "MetadataConfig",
    "MetricsConfig",
    "NodeConfig",
    "NodesConfig",
    "OperatorConfig",
    "PageConfig",
    "ProofsConfig",
    "ReceiverConfig",
    "SendersConfig",
]

ENV_PREFIX = "TSFERRY_RECEIVER_"
FILE = Path("/etc/tsferry/receiver.toml")
NO_DIRECTORY = "/dev/null/operator.url"
"""Stands for the directories where there are none, but a receiver on another machine; no such path
can ever be there."""

_LOOPBACK = AllowList.parse(["127.0.0.0/8", "::1/128"])


class ListenConfig(Struct, frozen=True, kw_only=True):
    """``[listen]``: who can reach the server.

    Attributes:
        host: address to listen on; 0.0.0.0 or :: for all.
        port: TCP port; 0 for any that is free.
        tls_cert: file with the certificate (PEM), and with those between it and the root; with
            `tls_key`.
        tls_key: file with the private key (PEM).
        client_ca: PEM file with the authorities whose client certificates are taken in the place
            of tokens, once `token create --certificate` has bound their names; none for none.
        client_auth: ``optional``: who shows a certificate is known by it, others come with tokens;
            ``required``: a connection without one ends in the handshake. From this machine it
            does not, for the commands of the operator here, and nothing else is let in so.
        client_crl: PEM file with the lists of what these authorities have revoked, one of each of
            them; none where a revoked name is not bound any more.
        insecure: allow plain HTTP on an address that other machines can reach.
        allow: networks and hosts that may connect; the address of the connection counts, never a
            header.
        hosts: Host headers that are answered, such as "centre.example.org"; empty for any.
        threads: requests that are worked on at a time.
        connection_limit: open connections; further ones wait. Half of them at most are at work for
            one token, or without any for one address.
        channel_timeout: time without a byte, until a connection is closed.
        max_request_bytes: most bytes of the body of one request.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8765
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    client_auth: Literal["optional", "required"] = "optional"
    client_crl: Path | None = None
    insecure: bool = False
    allow: AllowList = _LOOPBACK
    hosts: tuple[str, ...] = ()
    threads: Annotated[int, Meta(ge=1, le=1024)] = 16
    connection_limit: Annotated[int, Meta(ge=1)] = 500
    channel_timeout: Annotated[Duration, Meta(ge=1)] = 60.0
    max_request_bytes: Annotated[Size, Meta(ge=4096)] = 64 * 2**20

    @property
    def tls(self) -> bool:
        """Whether the server speaks HTTPS."""
        return self.tls_cert is not None and self.tls_key is not None

    @property
    def wants_certificates(self) -> bool:
        """Whether nobody is let in without a certificate, but the commands on this machine."""
        return self.client_ca is not None and self.client_auth == "required"

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        if self.tls_cert is None and self.tls_key is not None:
            yield ConfigFinding("tls_cert", "missing: expected with tls_key")
        if self.tls_key is None and self.tls_cert is not None:
            yield ConfigFinding("tls_key", "missing: expected with tls_cert")
        yield from self._check_clients()
        if self.on_loopback:
            return
        if not self.tls and not self.insecure:
            text = "expected a loopback address, or tls_cert and tls_key, or insecure = true"
            yield ConfigFinding("host", text)
        elif not self.tls:
            yield ConfigFinding("insecure", "data and tokens can be read on the way", fatal=False)
        if self.allow.only_loopback:
            text = "only this machine may connect, though others can reach the address"
            yield ConfigFinding("allow", text, fatal=False)

    def _check_clients(self) -> Iterator[ConfigFinding]:
        if self.client_ca is not None and not self.tls:
            yield ConfigFinding("client_ca", "expected with tls_cert and tls_key")
        if self.client_ca is None and self.client_crl is not None:
            yield ConfigFinding("client_crl", "expected with client_ca")
        if self.client_ca is None and self.client_auth == "required":
            yield ConfigFinding("client_auth", "expected with client_ca")


class AuthConfig(Struct, frozen=True, kw_only=True):
    """``[auth]``: who is asked for a token.

    Attributes:
        require: ``always``, or ``auto``: once a token of the role was made, and from other
            machines unless ``listen.insecure``. Operator commands need a token in any case.
        reveal_owner: tell a sender whose device it has a conflict about.
    """

    require: Literal["auto", "always"] = "auto"
    reveal_owner: bool = False


class PageConfig(Struct, frozen=True, kw_only=True):
    """``[page]``: the web page at ``/ui/``, for people.

    Attributes:
        enabled: whether there is a page at all.
        insecure: take people in over plain HTTP from other machines; what they type can be read on
            the way.
        session: time until somebody has to log in again.
        idle: time without a look at the page, until somebody has to log in again.
        report: directory that `tsferry-verify --report` writes; the page shows what it says.
    """

    enabled: bool = True
    insecure: bool = False
    session: Annotated[Duration, Meta(ge=60, le=604_800)] = 43200.0
    idle: Annotated[Duration, Meta(ge=60, le=604_800)] = 1800.0
    report: Path | None = None


class LimitsConfig(Struct, frozen=True, kw_only=True):
    """``[limits]``: what one sender can make this server hold.

    Attributes:
        max_file_bytes: most bytes of one TsFile.
        max_open_uploads: uploads of one sender that are begun and not finished, at most.
        max_unloaded_bytes: bytes of one sender that are received and not loaded, at most.
        min_free_bytes: free space of the file system, below which nothing is taken in.
        upload_expiry: time without a byte, until an upload is dropped.
        max_chunk_bytes: bytes of a file in one request that count at once (a body without a
            checksum may bring more). At most `listen.max_request_bytes`.
        max_batch_bytes: bytes of many small files in one request, at most. At most
            `listen.max_request_bytes`.
        max_page_items: entries of a page of a plan or an inventory, at most.
        max_task_items: files, and ends, of one task, which is held in memory (about 3 KB each) and
            loaded in one commit. A sender holds partitions that need more, and says so.
    """

    max_file_bytes: Annotated[Size, Meta(ge=1)] = 64 * 2**30
    max_open_uploads: Annotated[int, Meta(ge=1)] = 1000
    max_unloaded_bytes: Annotated[Size, Meta(ge=1)] = 256 * 2**30
    min_free_bytes: Size = 2**30
    upload_expiry: Annotated[Duration, Meta(ge=60)] = 604800.0
    max_chunk_bytes: Annotated[Size, Meta(ge=4096)] = 16 * 2**20
    max_batch_bytes: Annotated[Size, Meta(ge=4096)] = 32 * 2**20
    max_page_items: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    max_task_items: Annotated[int, Meta(ge=1000, le=2_000_000)] = 500_000

    def check(self) -> Iterator[ConfigFinding]:
        """Limits that contradict each other."""
        if self.max_unloaded_bytes < self.max_file_bytes:
            yield ConfigFinding("max_unloaded_bytes", "expected at least max_file_bytes")


class LoadConfig(Struct, frozen=True, kw_only=True):
    """``[load]``: what becomes of files.

    Attributes:
        keep_deleted: time until the bytes of a deleted file leave the disk.
        paths: directories of this machine from which `load` in SQL, and calls with an operator's
            token, may take files; none, if left out.
    """

    keep_deleted: Duration = 3600.0
    paths: tuple[Path, ...] = ()


class NodesConfig(Struct, frozen=True, kw_only=True):
    """``[nodes]``: places that files lie at: data directories, and storage nodes.

    Attributes:
        move_rate: bytes a second that are copied off a directory that is drained, at most; none for
            no limit.
        check_every: time between two rounds over the names of all files, which compare the disks
            with the catalogue and change nothing; "none" for no rounds.
        check_rate: names that such a round looks at in a second.
        timeout: time without a sign of life, until a storage node counts as down. Nothing is
            deleted for that.
        replicas: storage nodes that are to have a copy of each tablet; 0 for none.
        before_ack: storage nodes that have a file before it is told to be loaded; 0 for none.
        assignment_timeout: time that a storage node has to make a replica.
        lost_after: silence after which what a storage node has is made again elsewhere; 0 for
            never.
        ca_cert: PEM file with the authorities that storage nodes are checked against.
        evict_copies: storage nodes, each on a host of its own, that have to prove that they have a
            file before it may leave the receiver's disks (`storage.capacity`); 0: none leaves.
        uploads_from: files of at least so many bytes may go from edges that can to storage nodes,
            and from there to the receiver; None: all go to the receiver.
    """

    move_rate: Annotated[Size, Meta(ge=2**16)] | None = None
    check_every: Annotated[Duration, Meta(ge=1)] | None = 86400.0
    check_rate: Annotated[int, Meta(ge=1)] = 1000
    timeout: Annotated[Duration, Meta(ge=1)] = 30.0
    replicas: Annotated[int, Meta(ge=0, le=16)] = 0
    before_ack: Annotated[int, Meta(ge=0, le=16)] = 0
    assignment_timeout: Annotated[Duration, Meta(ge=1)] = 30.0
    lost_after: Annotated[Duration, Meta(ge=0)] = 900.0
    ca_cert: Path | None = None
    evict_copies: Annotated[int, Meta(ge=0, le=16)] = 0
    uploads_from: Annotated[Size, Meta(ge=2**16)] | None = None

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        if self.evict_copies == 1:
            text = "expected 0, or 2 at least: of what one node has alone, one disk loses all"
            yield ConfigFinding("evict_copies", text)
        if self.evict_copies > self.replicas:
            text = "expected at most replicas: no more nodes than that ever have a file"
            yield ConfigFinding("evict_copies", text)
        if self.uploads_from is not None and not self.replicas:
            text = "expected replicas above 0: files go to nodes that are to have them anyway"
            yield ConfigFinding("uploads_from", text)
        if self.before_ack > self.replicas:
            text = "expected at most replicas: no more nodes than that ever have a file"
            yield ConfigFinding("before_ack", text)


class ProofsConfig(Struct, frozen=True, kw_only=True):
    """``[proofs]``: retired files that give nothing which other files do not give.

    Attributes:
        enabled: whether they are looked for; without it retired files stay.
        here: whether this machine proves them; else only `tsferry-receiver work` elsewhere does.
        memory: memory that the process may take which reads files.
        every: time between two looks for what is to be proved.
    """

    enabled: bool = True
    here: bool = True
    memory: Annotated[Size, Meta(ge=256 * 2**20)] = 2**30
    every: Annotated[Duration, Meta(ge=0.1)] = 5.0


class MergeConfig(Struct, frozen=True, kw_only=True):
    """``[merge]``: small and overlapping files that are merged into few, for those who read them.

    Attributes:
        enabled: whether files are merged by themselves; without it only `tsferry-receiver compact`
            merges.
        target_bytes: bytes of a merged file, about.
        min_files: files that readers are spared by a merge, at least; fewer are not worth it.
        quiet: time since the last file of a partition came (and since its time was over), until it
            is merged.
        every: time between two looks for what is to be merged.
        hours: when files are merged, by the time of this machine.
        memory: memory that the process may take which merges.
        max_bytes_per_second: that a merge reads and writes at most, all together, wherever it is
            done; none for no limit.
        here: whether this machine merges; false leaves all of it to executors elsewhere
            (`tsferry-receiver work`).
        final_after: time since the last file of a merge was gone at the edge, until the merged ones
            take the place of what they were made of for good; none for never.
        final_verified: whether they do so only when `tsferry-verify`, or this receiver in another
            process than merged, has merged what they were made of anew and found the same.
    """

    enabled: bool = False
    target_bytes: Annotated[Size, Meta(ge=2**16, le=2**40)] = 256 * 2**20
    min_files: Annotated[int, Meta(ge=2, le=10_000)] = 10
    quiet: Annotated[Duration, Meta(ge=0)] = 3600.0
    every: Annotated[Duration, Meta(ge=0.1)] = 60.0
    hours: Hours = Hours()
    memory: Annotated[Size, Meta(ge=256 * 2**20)] = 2**30
    max_bytes_per_second: Annotated[Size, Meta(ge=2**16)] | None = None
    here: bool = True
    final_after: Annotated[Duration, Meta(ge=0)] | None = None
    final_verified: bool = True


class DeletesConfig(Struct, frozen=True, kw_only=True):
    """``[deletes]``: what one sender may delete without an operator.

    Attributes:
        max_fraction: part of the files that a storage group had of the sender when the window
            began; more that nothing explains is held. 1 for no limit at all.
        from_files: fewest files that `max_fraction` is for; the last file of a storage group is
            always held.
        window: time, by that of commits, in which deletes are counted.
    """

    max_fraction: Annotated[float, Meta(ge=0, le=1)] = 0.5
    from_files: Annotated[int, Meta(ge=0)] = 10
    window: Annotated[Duration, Meta(ge=1)] = 86400.0


class SendersConfig(Struct, frozen=True, kw_only=True):
    """``[senders]``: what is expected of edges.

    Attributes:
        late_after: silence after which a sender is late, unless `senders set` says otherwise for
            it; 0 for never.
    """

    late_after: Duration = 86400.0


class MetricsConfig(Struct, frozen=True, kw_only=True):
    """``[metrics]``: what a monitoring system scrapes; `/metrics` of the server has it as well.

    Attributes:
        listen: host:port of a port of its own, without TLS and token; none for no such port.
        edges: edges that have measures of their own, those that came first; the rest counts in
            the sums.
    """

    listen: str | None = None
    edges: Annotated[int, Meta(ge=0, le=1_000_000)] = 1000

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        yield from check_listen(self.listen)


class EtcdConfig(Struct, frozen=True, kw_only=True):
    """``[metadata.etcd]``: where the commits are kept with ``backend = "etcd"``.

    Attributes:
        endpoints: addresses of the members, tried in turn.
        prefix: beginning of all keys of this receiver.
        user: name to log in with.
        password: password of the user.
        ca_cert: PEM file with the authorities that the members are checked against.
        cert: PEM certificate of this client; with `key`.
        key: PEM private key of this client; with `cert`.
        timeout: time that one request may take.
        lease: time without a sign of life, until another receiver may take over.
        standby: another receiver has the same keys, and data directories of its own: wait for its
            end, and take its place.
        url: address of this receiver, that one whose place it takes tells to whoever asks there;
            none for no address, only the name of the machine.
    """

    endpoints: tuple[Url, ...] = ("http://127.0.0.1:2379",)
    prefix: str = "/tsferry"
    user: str | None = None
    password: Secret | None = None
    ca_cert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    timeout: Annotated[Duration, Meta(ge=0.1)] = 5.0
    lease: Annotated[Duration, Meta(ge=2)] = 15.0
    standby: bool = False
    url: Url | None = None

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        if not self.endpoints:
            yield ConfigFinding("endpoints", "expected at least one")
        if not self.prefix.strip("/"):
            yield ConfigFinding("prefix", "expected a name, such as /tsferry")
        if (self.cert is None) is not (self.key is None):
            yield ConfigFinding("cert", "expected with key, and key with cert")
        if (self.user is None) is not (self.password is None):
            yield ConfigFinding("user", "expected with password, and password with user")


class MetadataConfig(Struct, frozen=True, kw_only=True):
    """``[metadata]``: series, devices, tags and their history.

    Attributes:
        backend: ``embedded``: the log in `schema_dir` is the truth; ``etcd``: every commit is kept
            in etcd, and what is in `schema_dir` can be made anew from there.
        history: how far back questions can be asked; deleted files and rows stay that long.
        history_commits: how far back questions can be asked, as a number of commits; 0 for no such
            number. Where both are set, what reaches further back counts.
        max_memory: memory that series and storage groups may take; none for no limit.
        auto_create_schema: whether a loaded file makes the series and storage groups that it needs,
            and `create timeseries` its storage group (`enable_auto_create_schema` in Apache IoTDB);
            without it such a file is held.
        storage_group_level: how many nodes below root a storage group is made of when a loaded file
            has none; 0: the storage group that the file's directory names.
        tag_bytes: bytes of the tags and attributes of one series, at most.
        checkpoint_entries: commits in the log, until a checkpoint is taken.
        checkpoint_bytes: bytes of the log, until a checkpoint is taken: commits can be large.
            Behind a checkpoint of more than 16 times as much it is a sixteenth of that.
        checkpoint_rest: time without a commit, until a checkpoint is taken of what is new.
        fetch_size: rows of a page of an answer, where the question does not say.
        kv_ring: commits of the key-value store whose place is known without a search.
        ttl_every: time between two looks for files that are past their TTL.
        clock_jump: a step of the clock, or time off, beyond which it is believed only if the kernel
            calls it synchronised, senders' clocks agree with it, or an operator confirms it (`clock
            confirm`).
        txn_lease: time without a use, until a transaction is rolled back; the history that it reads
            is kept as long.
        txn_most: transactions at a time, at most.
        etcd: where the commits are kept with ``backend = "etcd"``.
    """

    backend: Literal["embedded", "etcd"] = "embedded"
    history: Duration = 604800.0
    history_commits: Annotated[int, Meta(ge=0)] = 0
    max_memory: Size | None = None
    auto_create_schema: bool = True
    storage_group_level: Annotated[int, Meta(ge=0, le=64)] = 0
    tag_bytes: Annotated[int, Meta(ge=16, le=1 << 20)] = 700
    checkpoint_entries: Annotated[int, Meta(ge=1)] = 100_000
    checkpoint_bytes: Annotated[Size, Meta(ge=65536)] = 64 * 2**20
    checkpoint_rest: Annotated[Duration, Meta(ge=1)] = 3600.0
    fetch_size: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    kv_ring: Annotated[int, Meta(ge=1, le=1 << 20)] = 1024
    ttl_every: Annotated[Duration, Meta(ge=1)] = 60.0
    clock_jump: Annotated[Duration, Meta(ge=60)] = 3600.0
    txn_lease: Annotated[Duration, Meta(ge=1, le=86400)] = 60.0
    txn_most: Annotated[int, Meta(ge=1, le=10_000)] = 100
    etcd: EtcdConfig = EtcdConfig()


class PricesConfig(Struct, frozen=True, kw_only=True):
    """``[storage.prices]``: what a store asks for 1,000 requests; none is known by itself.

    Attributes:
        currency: what the prices are in, as it is shown.
        put: for 1,000 requests that put something, a part too, or copy or end an attempt.
        get: for 1,000 requests that read.
        head: for 1,000 requests that ask for one object.
        list: for 1,000 requests that list.
        delete: for 1,000 requests that remove.
    """

    currency: Annotated[str, Meta(max_length=16)] = "USD"
    put: Annotated[float, Meta(ge=0)] = 0.0
    get: Annotated[float, Meta(ge=0)] = 0.0
    head: Annotated[float, Meta(ge=0)] = 0.0
    list: Annotated[float, Meta(ge=0)] = 0.0
    delete: Annotated[float, Meta(ge=0)] = 0.0

    def of(self, requests: Mapping[str, int]) -> dict[str, float]:
        """What requests cost, by kind; empty where no price is known."""
        prices = {kind: float(getattr(self, kind, 0.0)) for kind in requests}
        return {kind: requests[kind] * price / 1000 for kind, price in prices.items() if price}


class StorageConfig(Struct, frozen=True, kw_only=True):
    """``[storage]``: where loaded files and the log are copied to, behind their commits.

    Attributes:
        url: ``s3://bucket/prefix``, or ``file:///directory``; none for no copies.
        endpoint: address of a store that is compatible with S3; none for AWS.
        region: region of the bucket; none for what the environment or the profile says.
        profile: profile of the credentials' file; none for the usual order: environment, profile,
            role.
        path_style: the bucket is in the path, not in the host's name, as many compatibles want.
        encryption: how a store of S3 keeps objects: `AES256`, or `aws:kms`; none for what the
            bucket says.
        kms_key: key of the key service by its id or ARN, for `aws:kms`; none for the bucket's.
        upload: when loaded files go there, by storage group; `set upload` in SQL says otherwise for
            one of them.
        before_ack: whether a task is *loaded* only when its files and its commit are there too.
        parallel: files on their way at once, and parts of one large file.
        bandwidth_limit: bytes a second of all copies of files together, or by the hour in local
            time.
        lag: how far the copy of the log is behind the commits, at most, while the store answers.
        grace: time that objects stay in the store when the history needs them no more. Longer than
            any receiver may have stood still while another took over.
        capacity: what loaded files may take in the data directories; those that are in the store,
            or without one at storage nodes (`nodes.evict_copies`), make room, the longest unused
            first. None: all of them stay.
        evict_above: part of the capacity above which files make room.
        evict_to: part of the capacity down to which files make room.
        pin_wait: how long a step waits for room for what it needs from the store, at most.
        scrub_days: days in which the store is asked for each object once; 0 for never.
        tree: keep the tree of files there too, as tables that others read by themselves.
        tree_every: time between two looks for what is new in the tree.
        prices: of requests, for `storage status`.
    """

    url: str | None = None
    endpoint: Url | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool = False
    encryption: Literal["AES256", "aws:kms"] | None = None
    kms_key: str | None = None
    upload: UploadRules = UploadRules()
    before_ack: bool = False
    parallel: Annotated[int, Meta(ge=1, le=64)] = 4
    bandwidth_limit: Timetable = Timetable()
    lag: Annotated[Duration, Meta(ge=0.1)] = 10.0
    grace: Annotated[Duration, Meta(ge=3600)] = 604800.0
    capacity: Annotated[Size, Meta(ge=1)] | None = None
    evict_above: Annotated[float, Meta(gt=0, le=1)] = 0.9
    evict_to: Annotated[float, Meta(ge=0, le=1)] = 0.8
    pin_wait: Annotated[Duration, Meta(ge=0)] = 30.0
    scrub_days: Annotated[int, Meta(ge=0)] = 30
    tree: bool = False
    tree_every: Annotated[Duration, Meta(ge=0.1)] = 10.0
    prices: PricesConfig = PricesConfig()

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        if self.evict_to >= self.evict_above:
            yield ConfigFinding("evict_to", "expected less than evict_above")
        if self.encryption is not None and not (self.url or "").startswith("s3://"):
            yield ConfigFinding("encryption", "expected with a url of S3: others have none")
        if self.kms_key is not None and self.encryption != "aws:kms":
            yield ConfigFinding("kms_key", 'expected with encryption = "aws:kms"')
        if self.tree and self.url is None:
            yield ConfigFinding("tree", "expected with url: that is where it is kept")
        if self.before_ack and self.url is None:
            yield ConfigFinding("before_ack", "expected with url: nothing would ever be loaded")
        if self.before_ack and not self.upload.is_always_at_once:
            text = 'expected with upload = "at once": nothing is acknowledged before its upload'
            yield ConfigFinding("before_ack", text)


def _pair_of(cert: Path | None, key: Path | None) -> Iterator[ConfigFinding]:
    """What is wrong with a client certificate and its key."""
    if cert is None and key is not None:
        yield ConfigFinding("client_cert", "missing: expected with client_key")
    if key is None and cert is not None:
        yield ConfigFinding("client_key", "missing: expected with client_cert")
    if key is not None and readable_by_others(key):
        yield ConfigFinding("client_key", "others than its owner may read it", fatal=False)


class FollowConfig(Struct, frozen=True, kw_only=True):
    """``[follow]``: of a node that only reads (`serve --follow`).

    Attributes:
        url: ``s3://bucket/prefix`` or ``file:///directory`` with the copies of a receiver, or the
            address of that receiver, with commas those that may take its place; none for a receiver
            of its own.
        writer: address that senders and changes are sent to; none for the receiver that is
            followed.
        token: an operator's token for the receiver at the URL.
        token_file: a file that holds the token, instead.
        ca_cert: PEM file with the authorities that this receiver is checked against.
        client_cert: PEM certificate that it is shown, in the place of a token.
        client_key: PEM private key of that, without a passphrase.
        poll: time between two looks at a store; a receiver tells of news by itself.
        most_behind: time without all that the source has, until `/readyz` says so.
    """

    url: str | None = None
    writer: Url | None = None
    token: Secret | None = None
    token_file: Path | None = None
    ca_cert: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    poll: Annotated[Duration, Meta(ge=0.1)] = 5.0
    most_behind: Annotated[Duration, Meta(ge=1)] = 60.0

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        yield from _pair_of(self.client_cert, self.client_key)


class OperatorConfig(Struct, frozen=True, kw_only=True):
    """``[operator]``: of commands that speak to a receiver on another machine.

    Attributes:
        url: its address, and with commas those that may take its place; none for the server of this
            machine, or its directories. With it schema_dir and data_dirs need not be there.
        token: an operator's token for that receiver.
        token_file: a file that holds the token, instead.
        ca_cert: PEM file with the authorities that this receiver is checked against.
        client_cert: PEM certificate that it is shown, in the place of a token.
        client_key: PEM private key of that, without a passphrase.
    """

    url: str | None = None
    token: Secret | None = None
    token_file: Path | None = None
    ca_cert: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        yield from _pair_of(self.client_cert, self.client_key)


class NodeConfig(Struct, frozen=True, kw_only=True):
    """``[node]``: of a storage node (`serve --node`).

    Attributes:
        master: addresses of the receiver that it keeps files for, and of those that may take its
            place; none for a receiver. From none to some, or back, needs a restart.
        url: address at which the master calls this node; none for where it listens.
        name: what people call it; none for the URL.
        host: what tells its machine from others, so that no two copies lie on one; none for what
            the machine says of itself.
        token: a token of the role node, of the master.
        token_file: a file that holds the token, instead.
        ca_cert: PEM file with the authorities that the master is checked against.
        client_cert: PEM certificate that is shown to the master, in the place of a token.
        client_key: PEM private key of that, without a passphrase.
        heartbeat: time between two signs of life.
        scrub_every: between two readings of all that it holds; None for none.
        scrub_rate: bytes a second that are read for that.
        cache: whether it keeps for others, in `cache_dir`, what they read of the object store.
        cache_dir: directory for that, on a disk of this machine; none for none.
        cache_bytes: what it may hold.
    """

    master: tuple[Url, ...] = ()
    url: Url | None = None
    name: str | None = None
    host: str | None = None
    token: Secret | None = None
    token_file: Path | None = None
    ca_cert: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    heartbeat: Annotated[Duration, Meta(ge=0.1, le=3600)] = 5.0
    scrub_every: Annotated[Duration, Meta(ge=1)] | None = 604800.0
    scrub_rate: Annotated[Size, Meta(ge=2**16)] = 20 * 2**20
    cache: bool = True
    cache_dir: Path | None = None
    cache_bytes: Annotated[Size, Meta(ge=2**24)] = 10 * 2**30

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        yield from _pair_of(self.client_cert, self.client_key)


class ReceiverConfig(Struct, frozen=True, kw_only=True):
    """The whole of ``receiver.toml``.

    Attributes:
        schema_dir: directory that holds the metadata engine.
        data_dirs: directories that hold the loaded files. With several, on as many disks, a
            sender's go to the one with most room when it first comes, and to another one when that
            runs short.
        partition_interval: width of a time partition; senders with another are refused.
        time_unit: unit of the timestamps in the data; senders with another are refused.
        listen: who can reach the server.
        auth: who is asked for a token.
        page: the web page for people.
        limits: what one sender can make it hold.
        load: what becomes of files.
        nodes: where they lie.
        proofs: of what is superseded.
        merge: of small and overlapping files.
        deletes: what one sender may delete without an operator.
        senders: what is expected of edges.
        metrics: what a monitoring system scrapes.
        hooks: who is told of what happens.
        metadata: series, devices, tags and their history.
        storage: where loaded files and the log are copied to.
        follow: what a node that only reads follows.
        node: of a storage node.
        operator: the receiver that commands speak to, if it is on another machine.
        log: where records go.
    """

    schema_dir: Path
    data_dirs: Annotated[tuple[Path, ...], Meta(min_length=1)]
    partition_interval: Annotated[Duration, Meta(ge=0.001)] = 604800.0
    time_unit: TimeUnit = "ms"
    listen: ListenConfig = ListenConfig()
    auth: AuthConfig = AuthConfig()
    page: PageConfig = PageConfig()
    limits: LimitsConfig = LimitsConfig()
    load: LoadConfig = LoadConfig()
    nodes: NodesConfig = NodesConfig()
    proofs: ProofsConfig = ProofsConfig()
    merge: MergeConfig = MergeConfig()
    deletes: DeletesConfig = DeletesConfig()
    senders: SendersConfig = SendersConfig()
    metrics: MetricsConfig = MetricsConfig()
    hooks: HooksConfig = HooksConfig()
    metadata: MetadataConfig = MetadataConfig()
    storage: StorageConfig = StorageConfig()
    follow: FollowConfig = FollowConfig()
    node: NodeConfig = NodeConfig()
    operator: OperatorConfig = OperatorConfig()
    log: LogConfig = LogConfig()

    def must_have_directories(self) -> None:
        """For what is done with them.

        Raises:
            UsageError: only a receiver on another machine is named here.
        """
        if self.schema_dir == Path(NO_DIRECTORY):
            raise UsageError(
                f"operator.url = {self.operator.url}: this is done on the receiver's own machine, "
                "with its configuration (schema_dir, data_dirs)"
            )

    @property
    def partition_interval_ms(self) -> int:
        """The width of a time partition in milliseconds."""
        return round(self.partition_interval * 1000)

    def check(self) -> Iterator[ConfigFinding]:
        """What no single table can tell."""
        if self.storage.capacity is not None and self.storage.url is None:
            if not self.nodes.evict_copies:
                text = "expected with url, or nodes.evict_copies: what leaves the disk is there"
                yield ConfigFinding("storage.capacity", text)
        elif self.nodes.evict_copies:
            text = (
                "expected with storage.capacity, and without storage.url: where there is a store, "
                "what leaves the disk is in it"
            )
            yield ConfigFinding("nodes.evict_copies", text)
        yield from overlapping("data_dirs", self.data_dirs)
        yield from whole_milliseconds("partition_interval", self.partition_interval)
        if self.node.master and self.follow.url is not None:
            text = "expected without follow.url: a storage node follows nobody"
            yield ConfigFinding("node.master", text)
        if self.node.master and self.listen.wants_certificates:
            text = (
                "expected optional at a storage node: its master and readers come with keys "
                "and tickets, and show it no certificate"
            )
            yield ConfigFinding("listen.client_auth", text)
        if self.node.cache_dir is not None:
            if self.storage.url is None:
                text = "expected with storage.url: what is kept there is read in the object store"
                yield ConfigFinding("node.cache_dir", text)
            for path in (self.schema_dir, *self.data_dirs):
                yield from overlapping("node.cache_dir", (path, self.node.cache_dir))
        for key in ("max_chunk_bytes", "max_batch_bytes"):
            if getattr(self.limits, key) > self.listen.max_request_bytes:
                yield ConfigFinding(f"limits.{key}", "expected at most listen.max_request_bytes")
        if self.storage.url is not None and self.storage.url.startswith("file:///"):
            store = Path(unquote(self.storage.url.removeprefix("file://"))).resolve()
            for path in (self.schema_dir, *self.data_dirs):
                if store.is_relative_to(path.resolve()):
                    text = f"expected a directory that is not in {path}: both would be lost at once"
                    yield ConfigFinding("storage.url", text)
