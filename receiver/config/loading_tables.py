"""What becomes of files: `[limits]`, `[load]`, `[proofs]`, `[merge]`, `[deletes]`, `[senders]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from common.config import ConfigFinding, Duration, Hours, Size

__all__ = [
    "DeletesConfig",
    "LimitsConfig",
    "LoadConfig",
    "MergeConfig",
    "ProofsConfig",
    "SendersConfig",
]


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
        constraints: names of rules that rows have to pass which are loaded at the centre.
        constraint_time: that the rules may take for one file.
        check_adopted: whether files that are adopted have to pass them as well.
    """

    keep_deleted: Duration = 3600.0
    paths: tuple[Path, ...] = ()
    constraints: tuple[str, ...] = ()
    constraint_time: Annotated[Duration, Meta(ge=1)] = 300.0
    check_adopted: bool = False


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
