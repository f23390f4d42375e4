"""The measures of a sender; `docs/metrics.md` has this table."""

from __future__ import annotations

from typing import Final

from common.metering.measures import Measure, counter, gauge, histogram

__all__ = ["IN_THE_WAY", "SENDER_MEASURES", "SenderMeasures"]

_P: Final = "tsferry_sender_"
_R: Final = "receiver"

IN_THE_WAY: Final = (
    "conflicts",
    "quarantined",
    "refused",
    "failed",
    "expired",
    "overdue",
    "held",
    "lost",
)
"""What the label `trouble` can be: lists of the report of a round."""


class SenderMeasures:
    """Each measure by a short name. Those of a receiver have its name in the configuration."""

    INFO = gauge(
        f"{_P}info", "Always 1; its labels say what runs here.", "edge", "sender", "version"
    )
    STARTED = gauge(f"{_P}start_timestamp_seconds", "When the daemon was started.")
    FREE = gauge(f"{_P}directory_free_bytes", "That may be written there.", "directory")

    # -- hooks -------------------------------------------------------------------------------------

    HOOKS_DELIVERED = counter(f"{_P}hooks_delivered_total", "Events that a hook took.", "way")
    HOOKS_FAILED = counter(
        f"{_P}hooks_failed_total", "Tries to deliver an event that did not come through.", "way"
    )
    HOOKS_DROPPED = counter(f"{_P}hooks_dropped_total", "Events that a hook is not told.", "way")
    HOOKS_WAITING = gauge(f"{_P}hooks_waiting_events", "Events that wait.", "way")
    HOOKS_FAILING = gauge(
        f"{_P}hooks_failing_since_timestamp_seconds",
        "Since when a hook takes nothing; absent while it does.",
        "way",
    )

    # -- the last round ----------------------------------------------------------------------------

    ROUND_AT = gauge(f"{_P}last_round_timestamp_seconds", "When the last round ended.", _R)
    ROUND_CODE = gauge(
        f"{_P}last_round_exit_code", "That `sync` would have ended with; 0: all is well.", _R
    )
    SUCCESS_AT = gauge(
        f"{_P}last_success_timestamp_seconds",
        "When a round last came to its end, whatever files it could not load.",
        _R,
    )
    FAILING_SINCE = gauge(
        f"{_P}failing_since_timestamp_seconds",
        "When the first of the rounds ended that have all ended early since, in whatever process; "
        "absent if the last one came to its end.",
        _R,
    )
    ADDRESS = gauge(
        f"{_P}receiver_address_info",
        "Always 1; `address` is the one that answered the last check, of those of the receiver.",
        _R,
        "address",
    )
    ROUND_SECONDS = gauge(f"{_P}last_round_duration_seconds", "That it took.", _R)
    ROUND_FILES = gauge(
        f"{_P}last_round_sent_files", "Files that it sent, and that are loaded.", _R
    )
    ROUND_BYTES = gauge(f"{_P}last_round_sent_bytes", "Bytes that travelled in it.", _R)
    PENDING = gauge(f"{_P}pending_files", "Closed here and not loaded there.", _R)
    PENDING_BYTES = gauge(f"{_P}pending_bytes", "Of those.", _R)
    WAITING = gauge(f"{_P}waiting_files", "Not closed, or not ready.", _R)
    COMPLETE = gauge(
        f"{_P}complete_until_timestamp_seconds",
        "A time of the data: nothing before it lies here that is not loaded there.",
        _R,
    )
    TROUBLE = gauge(f"{_P}trouble_files", "Files that are in the way, by what for.", _R, "trouble")
    UNMOUNTED = gauge(f"{_P}unmounted_directories", "Directories that were not looked at.", _R)
    LOADED = gauge(f"{_P}loaded_files", "Loaded there, as the receiver said at the check.", _R)
    VERIFIED = gauge(f"{_P}verified_files", "Of those, proved by a verification there.", _R)
    UNAPPLIED = gauge(
        f"{_P}schema_unapplied_records", "Of the schema log, that the receiver did not apply.", _R
    )
    TOKEN_EXPIRY = gauge(
        f"{_P}token_expiry_timestamp_seconds", "When the token ends; absent: never.", _R
    )
    CERTIFICATE_EXPIRY = gauge(
        f"{_P}certificate_expiry_timestamp_seconds", "When the receiver's certificate ends.", _R
    )
    CLIENT_CERTIFICATE_EXPIRY = gauge(
        f"{_P}client_certificate_expiry_timestamp_seconds",
        "When the certificate ends that is shown to the receiver; absent: none is.",
        _R,
    )

    # -- of the daemon -----------------------------------------------------------------------------

    BUSY = gauge(f"{_P}round_running", "1 while a round runs, else 0.", _R)
    ROUNDS = counter(f"{_P}rounds_total", "Rounds, by how they ended: done, failed.", _R, "result")
    DURATIONS = histogram(f"{_P}round_duration_seconds", "Of rounds.", _R)
    FILES = counter(f"{_P}sent_files_total", "Files that were sent, and are loaded.", _R)
    BYTES = counter(f"{_P}sent_bytes_total", "Bytes that travelled.", _R)
    DELETED = counter(
        f"{_P}deleted_files_total", "Files whose end was told, and deleted there.", _R
    )
    RESUMED = counter(
        f"{_P}resumed_files_total", "Transfers that went on in the middle of a file.", _R
    )


SENDER_MEASURES: Final[tuple[Measure, ...]] = tuple(
    each for each in vars(SenderMeasures).values() if isinstance(each, Measure)
)
"""All of them, in the order in which they stand above."""
