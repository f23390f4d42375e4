"""What a sender says of the series of what it sends, and what it is told of proof."""

from __future__ import annotations

import errno
from unittest.mock import Mock

import msgspec
import pytest

from common import wire
from common.console.cli import run
from common.tsfile import read_tail
from common.tsfile.proof import SeriesTable
from common.tsfile.proving import series_proofs
from sender.cli.program import PROGRAM
from sender.send.sent_bytes import proofs as module
from tests.support.edge import Edge
from tests.support.tsfile_bytes import build


@pytest.fixture
def edge(receiver, tmp_path):
    return Edge(
        tmp_path / "edge", receiver.url, transfer={"batch_bytes": 1000, "chunk_bytes": 65536}
    )


def manifest(receiver):
    """Path -> entry, of all ends."""
    return {each.path: each for end in receiver.manifests.values() for each in end.manifest}


def proof_of(content):
    return series_proofs(content, read_tail(content))


def test_the_manifest_says_of_every_series_what_was_sent(edge, receiver):
    small, large = edge.write(1, device="root.a.d1"), edge.write(2, size=200_000)
    edge.round()
    found = manifest(receiver)
    for path in (small, large):
        table = proof_of(edge.content(path))
        assert found[path].proof.root == table.root
        assert SeriesTable.unpack(found[path].proof.table) == table


def test_what_the_receiver_has_already_received_is_proved_too(edge, receiver):
    path = edge.write(1)
    receiver.received[path] = edge.content(path)
    assert edge.round().bytes == 0
    assert manifest(receiver)[path].proof.root == proof_of(edge.content(path)).root


def test_tables_that_are_too_long_stay_at_home_and_their_digests_do_not(
    edge, receiver, monkeypatch
):
    devices = {"root.a.d": {f"s{number}": [(1, number)] for number in range(200)}}
    long = edge.path(1)
    edge.put(long, build(devices))
    short = edge.write(2)
    monkeypatch.setattr(module, "MAX_TABLE", 1000)
    edge.round()
    found = manifest(receiver)
    assert found[long].proof.table is None
    assert found[long].proof.root == proof_of(edge.content(long)).root
    assert found[short].proof.table is not None


def test_all_tables_of_a_task_keep_to_the_receivers_limit(edge, receiver):
    receiver.limits = msgspec.structs.replace(receiver.limits, max_page_bytes=4096)
    for number in range(40):
        edge.write(number)
    edge.round()
    found = manifest(receiver).values()
    with_table = [each for each in found if each.proof.table is not None]
    assert 0 < len(with_table) < len(found) == 40
    assert sum(len(msgspec.json.encode(each.proof.table)) for each in with_table) <= 1024 + 80


def test_tables_of_files_that_are_not_in_the_task_take_no_room(edge, receiver):
    receiver.limits = msgspec.structs.replace(receiver.limits, max_page_bytes=4096)
    known = {edge.write(number) for number in range(35)}
    for number in range(35, 40):
        edge.write(number)

    def decide(entry):
        if entry.path not in known:
            return None
        action = wire.Action.ALREADY
        return wire.PlanDecision(path=entry.path, action=action, md5=edge.files[entry.path])

    receiver.decide = decide
    edge.round()
    found = manifest(receiver).values()
    assert len([each for each in found if each.proof and each.proof.table is not None]) == 5


def test_a_file_whose_chunks_are_not_where_its_index_says_is_sent_without_a_table(edge, receiver):
    content = build({"root.a.d": {"s1": [(1, 1), (2, 2)]}})
    (series,) = next(iter(read_tail(content).devices)).series()
    at = series.chunks[0].offset
    path = edge.path(1)
    edge.put(path, content[:at] + b"\x3b" + content[at + 1 :])
    assert edge.round().sent == 1  # whether it is good is for the receiver to say
    assert manifest(receiver)[path].proof is None


# -- what comes back -------------------------------------------------------------------------------


def status(edge, capsys, *arguments):
    config = str(edge.write_config())
    from sender.cli.commands import cli

    capsys.readouterr()
    code = run(cli, PROGRAM.name, ["--config", config, "status", *arguments])
    return code, capsys.readouterr()


def test_a_file_that_its_disk_does_not_give_once_more_is_sent_without_a_table(
    edge, receiver, monkeypatch
):
    path = edge.write(1, size=2 << 20)
    monkeypatch.setattr(module, "read_tail", Mock(side_effect=OSError(errno.EIO, "bad sector")))
    assert edge.round().exit_code == 0
    assert manifest(receiver)[path].proof is None


def test_report_and_status_say_how_much_is_verified(edge, receiver, capsys):
    edge.write(1)
    report = edge.round()
    assert report.as_json()["verified"] is None  # a receiver that does not tell
    code, out = status(edge, capsys)
    assert (code, "verified        not known" in out.out) == (0, True)
    receiver.verified = wire.VerifiedFiles(files=0, verified=0)
    edge.round()
    said = "verified        nothing was loaded yet at the last check"
    assert said in status(edge, capsys)[1].out
    receiver.verified = wire.VerifiedFiles(files=20, verified=12)
    assert edge.round().as_json()["verified"] == {"files": 20, "verified": 12}
    _, out = status(edge, capsys)
    assert "verified        12 of 20 files, at the last check" in out.out
    _, out = status(edge, capsys, "--json")
    (found,) = msgspec.json.decode(out.out)["receivers"].values()
    assert found["verified"] == {"files": 20, "verified": 12}


def test_status_names_the_ends_that_the_last_round_left_held(edge, receiver, capsys):
    paths = [edge.write(number) for number in (1, 2)]
    edge.round()
    assert "ends held" not in status(edge, capsys)[1].out
    edge.remove(paths[0])
    receiver.judge = lambda each: (
        wire.Outcome(path=each, result=wire.Result.HELD, reason="too much at once", hold=True)
        if each == paths[0]
        else None
    )
    assert edge.round().exit_code == 6
    assert f"ends held       1 file\n    {paths[0]}: too much" in status(edge, capsys)[1].out
    (found,) = msgspec.json.decode(status(edge, capsys, "--json")[1].out)["receivers"].values()
    assert found["held_ends"] == 1
    assert status(edge, capsys)[0] == 6
    code, plugin = status(edge, capsys, "--check")
    assert (code, "1 deletion is held by a receiver" in plugin.out) == (1, True)
    receiver.judge = lambda each: None
    assert edge.round().exit_code == 0
    assert "ends held" not in status(edge, capsys)[1].out


def test_a_file_that_was_found_bad_there_stands_in_the_report_and_is_sent_again(edge, receiver):
    path = edge.write(1)
    edge.round()
    del receiver.loaded[path]
    reason = "pages: the sum of root.a.d.s1 differs"
    receiver.wanted = [
        wire.Wanted(path=path, size=len(edge.content(path)), md5=edge.files[path], reason=reason)
    ]
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 0)
    assert report.as_json()["wanted"] == [{"file": path, "reason": reason}]
    receiver.wanted = []
    assert edge.round().as_json()["wanted"] == []


def test_the_option_for_proof_goes_with_what_it_limits(edge, receiver, capsys):
    code, out = status(edge, capsys, "--verified")
    assert code == 2
    assert "--safe-to-delete" in out.err
