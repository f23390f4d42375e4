"""The judge of every run: nothing lost, nothing twice, nothing unverified visible."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.workload import Workload

Row = Mapping[str, Any]
"""A row of `tsferry-receiver files --json`."""


def md5_of(path: Path) -> str | None:
    """MD5 of a file, None if it is not there."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest()
    except FileNotFoundError:
        return None


def _here(row: Row) -> Path | None:
    return Path(row["data_dir"]) / row["physical"] if row["data_dir"] else None


def visible(rows: Iterable[Row], edges: Mapping[str, Workload]) -> list[str]:
    """What is wrong with what readers see now, while everything still moves."""
    problems = []
    for row in rows:
        if row["state"] not in ("live", "retired"):
            continue
        name = f"{row['path']} of {row['sender'][:8]}"
        if row["sender"] not in edges:
            problems.append(f"{name}: of nobody")
        elif (row["path"], row["md5"]) not in edges[row["sender"]].ever:
            problems.append(f"{name}: content {row['md5']} was never at the edge")
        here = _here(row)
        found = None if here is None else md5_of(here)
        if found != row["md5"]:
            problems.append(f"{name}: {row['physical']} has MD5 {found}, listed as {row['md5']}")
    return problems


def settled(
    rows: Collection[Row], edges: Mapping[str, Workload], *, retiring: Collection[str] = ()
) -> list[str]:
    """What is wrong at the end, when the last round has said that all is in sync.

    Args:
        rows: the whole catalogue, deleted files too.
        edges: by uuid of the sender.
        retiring: senders whose plain deletions stay at the receiver (`propagate_deletes =
            "replaced"`).
    """
    problems = visible(rows, edges)
    live = [row for row in rows if row["state"] == "live"]
    for (sender, path), count in Counter((row["sender"], row["path"]) for row in live).items():
        if count > 1:
            problems.append(f"{path} of {sender[:8]}: loaded {count} times over")
    loads = Counter((row["sender"], row["path"], row["md5"]) for row in rows)
    for (sender, path, _), count in loads.items():
        if count > 1:
            problems.append(f"{path} of {sender[:8]}: the same content was loaded {count} times")
    for sender, edge in edges.items():
        there = {row["path"]: row for row in live if row["sender"] == sender}
        problems += [f"{path} of {sender[:8]}: lost" for path in edge.files if path not in there]
        problems += [f"{path} of {sender[:8]}: not deleted" for path in there.keys() - edge.files]
        for path in there.keys() & edge.files:
            wanted, row = edge.files[path], there[path]
            if (row["size"], row["md5"]) != (wanted.size, wanted.md5):
                problems.append(f"{path} of {sender[:8]}: an older content is loaded")
            here = _here(row)
            resource = None if here is None else md5_of(here.with_name(f"{here.name}.resource"))
            if resource != wanted.resource_md5:
                problems.append(f"{path} of {sender[:8]}: its resource is not the edge's")
        for row in rows:
            if row["sender"] != sender:
                continue
            here = edge.files.get(row["path"])
            ended = here is None or (here.size, here.md5) != (row["size"], row["md5"])
            allowed = sender in retiring and ended
            if row["state"] == "retired" and not allowed:
                problems.append(f"{row['path']} of {sender[:8]}: retired without reason")
            if row["state"] == "quarantined":
                problems.append(f"{row['path']} of {sender[:8]}: quarantined ({row['reason']})")
    return problems


def strays(rows: Iterable[Row], data: Path, states: Collection[str]) -> list[str]:
    """Files beneath the receiver's data directory that no row in one of these states explains."""
    known = set()
    for row in rows:
        if row["state"] in states:
            known |= {row["physical"], f"{row['physical']}.resource"}
    found = {
        str(path.relative_to(data))
        for kind in ("sequence", "unsequence")
        for path in (data / kind).rglob("*")
        if path.is_file()
    }
    return [f"{path}: on disk, not in the catalogue" for path in sorted(found - known)]


def leftovers(data: Path) -> list[str]:
    """What finished tasks should have taken with them, at a sender or a receiver.

    A partial upload of a file that is gone at the edge is none: it stays until it expires.
    """
    found = []
    for path in data.rglob("*"):
        rel = path.relative_to(data)
        if rel.parts[0] not in ("sync-sender", "sync-receiver") or not path.is_file():
            continue
        if "snapshot" in rel.parts or path.name in ("sync.log", "load.log", "sync.end"):
            found.append(f"{rel}: left over")
        if path.name.endswith(".tmp"):
            found.append(f"{rel}: left over")
    return found
