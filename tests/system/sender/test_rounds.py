"""Rounds of a real sender with a real receiver, in this process or by the command line."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common import crash
from common.config import Secret
from common.crash import SimulatedCrash
from sender.kept import identity
from tests.support import warm
from tests.support.edge import Edge
from tests.support.faultproxy import CLEAN, Fault, FaultProxy
from tests.support.looking import largest
from tests.support.procs import children, wait_until
from tests.support.tsfile_bytes import build

COMMAND = str(Path(sys.executable).with_name("tsferry-sender"))


def call(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run([COMMAND, "--config", str(config), *arguments])


def in_sync(edge: Edge, centre) -> None:
    """The loaded set equals the sender's set, byte by byte; nothing is left behind."""
    assert centre.loaded(edge.uuid) == edge.files
    assert edge.listed == sorted(edge.files)
    assert edge.leftovers == []


# -- rounds as the tests of IoTDB's sync tool had them -------------------------------------------


def test_three_rounds_in_a_row_with_new_late_and_deleted_files(shared, make_edge):
    edge = make_edge(shared.url, propagate_deletes="all")
    for each in range(3):
        for number in range(each * 10, each * 10 + 10):
            edge.write(number, device=f"{edge.sg}.d{number % 3}")
            edge.write(number, sg=f"{edge.sg}.deep_er", device=f"{edge.sg}.deep_er.d{number % 3}")
            edge.write(number, first=number, kind="unsequence", device=f"{edge.sg}.late{number}")
        for path in sorted(edge.files)[::3]:
            edge.remove(path)
        report = edge.round()
        assert report.exit_code == 0, report.as_json()
        in_sync(edge, shared)
    assert edge.round().quiet


def test_a_round_with_nothing_to_do_starts_no_task(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    edge.round()
    commits = shared.call("status")["newest_commit"]
    assert edge.round().quiet
    assert shared.call("status")["newest_commit"] == commits


def test_a_compaction_arrives_as_one_change(shared, make_edge):
    edge = make_edge(shared.url)
    for number in range(20):
        edge.write(number)
    edge.round()
    for number in range(20):
        edge.remove(edge.path(number))
    edge.write(0, level=1, first=0, points=20_000)
    report = edge.round()
    assert (report.sent, report.retired, report.exit_code) == (1, 20, 0), report.as_json()
    in_sync(edge, shared)


def test_what_is_deleted_here_without_a_successor_is_kept_there(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    edge.write(2)
    edge.round()
    edge.remove(edge.path(1))
    report = edge.round()
    assert (report.retired, report.deleted) == (1, 0)
    states = {
        each["path"]: each["state"] for each in shared.call("files", "--sender", edge.uuid)["files"]
    }
    assert states == {edge.path(1): "retired", edge.path(2): "live"}


def test_a_mods_beside_a_file_deletes_nothing(shared, make_edge):
    edge = make_edge(shared.url, propagate_deletes="all")
    for number in range(3):
        edge.write(number)
    edge.round()
    (edge.data / f"{edge.path(0)}.mods").write_bytes(b"x")
    (edge.data / f"{edge.path(1)}.resource").unlink()
    assert edge.round().deleted == 0
    assert len(shared.loaded(edge.uuid)) == 3


# -- two senders ---------------------------------------------------------------------------------


def test_a_device_of_another_owner_is_a_conflict_and_the_rest_goes_on(shared, make_edge):
    first, second = make_edge(shared.url), make_edge(shared.url)
    first.write(1, device=f"{first.sg}.d1")
    first.round()
    stolen = second.write(1, device=f"{first.sg}.d1")
    second.write(2)
    for _ in range(2):
        report = second.round()
        assert report.exit_code == 3
        assert [(each.file, each.device) for each in report.conflicts] == [
            (stolen, f"{first.sg}.d1")
        ]
    assert list(shared.loaded(second.uuid)) == [second.path(2)]
    second.remove(stolen)
    assert second.round().exit_code == 0


def test_two_senders_may_have_files_of_one_name(shared, make_edge):
    first, second = make_edge(shared.url), make_edge(shared.url)
    second.sg = first.sg
    first.write(1, device=f"{first.sg}.d1")
    second.write(1, device=f"{first.sg}.d2")
    assert first.round().exit_code == second.round().exit_code == 0
    in_sync(first, shared)
    in_sync(second, shared)


# -- transfers -----------------------------------------------------------------------------------


def test_a_sender_killed_in_mid_file_goes_on_from_there(shared, make_edge, tmp_path):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536, "batch_bytes": 1000})
    edge.write(1, size=1_000_000)
    config = edge.write_config()
    with children(tmp_path) as processes:
        dying = processes.start(
            [COMMAND, "--config", str(config), "sync"],
            env={"TSFERRY_CRASH_AT": "upload.block.acknowledged:7"},
            forked=True,
        )
        assert dying.wait() == -signal.SIGKILL
    done = call(config, "sync", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    (resumed,) = report["resumed"]
    assert resumed["file"] == edge.path(1)
    assert resumed["offset"] in (7 * 65536, 8 * 65536, 9 * 65536)  # two behind it were on their way
    assert report["bytes"] < 1_000_000 - resumed["offset"] + 1000
    in_sync(edge, shared)


def test_an_interrupted_task_is_resumed_under_its_id(shared, make_edge, tmp_path):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536, "batch_bytes": 1000})
    edge.write(1, size=500_000)
    config = edge.write_config()
    with children(tmp_path) as processes:
        processes.start(
            [COMMAND, "--config", str(config), "sync"],
            env={"TSFERRY_CRASH_AT": "upload.block.acknowledged:3"},
            forked=True,
        ).wait()
    (log,) = edge.data.glob("sync-sender/*/sync.log")
    task = log.read_text().split()[2]
    assert edge.round().tasks == [task]


