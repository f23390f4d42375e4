"""Bytes of files that go to a storage node, while their task stays with its master."""

from __future__ import annotations

from enum import StrEnum

from common.wire.base import Count, Struct

__all__ = ["PullAnswer", "PullRequest", "PullState", "UploadNode"]


class UploadNode(Struct, frozen=True, kw_only=True):
    """Where the bytes of one file may go.

    Attributes:
        uuid: of the storage node.
        url: of its server; `/sync/v1/files` there is as at the receiver.
        ticket: for the header `Tsferry-Ticket`, in the place of a token, which no node is to see.
        lasts: seconds for which the ticket opens an upload; one that is open goes on.
    """

    uuid: str
    url: str
    ticket: str
    lasts: float


class PullRequest(Struct, frozen=True, kw_only=True):
    """`POST /tasks/<id>/pull`: a planned file lies at a storage node, or begins to.

    Attributes:
        path: of the TsFile.
        node: uuid of the node.
        md5: of the whole file, which is there; without it all but the end is wanted ahead.
    """

    path: str
    node: str
    md5: str | None = None


class PullState(StrEnum):
    """How far the receiver is."""

    COMING = "coming"
    HERE = "here"
    """It has the file whole, and has verified it itself."""
    FAILED = "failed"
    """It does not come from there: the file is to be planned again."""


class PullAnswer(Struct, frozen=True, kw_only=True):
    """How far the receiver is with a file that lies at a storage node.

    Attributes:
        state: see there.
        offset: bytes that it has.
        md5: of what it has, where it has all.
        reason: why it does not come.
    """

    state: PullState
    offset: Count = 0
    md5: str | None = None
    reason: str | None = None
