"""Judging a large commit beside the line, so that others go on meanwhile.

The rules are played on the state as it is, by the thread that wants the commit. After every few
hundred devices it lets go of the state, so that others read and commit. What they commit counts:
had it to do with anything that was looked at before, all is begun anew. So what was found is what
the state of the last look would have given, and the line only has to see what came since that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from common import crash
from receiver.metadata.commit.draft import Draft
from receiver.metadata.commit.guards import check_guards, note_guard
from receiver.metadata.commit.pace import Pace, paced
from receiver.metadata.commit.recent_commits import JudgedBeside

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.metadata.commit.commit_request import CommitRequest
    from receiver.metadata.commit.recent_commits import RecentCommits
    from receiver.metadata.commit.touched import Touched
    from receiver.metadata.state.lock import Reading
    from receiver.metadata.state.state import State

__all__ = ["JudgeBeside", "OvertakenError"]

_GIVEN_S = 0.0005
"""Those who wait need as long to wake up."""


class OvertakenError(Exception):
    """What was judged may not hold any more: something was committed that has to do with it."""


class JudgeBeside:
    """See the module; any thread may call."""

    def __init__(
        self,
        reading: Reading,
        recent: RecentCommits,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Judge committed state.

        Args:
            reading: its lock.
            recent: what the last batches touched.
            sleep: waits for some seconds.
        """
        self._reading = reading
        self._recent = recent
        self._sleep = sleep

    def judge(
        self, request: CommitRequest, bring_back: Callable[[CommitRequest], None]
    ) -> JudgedBeside | None:
        """Judge a commit; None where it was overtaken meanwhile.

        Args:
            request: its operations; what belongs to them is added to it.
            bring_back: adds that.

        Raises:
            TsferryError: as the rules and guards say, of the state at this moment.
        """
        walk = _Walk(self._reading, self._recent, self._sleep)
        state = walk.enter()
        try:
            bring_back(request)
            pace = Pace(walk.pause)
            draft = Draft(state, notes=True, pace=pace)
            walk.touched = draft.touched
            for guard in paced(request.guards, pace):
                note_guard(draft.touched, guard, state)
                check_guards(state, (guard,))
            draft.take(request.ops, last=True)
        except OvertakenError:
            return None
        except Exception:
            if walk.is_overtaken():
                return None
            raise
        finally:
            walk.leave()
        left = [guard for guard in request.guards if guard.table != "owner"]
        return JudgedBeside(walk.ts, draft.touched, left)


class _Walk:
    """A long look at the state with pauses.

    Attributes:
        ts: the newest commit since the last pause.
        touched: what was looked at so far.
    """

    def __init__(
        self, reading: Reading, recent: RecentCommits, sleep: Callable[[float], object]
    ) -> None:
        self._reading = reading
        self._recent = recent
        self._sleep = sleep
        self._holds = False
        self.ts = 0
        self.touched: Touched | None = None

    def enter(self) -> State:
        state = self._reading.__enter__()
        self._holds = True
        self.ts = state.newest
        return state

    def leave(self) -> None:
        if self._holds:
            self._holds = False
            self._reading.__exit__()

    def pause(self) -> None:
        """Let others read and commit.

        Raises:
            OvertakenError: what was looked at so far may be otherwise now.
        """
        before = self.ts
        self.leave()
        crash.point("mlog.commit.judging")
        self._sleep(_GIVEN_S)
        self.enter()
        if self._has_changed(before):
            raise OvertakenError

    def is_overtaken(self) -> bool:
        """Whether something is about to be seen, by who is in no pause, that has to do with it."""
        return not self._holds or self._has_changed(self.ts)

    def _has_changed(self, since: int) -> bool:
        return self.touched is not None and not self._recent.leave_alone(since, self.touched)
