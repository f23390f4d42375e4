"""What rounds tell the hooks of a sender."""

import json

import pytest

from common.errors import (
    ForbiddenError,
    NoSpaceError,
    ReadOnlyError,
    StoppedError,
    TsferryError,
    UnreachableError,
)
from common.hooks.hook_service import HookService, hook_standings
from common.hooks.hooks_config import HooksConfig
from sender.config import SenderConfig
from sender.hooks.round_events import round_events, tell_round
from sender.hooks.sender_hooks import hooks_directory, tell_of_rounds
from sender.round.round_words.round_report import FileDevice, FileReason, RoundReport
from tests.support.hooked import WHO

UUID, LABEL = "c" * 32, "plant 7"


def of(report):
    return {kind: (what, standing) for kind, what, standing in round_events(UUID, LABEL, report)}


def test_a_round_tells_its_numbers():
    report = RoundReport("dc1", tasks=["t1", "t2"], sent=3, bytes=1000, deleted=1, pending_files=4)
    found = [each for each in round_events(UUID, LABEL, report) if each.kind == "round"]
    happened, standing = found
    what = happened.what
    assert (what.loaded, what.bytes, what.deleted, what.pending) == (3, 1000, 1, 4)
    assert (what.receiver, what.sender, what.tasks) == ("dc1", UUID, ("t1", "t2"))
    assert happened.standing is None
    assert standing.standing == ""
    loaded, _ = of(report)["loaded"]
    assert (loaded.files, loaded.task) == (3, "t2")


def test_what_is_in_the_way_stands_until_a_round_that_looked_does_not_find_it():
    looked = RoundReport(
        "dc1",
        looked=True,
        conflicts=[FileDevice("a", "root.d1", "owned")],
        quarantined=[FileReason("b", "no TsFile")],
        refused=[FileReason("c", "too large")],
        held_records=[FileReason("d", "too many")],
        lost=[FileReason("e", "no copy")],
    )
    found = of(looked)
    conflict, standing = found["conflict"]
    assert (conflict.named[0].path, conflict.named[0].device) == ("a", "root.d1")
    assert standing
    assert [each.path for each in found["quarantined"][0].named] == ["b", "c"]
    assert found["deletions_held"][1]
    assert found["lost"][1]
    assert of(RoundReport("dc1", looked=True))["conflict"][1] == ""
    unseen = of(RoundReport("dc1"))  # it did not look: nobody knows
    assert not {"conflict", "quarantined", "deletions_held"} & unseen.keys()


def test_what_was_found_bad_there_is_told_as_that():
    what, standing = of(RoundReport("dc1", wanted=[FileReason("a", "page 3")]))[
        "verification_failed"
    ]
    assert (what.files, standing) == (1, None)


@pytest.mark.parametrize(
    ("error", "kind", "standing"),
    [
        (NoSpaceError("full"), "disk", "failed"),
        (ReadOnlyError("a flush failed"), "read_only", "failed"),
        (NoSpaceError("theirs is full", extra={"status": 507}), "disk", None),
        (UnreachableError("away"), "disk", None),
    ],
)
def test_a_full_disk_is_this_ones_and_not_the_receivers(error, kind, standing):
    found = of(RoundReport("dc1", error=error))
    assert found.get(kind, (None, None))[1] == standing


def test_a_file_system_that_fails_is_the_disk_and_one_that_is_not_mounted_too():
    try:
        try:
            raise OSError(5, "Input/output error")
        except OSError as error:
            raise TsferryError(f"the file system: {error}") from error
    except TsferryError as error:
        failed = error
    assert of(RoundReport("dc1", error=failed))["disk"][1] == "failed"
    away = RoundReport("dc1", looked=True, unmounted=[FileReason("/data", "is not there")])
    what, standing = of(away)["disk"]
    assert (what.problem, standing) == ("/data is not there", "away")


def test_a_round_that_was_stopped_tells_nothing():
    report = RoundReport("dc1", sent=1, error=StoppedError("stopped"))
    assert list(round_events(UUID, LABEL, report)) == []


@pytest.fixture
def hooks(tmp_path):
    out, hook = tmp_path / "out", tmp_path / "hook"
    out.touch()
    hook.write_text(f"#!/bin/sh\ncat >> {out}\n")
    hook.chmod(0o755)
    return HooksConfig(command=(str(hook),)), out


def told(out):
    found = [json.loads(line) for line in out.read_text().splitlines()]
    out.write_text("")
    return [(each["kind"], each["state"]) for each in found]


def test_rounds_that_fail_alike_are_told_once_and_the_first_that_does_not_again(tmp_path, hooks):
    config, out = hooks
    with HookService.open(config, tmp_path, WHO) as service:

        def after(*reports):
            for report in reports:
                tell_round(service, UUID, LABEL, report)
            service.drain(20)
            return told(out)

        quiet = RoundReport("dc1", looked=True)
        assert after(quiet, quiet) == []
        away = RoundReport("dc1", error=UnreachableError("away"))
        assert after(away, away, away) == [("round", "raised")]
        assert after(RoundReport("dc1", error=ForbiddenError("no"))) == [("round", "raised")]
        assert after(RoundReport("dc2", looked=True)) == []
        assert after(quiet) == [("round", "resolved")]
        clash = RoundReport("dc1", looked=True, conflicts=[FileDevice("a", "root.d1")])
        assert after(clash, clash) == [("conflict", "raised")]
        assert after(quiet) == [("conflict", "resolved")]


def config_of(tmp_path, hooks):
    return SenderConfig(schema_dir=tmp_path / "schema", data_dirs=(tmp_path,), hooks=hooks)


def test_a_single_round_tells_before_the_command_ends(tmp_path, hooks):
    given, out = hooks
    config = config_of(tmp_path, given)
    tell_of_rounds(config, UUID, LABEL, [RoundReport("dc1", tasks=["t"], sent=1)])
    assert told(out) == [("loaded", "happened"), ("round", "happened")]
    assert not any((tmp_path / "schema" / "sync" / "hooks").glob("*.tmp"))


def test_what_a_single_round_could_not_tell_is_told_by_the_next(tmp_path, hooks):
    given, out = hooks
    broken = config_of(tmp_path, HooksConfig(command=("/bin/false",)))
    tell_of_rounds(broken, UUID, LABEL, [RoundReport("dc1", tasks=["t"], sent=1)])
    (standing,) = hook_standings(broken.hooks, hooks_directory(broken.schema_dir))
    assert (standing.waiting, standing.failed) == (2, 1)
    tell_of_rounds(config_of(tmp_path, given), UUID, LABEL, [])
    assert told(out) == [("loaded", "happened"), ("round", "happened")]