def test_a_task_is_resumed_with_what_went_and_was_deleted_since(shared, make_edge):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536})
    edge.write(0)
    edge.write(1)
    stays = edge.write(2)
    edge.round()
    edge.write(0, points=30)
    edge.remove(edge.path(1))
    edge.write(6, size=2_000_000)

    def die(here: str) -> None:
        if here == "upload.block.acknowledged":
            raise SimulatedCrash(here)

    with crash.arm(die), pytest.raises(SimulatedCrash):
        edge.round()
    deletion = f"DELETION,{edge.sg}.d1.s1,9223372036854775807,2003,2003\n"
    (edge.data / f"{stays}.mods").write_text(deletion)
    report = edge.round()
    assert report.error is None, report.error
    assert report.resumed
    in_sync(edge, shared)


def test_ctrl_c_ends_a_round_cleanly_and_the_next_resumes(shared, make_edge, tmp_path):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536, "batch_bytes": 1000})
    edge.write(1, size=3_000_000)
    config = edge.write_config()
    with children(tmp_path) as processes:
        slow = ["--set", "transfer.bandwidth_limit=200KiB/s"]
        sending = processes.start([COMMAND, "--config", str(config), *slow, "sync"])
        parts = shared.data / "sync-receiver"
        sending.until(
            lambda: largest(parts, f"*{edge.uuid}/**/*.part") > 200_000,
            "the first blocks",
        )
        sending.signal(signal.SIGINT)
        assert sending.wait() == 130
        assert "Traceback" not in sending.text()
    done = call(config, "sync", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert report["resumed"][0]["offset"] > 0
    in_sync(edge, shared)


def test_a_bad_line_costs_retries_not_the_round(shared, make_edge):
    with FaultProxy(("127.0.0.1", shared.port)) as proxy:
        edge = make_edge(
            f"http://127.0.0.1:{proxy.port}",
            transfer={"chunk_bytes": 65536, "batch_bytes": 1000, "read_timeout": 2.0},
        )
        edge.write(1, size=900_000)
        edge.write(2)
        cuts = [Fault(cut_up=100_000 + 7_000 * each) for each in range(8)]
        proxy.then(CLEAN, CLEAN, *cuts, Fault(hole_up=80_000), Fault(cut_down=100))
        report = edge.round()
        assert report.exit_code == 0, report.as_json()
        in_sync(edge, shared)


def test_a_receiver_killed_in_mid_file_is_taken_up_again(centre, make_edge):
    url = centre.start(env={"TSFERRY_CRASH_AT": "durable.sync_file.before:12"})
    edge = make_edge(url, transfer={"chunk_bytes": 65536, "batch_bytes": 1000})
    edge.write(1, size=2_000_000)
    edge.round()
    wait_until(lambda: not centre.server.running, "the receiver's death")
    assert edge.round().exit_code == 4
    centre.start()
    report = edge.round()
    assert report.exit_code == 0, report.as_json()
    in_sync(edge, centre)


def test_a_file_that_changes_between_two_rounds_is_replaced(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    edge.round()
    edge.write(1, points=99)
    report = edge.round()
    assert (report.sent, report.deleted) == (1, 0)
    in_sync(edge, shared)


def test_a_damaged_file_is_skipped_with_its_reason_and_the_rest_goes_on(shared, make_edge):
    edge = make_edge(shared.url)
    good = edge.write(1)
    whole = build({f"{edge.sg}.d1": {"s1": [(1, 1)]}})
    edge.put(edge.path(2), whole[:-20])
    edge.put(edge.path(3), b"not a TsFile at all")
    report = edge.round()
    assert list(shared.loaded(edge.uuid)) == [good]
    assert report.waiting == 2


# -- what the receiver forgot, and what this node forgot -----------------------------------------


def test_a_lost_list_is_made_again_and_nothing_travels_twice(shared, make_edge):
    edge = make_edge(shared.url, propagate_deletes="all")
    for number in range(5):
        edge.write(number)
    edge.round()
    shutil.rmtree(edge.data / "sync-sender")
    edge.remove(edge.path(0))
    report = edge.round()
    assert (report.bytes, report.deleted, report.exit_code) == (0, 0, 0), report.as_json()
    assert len(shared.loaded(edge.uuid)) == 5, "deletions wait for the round after"


def test_an_exchanged_receiver_gets_all_again_and_is_told_to_delete_nothing(
    centre, make_edge, tmp_path
):
    edge = make_edge(centre.start(), propagate_deletes="all")
    for number in range(5):
        edge.write(number)
    edge.round()
    centre.stop()
    shutil.rmtree(centre.root / "schema")
    shutil.rmtree(centre.data)
    centre.data.mkdir()
    centre.start()
    edge.remove(edge.path(0))
    report = edge.round()
    assert (report.sent, report.deleted, report.exit_code) == (4, 0, 0), report.as_json()
    in_sync(edge, centre)


def test_a_receiver_restored_from_an_old_copy_is_put_right(centre, make_edge, tmp_path):
    edge = make_edge(centre.start(), propagate_deletes="all")
    edge.write(1)
    edge.round()
    centre.stop()
    shutil.copytree(centre.root, tmp_path / "copy", symlinks=True)
    centre.start()
    edge.write(2)
    edge.round()
    edge.write(3)
    edge.round()
    centre.stop()
    for name in ("schema", "data"):
        shutil.rmtree(centre.root / name)
        shutil.copytree(tmp_path / "copy" / name, centre.root / name)
    centre.start()
    report = edge.round()
    assert (report.sent, report.deleted, report.exit_code) == (2, 0, 0), report.as_json()
    in_sync(edge, centre)
    assert edge.round().quiet


def test_resync_sends_nothing_again(shared, make_edge):
    edge = make_edge(shared.url)
    for number in range(5):
        edge.write(number)
    edge.round()
    report = edge.round(forget=True)
    assert (report.bytes, report.already, report.exit_code) == (0, 5, 0)
    report = edge.round()  # a list that was made anew asks for resources once
    assert (report.bytes, report.resources, report.exit_code) == (0, 5, 0)
    assert edge.round().quiet
    in_sync(edge, shared)


# -- identity and access -------------------------------------------------------------------------


def test_a_cloned_edge_is_refused_with_the_way_out(shared, make_edge, tmp_path):
    edge = make_edge(shared.url)
    edge.write(1)
    edge.round()
    shutil.copytree(edge.root, tmp_path / "clone")
    edge.write(2)
    edge.round()
    clone = Edge(tmp_path / "clone", shared.url)
    clone.sg = f"{edge.sg}.clone"
    clone.write(3)
    report = clone.round()
    assert report.exit_code == 4
    assert report.error is not None
    assert "uuid" in report.error.message
    assert clone.uuid == edge.uuid
    config = clone.write_config()
    assert call(config, "init", "--new-identity").returncode == 0
    assert identity.read(clone.schema) != edge.uuid
    done = json.loads(call(config, "sync", "--json").stdout)
    assert done["sent"] >= 1, done
    edge.write(4)
    assert edge.round().exit_code == 0, "the original goes on"


def test_a_wrong_token_is_a_refusal_and_names_itself(centre, make_edge):
    url = centre.start()
    edge = make_edge(url)
    made = centre.call("token", "create", "--role", "sender", "--sender", edge.uuid)
    edge.write(1)
    assert edge.round().exit_code == 4
    entry = edge.config.receivers[0]
    import msgspec

    good = msgspec.structs.replace(entry, token=Secret(made["token"]))
    edge.with_settings(receivers=(good,))
    assert edge.round().exit_code == 0
    bad = msgspec.structs.replace(entry, token=Secret("wrong"))
    edge.with_settings(receivers=(bad,))
    report = edge.round()
    assert report.exit_code == 4
    assert "wrong" not in json.dumps(report.as_json())


# -- the command line ----------------------------------------------------------------------------


def test_another_sender_to_this_receiver_is_noticed(shared, make_edge):
    edge = make_edge(shared.url)
    lock = edge.remote().lock()
    done = call(edge.write_config(), "sync", "--json")
    lock.release()
    assert done.returncode == 5
    assert json.loads(done.stdout)["error"]["type"] == "locked"


def test_a_dry_run_sends_and_changes_nothing(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    config = edge.write_config()
    before = sorted(edge.root.rglob("*"))
    done = call(config, "sync", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert [each["file"] for task in plan["tasks"] for each in task["additions"]] == [edge.path(1)]
    assert sorted(edge.root.rglob("*")) == before
    assert shared.loaded(edge.uuid) == {}


def test_a_receiver_that_is_down_is_told_in_one_line(make_edge):
    edge = make_edge("http://127.0.0.1:9", transfer={"retry_first": 0.01, "retry_max": 0.01})
    done = call(edge.write_config(), "sync")
    assert done.returncode == 4
    assert "Connection refused" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_safe_to_delete_asks_now_and_says_nothing_when_in_doubt(centre, make_edge):
    edge = make_edge(centre.start())
    first = edge.write(1)
    edge.round()
    edge.write(2)
    config = edge.write_config()
    done = call(config, "status", "--safe-to-delete")
    assert done.stdout.splitlines() == [str(edge.data / first)]
    mods = edge.data / f"{first}.mods"
    mods.write_bytes(f"DELETION,{edge.sg}.d1.s1,9223372036854775807,0,0\n".encode())
    assert call(config, "status", "--safe-to-delete").stdout == ""
    edge.round()  # tells it
    assert str(edge.data / first) in call(config, "status", "--safe-to-delete").stdout
    centre.stop()
    done = call(config, "status", "--safe-to-delete")
    assert (done.returncode, done.stdout) == (4, "")


def test_status_works_without_daemon_and_receiver(make_edge):
    edge = make_edge("http://127.0.0.1:9")
    edge.write(1)
    edge.put(edge.path(2), b"TsFile\x04", resource=None)
    done = call(edge.write_config(), "status", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["receivers"]["dc1"]
    assert found["pending_files"] == 1
    assert [each["file"] for each in found["waiting"]] == [edge.path(2)]


@pytest.mark.parametrize("command", ["sync", "run", "status", "recover", "check"])
def test_without_an_identity_nothing_starts(tmp_path, command):
    edge = Edge(tmp_path, "http://127.0.0.1:9")
    config = edge.write_config()
    (edge.schema / "sync" / "uuid.txt").write_text("damaged\n")
    done = call(config, command)
    assert done.returncode != 0
    assert "uuid.txt" in done.stderr
    assert "Traceback" not in done.stderr
    assert (edge.schema / "sync" / "uuid.txt").read_text() == "damaged\n"


def test_init_makes_a_configuration_that_works(shared, make_edge, tmp_path):
    (tmp_path / "data" / "sequence").mkdir(parents=True)
    config = tmp_path / "sender.toml"
    new = ["--schema-dir", str(tmp_path / "schema"), "--data-dir", str(tmp_path / "data")]
    new += ["--label", "plant 7"]
    done = call(config, "init", *new, "--url", shared.url, "--json")
    assert done.returncode == 0, done.stderr
    assert 'label = "plant 7"' in config.read_text().splitlines()
    assert json.loads(done.stdout)["marked"] == [str(tmp_path / "data")]
    assert call(config, "check").returncode == 0
    assert call(config, "sync").returncode == 0
    done = call(config, "init", "--units", str(tmp_path), "--json")
    assert done.returncode == 0, "again, and nothing changes"
    assert json.loads(done.stdout)["unit"] == str(tmp_path / "tsferry-sender.service")
    assert f" --config {config} run\n" in (tmp_path / "tsferry-sender.service").read_text()
