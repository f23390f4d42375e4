"""The first call of a round, and the signs of life between rounds."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import msgspec

import common
from common import zstd
from common.console.terminal import shortened
from common.errors import ProtocolError, TsferryError
from common.network.certificates import CertificateFile
from common.wire import (
    PROTOCOL,
    CheckAnswer,
    CheckRequest,
    Heartbeat,
    HeartbeatAnswer,
    History,
    IncarnationMark,
    Limits,
    VerifiedFiles,
    Wanted,
)
from receiver.load.deciding.told_deletions.delete_guard import held_records_of
from receiver.load.folder.sender_folder import folder_name
from receiver.load.upkeep.verdicts import is_held
from receiver.metadata.query.given_back import GivenBack
from receiver.scope import Scope
from receiver.transfer import epochs
from receiver.transfer.begun.look_numbers import latest_look
from receiver.transfer.begun.schema_blocks import position_of
from receiver.transfer.heard_senders import HeardSenders
from receiver.transfer.intake import check_sender
from receiver.transfer.said_lists.lost import lost_of
from receiver.transfer.turns import BLOCKS_AHEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.config import ReceiverConfig
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import SenderRow
    from receiver.principal import Principal
    from receiver.transfer.acknowledging import Acknowledging

__all__ = ["Checks"]

log = logging.getLogger(__name__)

_MOST_WANTED = 10_000
_LONGEST_LABEL = 200
_LONGEST_VERSION = 50
_LONGEST_TEXT = 300
_GIVEN_BACK = "its devices are this sender's again"


class Checks:
    """Answers `check`, which enters a sender at its first contact, and `heartbeat`.

    Attributes:
        heard: when each sender was heard last, and what it said.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        load: LoadService,
        acknowledging: Acknowledging,
        *,
        clock: Callable[[], float],
        incarnation: Callable[[], IncarnationMark | None] = lambda: None,
    ) -> None:
        self.heard = HeardSenders(config.schema_dir)
        self._incarnation = incarnation
        self._config = config
        self._engine = engine
        self._load = load
        self._acknowledging = acknowledging
        self._clock = clock
        self._certificate = CertificateFile(config.listen.tls_cert)
        self._looks: dict[str, int] = {}
        self._given_back = GivenBack()
        self._lock = threading.Lock()

    def check(self, who: Principal, request: CheckRequest) -> CheckAnswer:
        """The first call of a round: versions, history, what is wanted again.

        Raises:
            ProtocolError: another protocol or partition interval.
            CloneError: two machines speak under this uuid.
        """
        if request.protocol != PROTOCOL:
            raise ProtocolError(
                f"protocol {request.protocol} is not spoken here; this is {PROTOCOL}"
            )
        check_sender(who, request.sender)
        if request.clock:
            self._engine.clock.heard(request.sender, request.machine, request.clock)
        here = self._config.partition_interval_ms
        if request.partition_interval_ms != here:
            raise ProtocolError(
                f"partition_interval is {request.partition_interval_ms} ms at the sender and "
                f"{here} ms here; they must be the same"
            )
        if request.time_unit != self._config.time_unit:
            raise ProtocolError(
                f"time_unit is {request.time_unit!a} at the sender and "
                f"{self._config.time_unit!r} here; they must be the same"
            )
        newest, scope = self._engine.newest_commit, Scope(who.scope)
        with self._engine.reading() as state:
            row = state.senders.get(request.sender)
            history = self._history(state, row, request, newest)
            wanted: list[Wanted] = []
            held: list[Wanted] = []
            for each in state.file_table.wanted(request.sender):
                found = held if is_held(state, each) else wanted
                if len(found) < _MOST_WANTED and scope.first_outside(each.devices) is None:
                    found.append(
                        Wanted(
                            path=each.path, size=each.size, md5=each.md5, reason=str(each.reason)
                        )
                    )
            back = [
                Wanted(path=path, size=each.size, md5=each.md5, reason=_GIVEN_BACK)
                for each in self._given_back.of(state, request.sender)
                if scope.first_outside(each.devices) is None
                for path in each.paths
            ]
            wanted += back[: _MOST_WANTED - len(wanted)]
        self._meet(who, request)
        self.heard.checked(request.sender, self._clock(), request.version[:_LONGEST_VERSION])
        return self._answer(who, request, history, wanted, held, newest)

    def _meet(self, who: Principal, request: CheckRequest) -> None:
        """Enter the sender and its label; a receiver that cannot write now can still answer."""
        directory = folder_name(who.peer, request.sender)
        try:
            self._load.make_known(request.sender, directory, request.label[:_LONGEST_LABEL])
        except (TsferryError, OSError) as error:
            log.warning("a sender could not be entered", extra={"error": str(error)})

    def _history(
        self, state: State, row: SenderRow | None, request: CheckRequest, newest: int
    ) -> History:
        """How this engine's past relates to what the sender remembers.

        Raises:
            CloneError: the epoch was used up by another machine.
        """
        if request.engine not in (None, self._engine.uuid):
            return History.NEW
        standing = epochs.standing(row, request.epoch)
        # A copy has nothing to start a task for, perhaps, and would be told that all is well.
        if standing is epochs.EpochStanding.CLONE or epochs.is_used_up(row, request.epoch):
            if row is not None and not epochs.is_removed(row):
                self.heard.clone_refused(request.sender, self._clock())
            raise epochs.clone(row)
        if row is not None and epochs.is_accepting(row):
            self.heard.clone_refused(request.sender, None)
        if request.engine is None:
            return History.NEW
        if request.newest_commit > newest:
            return History.REWOUND
        last = request.last_task
        if last is None:  # no past, or it was compared with ours; an epoch ahead is no matter then
            return History.CONTINUES if row is not None else History.NEW
        if standing is epochs.EpochStanding.AHEAD:
            return History.REWOUND
        task = state.task_table.get(request.sender, last.task)
        known = task is not None and task.commit == last.commit
        return History.CONTINUES if known else History.REWOUND

    def _answer(
        self,
        who: Principal,
        request: CheckRequest,
        history: History,
        wanted: list[Wanted],
        held: list[Wanted],
        newest: int,
    ) -> CheckAnswer:
        limits = self._config.limits
        with self._engine.reading() as state:
            position = position_of(state.schema_positions.get(request.sender))
            row = state.senders.get(request.sender)
            lost = lost_of(state, request.sender)
            records = held_records_of(state, request.sender)
            token = state.tokens.get(who.token_id or "")
            files = state.file_table.totals(request.sender).files
            verified = VerifiedFiles(
                files=files, verified=state.file_table.verified(request.sender)
            )
        folder = self._load.folders.find(request.sender)
        task = folder.task if folder is not None else None
        return CheckAnswer(
            protocol=PROTOCOL,
            version=common.__version__,
            engine=self._engine.uuid,
            newest_commit=newest,
            epoch=request.epoch if history is not History.NEW else None,
            history=history,
            limits=Limits(
                max_file_bytes=limits.max_file_bytes,
                max_chunk_bytes=limits.max_chunk_bytes,
                max_batch_bytes=limits.max_batch_bytes,
                max_page_items=limits.max_page_items,
                max_page_bytes=self._config.listen.max_request_bytes,
                max_task_items=limits.max_task_items,
                blocks_ahead=BLOCKS_AHEAD,
                encodings=[] if zstd.codec() is None else [zstd.ZSTD],
            ),
            scope=list(who.scope),
            wanted=wanted,
            held=held,
            busy=task.id
            if task is not None and task.loading
            else self._acknowledging.untold(request.sender),
            unfinished=task.id if task is not None and not task.loading else None,
            schema=True,
            schema_position=position,
            verified=verified,
            look=self._next_look(request, newest),
            compares=True,
            lost=lost,
            anew=row is not None and row.restored > 0,
            origins=True,
            resources=True,
            held_records=records,
            incarnation=self._incarnation(),
            token_until=None if token is None else token.expires,
            certificate_until=self._certificate.until(),
        )

    def _next_look(self, request: CheckRequest, newest: int) -> int:
        """Behind all looks of the sender, those that it knows of too, and behind all commits.

        So the looks of a sender that takes over another's devices are behind all of the other's.
        One that says it knows of a look which cannot have been gets a number before that, and sees
        all for the first time.
        """
        known = request.look if request.look < latest_look(self._engine) else 0
        if known != request.look:
            log.warning(
                "a sender's last look is ahead of the time; its looks begin anew",
                extra={"sender": request.sender, "look": request.look},
            )
        with self._lock:
            look = max(newest, known, self._looks.get(request.sender, 0)) + 1
            self._looks[request.sender] = look
        return look

    def heartbeat(self, who: Principal, sender: str, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """A sender lives; kept for `senders`, `status` and metrics."""
        check_sender(who, sender)
        with self._engine.reading() as state:
            known = sender in state.senders
            wanted = _wants_any(state, sender) or bool(self._given_back.of(state, sender))
        if known:  # strangers take no memory
            self.heard.beaten(sender, self._clock(), _cut(heartbeat))
        return HeartbeatAnswer(engine=self._engine.uuid, wanted=wanted)


def _cut(beat: Heartbeat) -> Heartbeat:
    """A heartbeat whose texts are no longer than this project's senders make them."""
    return msgspec.structs.replace(
        beat,
        version=beat.version[:_LONGEST_VERSION],
        label=beat.label[:_LONGEST_LABEL],
        state=shortened(beat.state, _LONGEST_TEXT),
        problem=shortened(beat.problem, _LONGEST_TEXT),
    )


def _wants_any(state: State, sender: str) -> bool:
    """Whether a file should come again; not one that is on hold."""
    return any(not is_held(state, row) for row in state.file_table.wanted(sender))
