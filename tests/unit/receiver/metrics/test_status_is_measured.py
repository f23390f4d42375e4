"""What `status` says has a measure, or a reason why it has none."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping

import msgspec
import pytest

from common.console.json_form import member_types
from common.metering.measures import Measure
from receiver.metrics.oldest_proof import OldestProof
from receiver.metrics.receiver_measures import RECEIVER_MEASURES
from receiver.metrics.receiver_measures import ReceiverMeasures as of
from receiver.operator.views.status_views import StatusView
from sender.metrics.sender_measures import SENDER_MEASURES
from sender.metrics.sender_measures import SenderMeasures as sent
from sender.round.look import ReceiverStanding
from tests.support.node_world import Edge, World, path_of, tsfile
from tests.unit.receiver.metrics.test_receiver_readings import scrape

TEXT = "words, for people: the number of such is a measure"
NAMES = "names the first of what is counted"
CONFIGURED = "is configured, and does not change"
Told = Measure | str
STATUS: Mapping[str, Told] = {
    "engine": of.INFO, "version": of.INFO, "newest_commit": of.COMMITS,
    "newest_commit_at": of.NEWEST_COMMIT, "ready": of.READY, "problem": TEXT,
    "concerns": of.CONCERNS, "started": of.STARTED, "senders": of.EDGES, "devices": of.DEVICES,
    "files": of.FILES, "bytes": of.FILES_BYTES, "deleted_files": of.DELETED,
    "quarantined": of.QUARANTINED, "held_deletes": of.HELD_DELETES, "lost": of.LOST,
    "verified": of.VERIFIED, "unverified": "files less verified_files",
    "oldest_verification": of.OLDEST_PROOF, "oldest_verification_at": of.OLDEST_PROOF,
    "uploads": of.UPLOADS, "staged_bytes": of.STAGED_BYTES, "loading": of.LOADING,
    "free_bytes": of.DIRECTORY_FREE, "directories": of.DIRECTORY_UP, "away": of.DIRECTORY_UP,
    "retired.waiting_files": of.RETIRED, "retired.waiting_bytes": of.RETIRED_BYTES,
    "retired.unique_files": of.RETIRED, "retired.unique_bytes": of.RETIRED_BYTES,
    "retired.superseded_files": of.RETIRED, "retired.superseded_bytes": of.RETIRED_BYTES,
    "retired.files_per_second": "the fall of retired_files", "retired.problem": TEXT,
    "merged.enabled": CONFIGURED, "merged.compactions": "merged_files says how much is read so",
    "merged.inputs": of.MERGED_INPUTS, "merged.outputs": of.MERGED,
    "merged.output_bytes": "counted in the bytes of the directories",
    "merged.last": "a rise of merged_files", "merged.last_at": "a rise of merged_files",
    "merged.did": TEXT, "merged.waiting": of.MERGES_WAITING, "merged.problem": TEXT,
    "merged.final": of.FINAL_MERGED,
    "merged.final_bytes": "counted in the bytes of the directories",
    "merged.final_inputs": "what they were made of is not read any more",
    "merged.kept_back": TEXT, "merged.kept_back_count": of.MERGES_KEPT_BACK,
    "merged.kept_back_partitions": TEXT,
    "merged.unverified": of.MERGES_UNVERIFIED,
    "background.waiting": of.TASKS, "background.oldest_waiting_at": of.OLDEST_TASK,
    "background.oldest_running_at": of.OLDEST_ATTEMPT,
    "background.running": of.TASKS, "background.overdue": of.TASKS, "background.failed": of.TASKS,
    "background.failures": NAMES,
    "nodes.nodes": of.NODES, "nodes.down": of.NODES, "nodes.reporting": of.NODES,
    "nodes.lost": of.NODES, "nodes.doubting": of.NODES_DOUBTING, "nodes.oldest": of.NODES_SILENCE,
    "nodes.partial": of.NODES_PARTIAL,
    "nodes.tablets": of.NODES_TABLETS, "nodes.unknown": of.NODES_UNKNOWN,
    "kept": "what is kept of a box that was replaced waits for an operator, and hurts nobody",
    "schema.series": of.SERIES, "schema.devices": "devices that have an owner are counted",
    "schema.storage_groups": of.STORAGE_GROUPS, "schema.tag_entries": "in schema_memory_bytes",
    "schema.memory": of.SCHEMA_MEMORY, "schema.max_memory": of.SCHEMA_MEMORY_LIMIT,
    "schema.oldest_answerable": of.HISTORY,
    "schema.checkpoint_at": "log_entries says how much is to be read at a start",
    "schema.checkpoint_bytes": "log_entries says how much is to be read at a start",
    "schema.log_entries": of.CHECKPOINT_ENTRIES,
    "schema.unregistered": "of an earlier version, and gone after its first start",
    "schema.ttl_groups": CONFIGURED, "schema.expired_files": of.DELETED,
    "clock.doubt": of.CLOCK_DOUBTED, "clock.since": "the alert on clock_doubted has it",
    "clock.ahead": of.CLOCK_AHEAD, "clock.time": "whoever scrapes has a clock",
    "clock.corrected": "the history of a correction, for people", "clock.why": TEXT,
    "history_since": of.HISTORY,
    "follows.url": CONFIGURED, "follows.incarnation": "storage_up of the writer falls with it",
    "follows.commit": of.COMMITS, "follows.commit_at": of.NEWEST_COMMIT,
    "follows.source_commit": "follow_behind_seconds", "follows.level_at": "follow_behind_seconds",
    "follows.behind": of.FOLLOW_BEHIND, "follows.problem": TEXT, "follows.writer": CONFIGURED,
    "late": of.EDGES_LATE, "late_senders": of.EDGE_LATE, "shared_labels": of.SHARED_LABELS,
    "certificate_until": of.CERTIFICATE, "client_ca_until": of.CLIENT_CA,
    "client_crl_until": of.CLIENT_CRL, "edge_certificates_ending": of.EDGE_CERTIFICATE,
    "tokens_ending": of.TOKENS_ENDING, "centre_loads": "16 at most; who began one waits for it",
    "backup_at": of.BACKUP,
}  # fmt: skip
STANDING: Mapping[str, Told] = {
    "receiver": "is a label of every measure", "url": CONFIGURED, "standby_urls": CONFIGURED,
    "address": sent.ADDRESS, "listed": sent.LOADED, "let_go": "loaded_files is less by them",
    "pending_files": sent.PENDING, "pending_bytes": sent.PENDING_BYTES,
    "complete_until": sent.COMPLETE, "troubles": sent.TROUBLE, "waiting": sent.WAITING,
    "clashes": sent.ROUND_CODE, "unmounted": sent.UNMOUNTED,
    "doubts": "the next round compares the list anew, and all is well",
    "verified": sent.VERIFIED, "last_round": sent.ROUND_AT,
    "last_task": "an id, for people", "lost": sent.TROUBLE, "held_records": sent.TROUBLE,
    "held_ends": sent.TROUBLE, "named_ends": NAMES,
    "kept_deletions": "withdraws nothing, and passes with the next compaction",
    "schema": sent.UNAPPLIED, "token_until": sent.TOKEN_EXPIRY,
    "certificate_until": sent.CERTIFICATE_EXPIRY,
    "client_certificate_until": sent.CLIENT_CERTIFICATE_EXPIRY,
    "problem": "no round looks in that case: last_round_exit_code",
}  # fmt: skip


def fields(view: type, before: str = "") -> Iterator[str]:
    """The members of a status; of those that are numbers of one subject, theirs."""
    for name, hint in member_types(view).items():
        parts = [each for each in typing.get_args(hint) or (hint,) if each is not type(None)]
        kind = parts[0]
        is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        if is_struct and typing.get_origin(hint) is not tuple:
            yield from fields(kind, f"{before}{name}.")
        else:
            yield before + name


def test_each_member_of_a_receivers_status_has_a_measure_or_a_reason() -> None:
    assert list(fields(StatusView)) == sorted(STATUS, key=list(fields(StatusView)).index)
    told = {each for each in STATUS.values() if isinstance(each, Measure)}
    assert told <= set(RECEIVER_MEASURES)


def test_each_member_of_a_senders_status_has_a_measure_or_a_reason() -> None:
    assert {each.name for each in dataclasses.fields(ReceiverStanding)} == STANDING.keys()
    told = {each for each in STANDING.values() if isinstance(each, Measure)}
    assert told <= set(SENDER_MEASURES)


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_the_oldest_verification_is_found_in_pieces_and_again_after_a_commit(
    world: World, rows: int
) -> None:
    from receiver.load.upkeep.verdicts import Verdict, record_verdicts
    from receiver.operator.stored.files import list_files

    with world.node() as node:
        Edge(node).round({path_of(n): tsfile(f"root.sg.d{n}", first=n * 100) for n in (1, 2, 3)})
        oldest = OldestProof(node.engine, rows)
        assert {oldest.commit() for _ in range(6)} == {0}
        first, second, _ = list_files(node.operator).files
        record_verdicts(node.engine, [Verdict(second.physical, second.md5)])
        proved = node.engine.newest_commit
        record_verdicts(node.engine, [Verdict(first.physical, first.md5)])
        assert [oldest.commit() for _ in range(12)][-1] == proved
        found = scrape(node)["tsferry_receiver_oldest_verification_timestamp_seconds"]
        assert found == node.engine.times.seconds(proved)
