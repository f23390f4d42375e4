"""The measures of a receiver; `docs/metrics.md` has this table."""

from __future__ import annotations

from typing import Final

from common.metering.measures import Measure, counter, gauge, histogram

__all__ = ["EDGE_TROUBLE", "RECEIVER_MEASURES", "ReceiverMeasures"]

_P: Final = "tsferry_receiver_"
_E: Final = "tsferry_edge_"
_WHO: Final = ("edge", "sender")

EDGE_TROUBLE: Final = ("conflicts", "quarantined", "failed", "overdue", "held", "lost")
"""What an edge counts in its heartbeats, and what the label `trouble` can be."""


class ReceiverMeasures:
    """Each measure by a short name."""

    # -- the process -----------------------------------------------------------------------------

    INFO = gauge(f"{_P}info", "Always 1; its labels say what runs here.", "version", "engine")
    STARTED = gauge(f"{_P}start_timestamp_seconds", "When this process opened its directories.")
    READY = gauge(f"{_P}ready", "1 if it takes files (a node that reads: is up to date), else 0.")
    READ_ONLY = gauge(f"{_P}read_only", "1 if nothing can be written until it is started again.")
    CONCERNS = gauge(f"{_P}concerns", "Things that do not come through: `status` says which.")
    CLOCK_DOUBTED = gauge(f"{_P}clock_doubted", "1 while the machine's clock is not believed.")
    CLOCK_AHEAD = gauge(f"{_P}clock_ahead_seconds", "By which that clock is ahead of the time.")
    REQUESTS = counter(
        f"{_P}requests_total",
        "Requests that were answered, by call and class of their HTTP status (2xx, 4xx, 5xx).",
        "call",
        "status",
    )
    REQUEST_SECONDS = histogram(
        f"{_P}request_duration_seconds",
        "Of requests; some wait by themselves for what becomes of a task, for 20 s.",
    )
    BODY_BYTES = counter(f"{_P}request_body_bytes_total", "Of bodies of requests, as they came.")
    SCRAPE_SECONDS = gauge(f"{_P}scrape_duration_seconds", "That it took to read these values.")

    # -- files -----------------------------------------------------------------------------------

    FILES = gauge(f"{_P}files", "Files that readers see.")
    FILES_BYTES = gauge(f"{_P}files_bytes", "Of those.")
    VERIFIED = gauge(f"{_P}verified_files", "Of those, proved point by point by a verification.")
    OLDEST_PROOF = gauge(
        f"{_P}oldest_verification_timestamp_seconds",
        "When the one of those was verified that is the longest ago; absent while none was.",
    )
    DELETED = gauge(f"{_P}deleted_files", "Deleted, and still on the disk.")
    QUARANTINED = gauge(
        f"{_P}quarantined_files",
        "Files that are not taken, by what is in the way: a conflict about a device, other, or bad "
        "(loaded once, and found bad by a verification).",
        "reason",
    )
    LOST = gauge(f"{_P}lost_files", "Files that neither side has any more, not acknowledged.")
    HELD_DELETES = gauge(f"{_P}held_deletes", "Lists of deletes that wait for an operator.")
    UPLOADS = gauge(f"{_P}uploads", "Files that are on their way.")
    STAGED_BYTES = gauge(f"{_P}staged_bytes", "Received and not loaded.")
    LOADING = gauge(f"{_P}loading_tasks", "Tasks that wait to be loaded, or are being loaded.")
    LOADS = counter(
        f"{_P}loads_total",
        "Attempts to load a task, by what came of it: loaded, delayed.",
        "result",
    )
    LOAD_SECONDS = histogram(f"{_P}load_duration_seconds", "Of attempts to load a task.")
    RETIRED = gauge(
        f"{_P}retired_files",
        "Files that their senders have no more: waiting for a proof, unique (they have points of "
        "their own), superseded (others give all of it).",
        "state",
    )
    RETIRED_BYTES = gauge(f"{_P}retired_bytes", "Of those.", "state")
    MERGED = gauge(f"{_P}merged_files", "Merged files that are read in the place of others.")
    MERGED_INPUTS = gauge(f"{_P}merged_input_files", "Files that these stand for.")
    MERGES_WAITING = gauge(f"{_P}merges_waiting", "Merges that wait or run.")
    MERGES_UNVERIFIED = gauge(
        f"{_P}unverified_merges", "Merges that nobody has compared yet, but for who merged."
    )
    MERGES_KEPT_BACK = gauge(
        f"{_P}kept_back_merges", "Merges that are old enough to be final, and are not."
    )
    FINAL_MERGED = gauge(
        f"{_P}final_merged_files", "Merged files that took the place of others for good."
    )
    TASKS = gauge(
        f"{_P}background_tasks",
        "Background tasks: waiting, running, overdue (nobody was heard of for a lease), failed.",
        "state",
    )
    OLDEST_TASK = gauge(
        f"{_P}background_oldest_waiting_timestamp_seconds",
        "Since when the oldest background task waits.",
    )
    OLDEST_ATTEMPT = gauge(
        f"{_P}background_oldest_running_timestamp_seconds",
        "Since when the attempt at a background task goes on that takes longest.",
    )

    # -- disks, engine, copies -------------------------------------------------------------------

    DIRECTORY_UP = gauge(
        f"{_P}directory_up", "1 if the data directory counts, 0 if away.", "directory"
    )
    DIRECTORY_FREE = gauge(
        f"{_P}directory_free_bytes", "That may be written into the directory.", "directory"
    )
    DIRECTORY_LEAST = gauge(
        f"{_P}min_free_bytes", "limits.min_free_bytes: below, no file is taken."
    )
    COMMITS = counter(f"{_P}commits_total", "Of the log since it was made.")
    NEWEST_COMMIT = gauge(f"{_P}newest_commit_timestamp_seconds", "When the newest was made.")
    CHECKPOINT_ENTRIES = gauge(f"{_P}log_entries", "Commits in the log since the last checkpoint.")
    HISTORY = gauge(f"{_P}history_since_timestamp_seconds", "The oldest that can be asked.")
    SERIES = gauge(f"{_P}series", "Series that live now.")
    DEVICES = gauge(f"{_P}devices", "Devices that have an owner.")
    STORAGE_GROUPS = gauge(f"{_P}storage_groups", "Storage groups that live now.")
    SCHEMA_MEMORY = gauge(f"{_P}schema_memory_bytes", "That series and what belongs to them take.")
    SCHEMA_MEMORY_LIMIT = gauge(
        f"{_P}schema_memory_limit_bytes", "metadata.max_memory, if it is set."
    )
    BACKUP = gauge(f"{_P}backup_timestamp_seconds", "When `backup` last copied everything.")
    STORAGE_WAITING = gauge(f"{_P}storage_waiting_files", "Files without a copy in the store.")
    STORAGE_WAITING_BYTES = gauge(f"{_P}storage_waiting_bytes", "Of those.")
    STORAGE_OLDEST = gauge(
        f"{_P}storage_oldest_waiting_timestamp_seconds", "Since when the oldest of those waits."
    )
    STORAGE_BEHIND = gauge(
        f"{_P}storage_log_behind_timestamp_seconds",
        "When the oldest commit was made that is not in the object store; absent if all are.",
    )
    STORAGE_UP = gauge(f"{_P}storage_up", "1 if the object store takes copies, else 0.")
    TABLES = gauge(
        f"{_P}tables",
        "Tables by how they stand at storage nodes: creating, altering (a node has not confirmed "
        "what was said of it), running, deleting (deleted, and not forgotten yet).",
        "state",
    )
    TABLETS_SHORT = gauge(
        f"{_P}tablets_short", "Tablets at fewer storage nodes than are to have them."
    )
    COPIES_DOUBTED = gauge(
        f"{_P}copies_doubted", "Copies of files that do not count: the node gave other bytes."
    )
    NOWHERE = gauge(
        f"{_P}released_files_nowhere",
        "Files on no disk here, and in no store, that no storage node is known to have now.",
    )
    CACHE_SLOTS = gauge(
        f"{_P}cache_slots", "Of the 1,024 slots, those that a cache node has.", "node"
    )
    CACHE_SLOTS_VERSION = gauge(
        f"{_P}cache_slots_version", "Of the slots; it grows each time that some go to another node."
    )
    FOLLOW_BEHIND = gauge(
        f"{_P}follow_behind_seconds", "Of a node that reads: since it had all that its source has."
    )
    CERTIFICATE = gauge(f"{_P}certificate_expiry_timestamp_seconds", "When its certificate ends.")
    CLIENT_CA = gauge(
        f"{_P}client_ca_expiry_timestamp_seconds",
        "When the first authority for client certificates ends.",
    )
    CLIENT_CRL = gauge(
        f"{_P}client_crl_expiry_timestamp_seconds",
        "When the list of what these revoked ends; from then on no client certificate is taken.",
    )
    TOKENS = gauge(f"{_P}tokens", "Tokens that have not ended, by role.", "role")
    TOKENS_ENDING = gauge(f"{_P}tokens_ending", "Of those, that end within 30 days.")
    TOKENS_ENDED = gauge(
        f"{_P}tokens_ended", "Tokens that have ended, and were neither revoked nor replaced."
    )
    TOKEN_EXPIRY = gauge(
        f"{_P}token_expiry_timestamp_seconds",
        "When the first of those ends that have not; absent while none will.",
    )

    # -- storage nodes ---------------------------------------------------------------------------

    NODES = gauge(
        f"{_P}nodes",
        "Storage nodes: up, down (silent for longer than nodes.timeout), reporting (its report is "
        "not whole yet), lost (as an operator said).",
        "state",
    )
    NODES_PARTIAL = gauge(f"{_P}nodes_partial", "Those that are heard from, and miss a directory.")
    NODES_DOUBTING = gauge(
        f"{_P}nodes_doubting", "Those that have seen commits which are not here, or do not trust."
    )
    NODES_SILENCE = gauge(
        f"{_P}nodes_longest_silence_seconds", "Since the one was heard that is silent the longest."
    )
    NODES_TABLETS = gauge(f"{_P}nodes_tablets", "Tablets that storage nodes report.")
    NODES_UNKNOWN = gauge(f"{_P}nodes_unknown_tablets", "Of those, not of this catalogue.")

    # -- hooks -----------------------------------------------------------------------------------

    HOOKS_DELIVERED = counter(f"{_P}hooks_delivered_total", "Events that a hook took.", "way")
    HOOKS_FAILED = counter(
        f"{_P}hooks_failed_total", "Tries to deliver an event that did not come through.", "way"
    )
    HOOKS_DROPPED = counter(f"{_P}hooks_dropped_total", "Events that a hook is not told.", "way")
    HOOKS_WAITING = gauge(
        f"{_P}hooks_waiting_events", "Events that wait; of commits those that were read.", "way"
    )
    HOOKS_FAILING = gauge(
        f"{_P}hooks_failing_since_timestamp_seconds",
        "Since when a hook takes nothing; absent while it does.",
        "way",
    )

    # -- edges, all together ---------------------------------------------------------------------

    EDGES = gauge(f"{_P}edges", "Edges that were here, and were not removed.")
    EDGES_LATE = gauge(f"{_P}edges_late", "Of those, silent for longer than they may be.")
    SHARED_LABELS = gauge(f"{_P}edges_sharing_labels", "Labels that several edges have.")
    EDGES_LEFT_OUT = gauge(
        f"{_P}edges_left_out", "Edges without measures of their own, since there are too many."
    )
    EDGES_PENDING = gauge(
        f"{_P}edges_pending_files", "Files that edges have said to have left to send."
    )
    EDGES_PENDING_BYTES = gauge(f"{_P}edges_pending_bytes", "Of those.")
    EDGES_TROUBLED = gauge(
        f"{_P}edges_in_trouble", "Edges that have said that something is in the way.", "trouble"
    )
    EDGES_VERSION = gauge(f"{_P}edges_of_version", "Edges by the version that they run.", "version")

    # -- each edge -------------------------------------------------------------------------------

    EDGE_INFO = gauge(f"{_E}info", "Always 1; its labels say what runs there.", *_WHO, "version")
    EDGE_LATE = gauge(f"{_E}late", "1 if the edge is silent for longer than it may be.", *_WHO)
    EDGE_HEARD = gauge(f"{_E}last_heard_timestamp_seconds", "When it was heard last.", *_WHO)
    EDGE_LATE_AFTER = gauge(
        f"{_E}late_after_seconds", "Silence after which it is late; 0: never.", *_WHO
    )
    EDGE_COMMIT = gauge(f"{_E}last_commit_timestamp_seconds", "When its last load was.", *_WHO)
    EDGE_FILES = gauge(f"{_E}files", "Files of it that readers see.", *_WHO)
    EDGE_FILES_BYTES = gauge(f"{_E}files_bytes", "Of those.", *_WHO)
    EDGE_VERIFIED = gauge(f"{_E}verified_files", "Of those, proved by a verification.", *_WHO)
    EDGE_QUARANTINED = gauge(f"{_E}quarantined_files", "Of it, refused here or found bad.", *_WHO)
    EDGE_PENDING = gauge(f"{_E}pending_files", "Closed there and not loaded here.", *_WHO)
    EDGE_PENDING_BYTES = gauge(f"{_E}pending_bytes", "Of those.", *_WHO)
    EDGE_COMPLETE = gauge(
        f"{_E}complete_until_timestamp_seconds",
        "A time of the data: nothing before it lies there that is not loaded here.",
        *_WHO,
    )
    EDGE_TROUBLE_FILES = gauge(
        f"{_E}trouble_files",
        "Files that the edge has said to be in the way, by what for.",
        *_WHO,
        "trouble",
    )
    EDGE_ROUND = gauge(
        f"{_E}last_round_timestamp_seconds", "When its last round ended, by its own clock.", *_WHO
    )
    EDGE_FAILED = gauge(f"{_E}last_round_failed", "1 if that round ended early.", *_WHO)
    EDGE_CLONE = gauge(
        f"{_E}clone_refused_timestamp_seconds",
        "When a machine under its uuid was last turned away, for another had used up its epoch; "
        "absent: none was, or an operator has let one in since.",
        *_WHO,
    )
    EDGE_FREE = gauge(f"{_E}free_bytes", "Of the data directory there that has least.", *_WHO)
    EDGE_CERTIFICATE = gauge(
        f"{_E}client_certificate_expiry_timestamp_seconds",
        "When the client certificate ends that it shows; absent: it shows none, or does not say.",
        *_WHO,
    )


RECEIVER_MEASURES: Final[tuple[Measure, ...]] = tuple(
    each for each in vars(ReceiverMeasures).values() if isinstance(each, Measure)
)
"""All of them, in the order in which they stand above."""
