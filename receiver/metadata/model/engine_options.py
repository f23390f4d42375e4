"""What an engine is told when it is opened."""

from __future__ import annotations

from dataclasses import dataclass

from common.config import UploadRules

__all__ = ["EngineOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of `Engine.open`; the defaults are those of the configuration.

    Attributes:
        history: how far back questions can be asked, in seconds.
        history_commits: the same as a number of commits, 0 for none; what reaches further back
            counts.
        clock_jump: seconds; a clock that was set by more is believed on evidence only. In a log
            whose clock was not judged a pause longer than the history counts as that long.
        max_memory: bytes that series and storage groups may take; None for no limit.
        storage_group_level: nodes below root of a storage group that is made by itself; 0: what the
            caller names.
        tag_bytes: tags and attributes of one series, at most.
        checkpoint_entries: commits since the last checkpoint, until the next.
        checkpoint_bytes: of the log since the last checkpoint, until the next; where that
            checkpoint is larger than 16 times as much, a sixteenth of it.
        checkpoint_rest: seconds without a commit, until a checkpoint of what is new.
        fetch_size: rows of a page of an answer, where the question does not say.
        kv_ring: commits of the key-value store whose place is known without a search.
        auto_create: whether a series makes its storage group where there is none, and a loaded file
            its series.
        upload: when files go into an object store, where nobody said it of their storage group;
            None where there is no store.
        before_ack: whether all of them go at once, whatever was said.
    """

    history: float = 604800.0
    history_commits: int = 0
    clock_jump: float = 3600.0
    max_memory: int | None = None
    storage_group_level: int = 0
    tag_bytes: int = 700
    checkpoint_entries: int = 100_000
    checkpoint_bytes: int = 64 << 20
    checkpoint_rest: float = 3600.0
    fetch_size: int = 10_000
    kv_ring: int = 1024
    auto_create: bool = True
    upload: UploadRules | None = None
    before_ack: bool = False
