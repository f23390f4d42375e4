"""Where files lie beyond this process, and who follows whom: `[nodes]`, `[node]`, `[follow]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from common.config import ConfigFinding, Duration, Secret, Size, Url
from common.config.toml_file import readable_by_others

__all__ = ["FollowConfig", "NodeConfig", "NodesConfig", "OperatorConfig"]


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


def _pair_of(cert: Path | None, key: Path | None) -> Iterator[ConfigFinding]:
    """What is wrong with a client certificate and its key."""
    if cert is None and key is not None:
        yield ConfigFinding("client_cert", "missing: expected with client_key")
    if key is None and cert is not None:
        yield ConfigFinding("client_key", "missing: expected with client_cert")
    if key is not None and readable_by_others(key):
        yield ConfigFinding("client_key", "others than its owner may read it", fatal=False)
