"""From a loaded file to a proved one, or to a bad one that comes again."""

from __future__ import annotations

import json
from pathlib import Path

from common.config import load
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.load.upkeep.verdicts import Verdict
from receiver.spark.verify.delivery import deliver
from tests.system.sender.test_rounds import call, in_sync


def verdicts(centre, edge, **bad):
    files = centre.call("files", "--sender", edge.uuid)["files"]
    return [Verdict(each["physical"], each["md5"], bad.get(each["path"])) for each in files]


def config_of(centre) -> ReceiverConfig:
    return load(
        ReceiverConfig, file=centre.config, env_prefix=ENV_PREFIX, environ={}, flags={}
    ).value


def test_an_edge_deletes_what_is_proved_and_sends_again_what_is_not(centre, make_edge):
    edge = make_edge(centre.start())
    good, bad = edge.write(1), edge.write(2)
    edge.round()
    config = edge.write_config()
    listed = call(config, "status", "--safe-to-delete", "--verified")
    assert (listed.returncode, listed.stdout) == (0, "")
    found = verdicts(centre, edge, **{bad: "pages: its sum differs"})
    assert deliver(config_of(centre), found) == (1, 1, 0, 0, 0, 0)

    report = edge.round()
    assert (report.exit_code, report.sent) == (0, 1)
    assert [(each.file, each.reason) for each in report.wanted] == [(bad, "pages: its sum differs")]
    assert report.as_json()["verified"] == {"files": 1, "verified": 1}
    in_sync(edge, centre)
    status = json.loads(call(config, "status", "--json").stdout)["receivers"]["dc1"]
    assert status["verified"] == {"files": 1, "verified": 1}
    listed = call(config, "status", "--safe-to-delete", "--verified")
    assert listed.stdout.splitlines() == [str(edge.data / good)]
    listed = call(config, "status", "--safe-to-delete")
    assert listed.stdout.splitlines() == [str(edge.data / good), str(edge.data / bad)]
    assert centre.call("quarantine", "list", "--sender", edge.uuid)["entries"] == []

    assert deliver(config_of(centre), verdicts(centre, edge)) == (2, 0, 0, 0, 0, 0)
    assert edge.round().as_json()["verified"] == {"files": 2, "verified": 2}
    listed = call(config, "status", "--safe-to-delete", "--verified")
    assert listed.stdout.splitlines() == [str(edge.data / good), str(edge.data / bad)]
    centre.stop()
    centre.start()
    assert centre.call("status")["verified"] == 2


def test_a_bad_file_that_is_gone_at_the_edge_is_asked_for_once(centre, make_edge):
    edge = make_edge(centre.start())
    edge.write(1)
    bad = edge.write(2)
    edge.round()
    edge.remove(bad)
    deliver(config_of(centre), verdicts(centre, edge, **{bad: "pages: its sum differs"}))

    report = edge.round()
    assert [(each.file, each.reason) for each in report.wanted] == [
        (bad, "pages: its sum differs; it is here no more")
    ]
    assert (report.exit_code, report.retired) == (0, 1)
    (entry,) = centre.call("quarantine", "list", "--sender", edge.uuid)["entries"]
    assert (entry["path"], entry["kept"]) == (bad, True)  # what is left of it stays at the centre
    assert edge.round().exit_code == 3  # neither side has it
    centre.call("lost", "acknowledge", "--sender", edge.uuid, bad)
    assert edge.round().quiet
    assert edge.round().as_json()["wanted"] == []


def held(centre, edge, bad):
    """The centre finds a file bad that is as it was sent."""
    why = "pages: its sum differs"
    found = [each._replace(as_sent=True) for each in verdicts(centre, edge, **{bad: why})]
    assert deliver(config_of(centre), found)[1] == 1
    return [(bad, why)]


def quarantined(report):
    return [(each.file, each.reason) for each in report.quarantined]


def test_a_file_that_is_bad_at_its_source_is_held_and_never_sent_again(centre, make_edge):
    edge = make_edge(centre.start())
    good, bad = edge.write(1), edge.write(2)
    edge.round()
    expected = held(centre, edge, bad)
    for _ in range(3):
        report = edge.round()
        assert (report.sent, report.wanted, report.bytes) == (0, [], 0)
        assert quarantined(report) == expected
        assert report.exit_code == 3
    config = edge.write_config()
    listed = json.loads(call(config, "quarantine", "list", "--json").stdout)
    assert bad in json.dumps(listed)
    safe = call(config, "status", "--safe-to-delete")
    assert safe.stdout.splitlines() == [str(edge.data / good)]
    call(config, "resync")
    assert quarantined(edge.round()) == expected  # as the inventory, which does not list it
    centre.stop()
    centre.start()
    assert quarantined(edge.round()) == expected

    edge.remove(bad)
    assert edge.write(2, points=11) == bad  # repaired at the edge
    report = edge.round()
    assert (report.exit_code, report.sent, report.quarantined) == (0, 1, [])
    in_sync(edge, centre)
    (lost,) = centre.call("quarantine", "list", "--sender", edge.uuid)["entries"]
    assert not lost["hold"]  # it was loaded once, and what it held may be nowhere else


def test_a_held_file_that_is_gone_at_the_edge_is_told_as_gone(centre, make_edge):
    edge = make_edge(centre.start())
    edge.write(1)
    bad = edge.write(2)
    edge.round()
    edge.remove(bad)
    held(centre, edge, bad)
    report = edge.round()
    assert (report.exit_code, report.retired, report.quarantined) == (0, 1, [])
    (entry,) = centre.call("quarantine", "list", "--sender", edge.uuid)["entries"]
    assert (entry["path"], entry["hold"]) == (bad, False)  # nothing is there to be held back
    assert edge.round().exit_code == 3  # neither side has it
    centre.call("lost", "acknowledge", "--sender", edge.uuid, bad)
    assert edge.round().quiet


def test_a_held_file_is_shown_again_at_the_centre_or_sent_again_by_the_edge(centre, make_edge):
    edge = make_edge(centre.start())
    bad = edge.write(1)
    edge.round()
    ((_, why),) = held(centre, edge, bad)
    edge.round()
    config = edge.write_config()
    (answer,) = centre.call("quarantine", "retry", bad)["results"]
    assert "visible again" in answer["result"]
    assert why in answer["result"]
    call(config, "quarantine", "retry", bad)
    report = edge.round()
    assert (report.exit_code, report.already, report.bytes) == (0, 1, 0)
    in_sync(edge, centre)

    held(centre, edge, bad)
    edge.round()
    call(config, "quarantine", "retry", bad)
    report = edge.round()
    assert (report.exit_code, report.sent) == (0, 1), report.as_json()
    in_sync(edge, centre)
    assert centre.call("quarantine", "list", "--sender", edge.uuid)["entries"] == []


def test_the_tables_of_a_round_are_at_the_centre(centre, make_edge):
    edge = make_edge(centre.start())
    paths = [edge.write(number, size=200_000 if number == 3 else None) for number in range(4)]
    edge.round()
    (folder,) = Path(centre.data, "sync-receiver").glob(f"*_{edge.uuid}")
    (tables,) = (folder / "manifests").glob("*.tsf")
    content = tables.read_bytes()
    assert content.startswith(b"TSFPROOF")
    assert all(path.encode() in content for path in paths)
