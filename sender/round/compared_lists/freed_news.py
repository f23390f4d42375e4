"""What a receiver says of files that were freed here, and what it is told of them.

In each round it is asked which of them it needs nobody to remember any more. One that was restored
from a copy, or exchanged, is told all of them, before its new past counts: what it knows nothing of
is lost.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from common import wire
from common.names import FilePath
from sender.kept.freed import FreedFile, FreedList, changing_freed

if TYPE_CHECKING:
    from sender.kept.receiver_state import ReceiverState
    from sender.select.facts import ContentFacts
    from sender.select.found import Scan
    from sender.send.remote import Remote

__all__ = ["forget_settled", "freed_pages", "lacks_mark", "renew_freed"]

_FILE_BYTES = 2048
"""Of a file on a page, at most."""
_log = logging.getLogger(__name__)


def forget_settled(remote: Remote, kept: ReceiverState, limits: wire.Limits) -> None:
    """Take off the list what the receiver needs no more.

    The list is only read where something has happened at the receiver since the last round.
    """
    memory = kept.memory
    if FreedList(kept.sync, kept.directory).is_empty:
        memory.update(settled=0)
        return
    after = memory.now.settled or _oldest(kept)
    settled: dict[tuple[str, str], int] = {}
    newest = after
    oldest = 0

    def ask() -> list[wire.SettledAnswer]:
        return list(remote.client.settled(after, of=memory.now.engine))

    for page in remote.patiently(ask):
        settled |= {(each.path, each.md5): each.commit for each in page.files}
        newest, oldest = page.commit, page.oldest
    count = 0
    if settled:
        with changing_freed(kept.sync, kept.directory) as freed:
            # What happened before it was freed concerns a file that had the path before.
            count = freed.drop(lambda each: settled.get(each.key, 0) > each.commit)
            _say(freed)
    if oldest > after and memory.now.last_task is None:
        newest = after  # it is asked again once a task shows that its past goes on
    elif oldest > after:
        count += _forget_unknown(remote, kept, limits)
    memory.update(settled=newest)
    if count:
        _log.info("%s: %d files that were freed here need not be remembered", remote.name, count)


def lacks_mark(kept: ReceiverState) -> bool:
    """Whether only a task, be it an empty one, lets a restored receiver be told from this one.

    Behind a comparison with its inventory no task of its past is remembered; and a newer commit is
    none, for a copy that was restored makes some of its own.
    """
    return kept.memory.now.last_task is None and not FreedList(kept.sync, kept.directory).is_empty


def _forget_unknown(remote: Remote, kept: ReceiverState, limits: wire.Limits) -> int:
    """Take off the list what the receiver has deleted, and forgotten since it was asked last.

    How many lines that were. Its past goes on: what it had, and knows nothing of, it let go. That
    it went on until it had answered, a check says behind the answers.
    """
    check = remote.client.ended
    most = max(1, min(limits.max_page_items, limits.max_page_bytes // _FILE_BYTES))
    gone: set[tuple[str, str]] = set()
    remembered = FreedList(kept.sync, kept.directory)
    lines = (wire.ListedFile(path=each.path, md5=each.md5) for each in remembered.lines())
    while files := list(islice(lines, most)):
        page = wire.ListedPage(files=files, freed=True)
        answer = remote.patiently(lambda page=page: check(page))  # type: ignore[misc]
        gone |= {(each.path, each.md5) for each in answer.ended}
    _say(remembered)
    if not gone or not _goes_on(remote, kept):
        return 0
    with changing_freed(kept.sync, kept.directory) as freed:
        count = freed.drop(lambda each: each.key in gone)
        _say(freed)
    return count


def _goes_on(remote: Remote, kept: ReceiverState) -> bool:
    memory = kept.memory.now
    answer = remote.patiently(lambda: remote.check(remote.check_request(memory, 0)))
    return answer.engine == memory.engine and answer.history is wire.History.CONTINUES


def _oldest(kept: ReceiverState) -> int:
    freed = FreedList(kept.sync, kept.directory)
    oldest = min((each.commit for each in freed.lines()), default=0)
    _say(freed)
    return oldest


def freed_pages(kept: ReceiverState, scan: Scan, limit: int) -> Iterator[wire.LostPage]:
    """All that was freed and is not here again, in pages that a receiver takes."""
    freed = FreedList(kept.sync, kept.directory)
    gone = (each for each in freed if not _is_here(each, scan, kept.facts))
    left = map(_lost_file, gone)
    while page := list(islice(left, limit)):
        yield wire.LostPage(files=page)
    _say(freed)


def renew_freed(kept: ReceiverState, commit: int) -> None:
    """From now on the list is of another past of the receiver, which has come to a commit."""
    if FreedList(kept.sync, kept.directory).is_empty:
        return
    with changing_freed(kept.sync, kept.directory) as freed:
        freed.renew(commit)
    kept.memory.update(settled=commit)


def _is_here(file: FreedFile, scan: Scan, facts: ContentFacts) -> bool:
    """Whether it came back; another file may have its path, and its size, by now."""
    here = scan.files.get(FilePath.parse(file.path))
    return here is not None and here.size == file.size and facts.md5(here) == file.md5


def _lost_file(file: FreedFile) -> wire.LostFile:
    when = datetime.datetime.fromtimestamp(file.freed, datetime.UTC)
    return wire.LostFile(
        path=file.path,
        md5=file.md5,
        size=file.size,
        first_time=file.first_time,
        last_time=file.last_time,
        reason=f"the receiver lacks what it once loaded, and it was freed at its sender at "
        f"{when.isoformat(timespec='seconds')}",
    )


def _say(freed: FreedList) -> None:
    for problem in freed.problems:
        _log.error("what was freed here is not known whole: %s", problem)
