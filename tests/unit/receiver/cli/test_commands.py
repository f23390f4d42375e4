"""The commands against a server in this process, and against directories without one."""

import json
import os
import pwd
import re
import shutil
import threading
import tomllib

import click
import msgspec
import pytest

import receiver.cli.box_commands.init
from common import wire
from common.config import load
from common.console.cli import run
from common.console.terminal import display_width
from common.errors import ConfigError, NoSpaceError
from receiver.cli.commands import cli
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.load.upkeep.verdicts import Verdict, record_verdicts
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.node import Node
from receiver.operator.stored.files import list_files
from receiver.storagenode.master_calls import MasterCalls, Masters
from receiver.web import serving
from receiver.web.app import site_of
from tests.support.heard_nodes import SpeakingNode, tablet, tablet_id
from tests.support.node_world import A, B, Edge, path_of, sender, tsfile
from tests.support.old_tool import lay
from tests.support.web import BOUND, until

EVIL = "root.sg.`\x1b[31m\u202e`"


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """Run a command line; returns its output."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments, code=0):
        got = run(cli, "tsferry-receiver", ["--config", "receiver.toml", *arguments])
        out = capsys.readouterr()
        assert got == code, (got, out)
        return out.out if code == 0 else out.out + out.err

    capsys.readouterr()
    assert run(cli, "tsferry-receiver", ["init"]) == 0
    capsys.readouterr()
    return command


@pytest.fixture
def config(command, tmp_path):
    loaded = load(
        ReceiverConfig, file=tmp_path / "receiver.toml", env_prefix=ENV_PREFIX, environ={}, flags={}
    )
    limits = msgspec.structs.replace(loaded.value.limits, min_free_bytes=0)
    listen = msgspec.structs.replace(loaded.value.listen, port=0)
    # A server does what waits after five seconds, which a few commands take on a busy machine.
    proofs = msgspec.structs.replace(loaded.value.proofs, every=3600.0)
    return msgspec.structs.replace(loaded.value, limits=limits, listen=listen, proofs=proofs)


@pytest.fixture
def filled(config):
    """A receiver with files of two senders, one in quarantine, and a device with an odd name."""
    with Node.open(config) as node:
        Edge(node, uuid=A).round(
            {path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile(EVIL, first=100)}
        )
        Edge(node, uuid=B).round({path_of(3, sg="root.b"): tsfile("root.b.d")})
        view = node.uploads.create(sender(A), A, 3, {"path": path_of(9)})
        with pytest.raises(Exception, match="TsFile"):
            node.uploads.patch(sender(A), view.id, 0, b"bad")


@pytest.fixture
def running(config, filled, monkeypatch):
    """A server on these directories."""
    servers = []

    class Kept(serving.Server):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            servers.append(self)

    monkeypatch.setattr(serving, "Server", Kept)
    ready = threading.Event()
    thread = threading.Thread(
        target=serving.serve, args=(config,), kwargs={"ready": lambda url: ready.set()}
    )
    thread.start()
    assert ready.wait(BOUND)
    yield servers[0]
    servers[0].stop(2)
    thread.join(BOUND)


@pytest.fixture(params=["a server", "directories"])
def either(request, filled):
    if request.param == "a server":
        request.getfixturevalue("running")
    return request.param


def test_what_only_reads_works_with_and_without_a_server(either, command):
    code = 0 if either == "a server" else 4
    status = json.loads(command("status", "--json", code=code))
    assert (status["files"], status["senders"], status["devices"]) == (3, 2, 3)
    assert status["quarantined"] == 1
    assert status["ready"] == (either == "a server")
    senders = json.loads(command("senders", "list", "--json"))["senders"]
    assert {each["uuid"]: each["files"] for each in senders} == {A: 2, B: 1}
    assert json.loads(command("senders", "--json"))["senders"] == senders
    files = json.loads(command("files", "--json"))["files"]
    assert sorted(each["path"] for each in files) == [
        path_of(3, sg="root.b"),
        path_of(1),
        path_of(2),
    ]
    assert len(json.loads(command("files", "--limit", "1", "--json"))["files"]) == 1
    assert len(json.loads(command("files", "--sender", B, "--json"))["files"]) == 1
    owners = json.loads(command("owners", "list", "--sender", A, "--json"))["owners"]
    assert {each["device"] for each in owners} == {"root.sg.d1", EVIL}
    quarantine = json.loads(command("quarantine", "list", "--json"))["entries"]
    assert [each["path"] for each in quarantine] == [path_of(9)]
    assert json.loads(command("token", "list", "--json"))["tokens"] == []
    report = json.loads(command("fsck", "--json"))
    assert (report["files"], report["found"]) == (3, [])


def test_before_the_first_start_of_a_server_what_makes_an_engine_is_said(command):
    assert "no metadata engine has been here: `tsferry-receiver serve`" in command("status", code=2)


def test_an_empty_address_is_named_by_the_option_that_has_it(command, capsys):
    assert run(cli, "tsferry-receiver", ["--url", "", "status"]) == 2
    assert "--url is empty" in capsys.readouterr().err


def test_the_tree_shows_files_as_they_are_and_were(either, command):
    found = json.loads(command("tree", "--json"))
    assert (found["nodes"][0]["kind"], found["nodes"][0]["files"]) == ("database", 3)
    text = command("tree")
    assert "root.b/0/0" in text
    assert ".tsfile" not in text
    partition = command("tree", "root.b/0/0")
    assert partition.count(".tsfile") == 1
    assert command("tree", "--files").count(".tsfile") == 3
    commit = found["commit"]
    assert json.loads(command("tree", "--at", commit, "--json")) == found
    (file,) = [
        each["path"]
        for each in json.loads(command("tree", "root.b/0/0", "--json"))["nodes"]
        if each["kind"] == "file"
    ]
    for moment in ((), ("--at", commit)):
        (chunk,) = json.loads(command("tree", file, *moment, "--json"))["chunks"]
        assert chunk["count"] == 5
        assert (chunk["minimum"], chunk["maximum"]) == (10 * int(chunk["start_time"]), 50)
        said = command("tree", file, *moment)
        assert "MEASUREMENT" in said
        assert f"{chunk['offset']}" in said
    assert "no file that readers see" in command("tree", "root.none", code=2)
    assert "no time" in command("tree", "--at", "soon", code=2)


def test_nodes_are_told_with_and_without_a_server(either, command, tmp_path):
    (node,) = json.loads(command("nodes", "list", "--json"))["nodes"]
    assert (node["kind"], node["name"], node["state"]) == (
        "directory",
        str(tmp_path / "data"),
        "standing",
    )
    assert (node["files"], node["tablets"]) == (3, 2)
    assert node["uuid"][:8] in command("nodes", "list")


def test_the_only_directory_is_neither_drained_lost_nor_forgotten(running, command, tmp_path):
    path = str(tmp_path / "data")
    assert "no other data directory" in command("nodes", "drain", path, code=3)
    assert "is there: drain it" in command("nodes", "lost", path, "--confirm", code=3)
    assert "is in the configuration" in command("nodes", "forget", path, code=3)
    assert "is there: drain it" in command("nodes", "replace", path, path, code=3)
    assert "there is no node" in command("nodes", "drain", "/nowhere", code=2)
    assert "standing" in command("nodes", "undrain", path)


def test_a_process_that_keeps_files_is_shown_accepted_lost_and_found(running, command, tmp_path):
    host, port = running.addresses[0]
    token = json.loads(command("token", "create", "--role", "node", "--json"))["token"]
    masters = Masters([MasterCalls(f"http://{host}:{port}", token, None)])
    node = SpeakingNode(tmp_path / "node7")
    node.store.put(tablet(1, files=2, size=4096))
    while masters.say(node.talk.next, node.talk.answered) is not None:
        pass
    listed = {
        each["kind"]: each for each in json.loads(command("nodes", "list", "--json"))["nodes"]
    }
    assert (listed["remote"]["state"], listed["remote"]["tablets"]) == ("up", 1)
    assert "1 tablets are not of this catalogue" in command("nodes", "list")
    view = json.loads(command("nodes", "show", node.uuid[:8], "--json"))
    assert (view["uuid"], view["instance"], view["unknown"]) == (node.uuid, 1, 1)
    assert tablet_id(1) in command("nodes", "show", node.uuid)
    assert "stop it first" in command("nodes", "lost", node.uuid, "--confirm", code=3)
    assert "is not lost" in command("nodes", "found", node.uuid, code=3)
    assert "may go on" in command("nodes", "accept", node.uuid)
    while masters.say(node.talk.next, node.talk.answered) is not None:
        pass
    assert json.loads(command("nodes", "show", node.uuid, "--json"))["instance"] == 2
    assert "no storage node" in command("nodes", "confirm-master", code=2)
    node.close()


def test_a_table_is_made_by_hand_and_altered(running, command):
    made = command(
        "tables", "create", "root.new", "--from", "2026-01-01", "--to", "2026-02-26", "--every",
        "28d",
    )  # fmt: skip
    assert "running" in made
    assert "files are kept  for ever" in made
    altered = json.loads(
        command("tables", "alter", "root.new", "--split", 9, "--split", 12, "--json")
    )
    assert altered["tablets"] == 3  # of four weeks each, and of three
    assert json.loads(command("tables", "show", altered["id"], "--json")) == altered
    assert "there is a table" in command("tables", "create", "root.new", code=1)
    assert "is no time" in command("tables", "alter", "root.new", "--from", 5, "--to", 5, code=2)
    assert "--from" in command("tables", "create", "root.x", "--from", "soon", code=2)
    both = ("--replicas", 1, "--as-configured")
    assert "either" in command("tables", "alter", "root.new", *both, code=2)


def test_tables_and_tablets_are_told_as_they_are_and_were(either, command):
    found = json.loads(command("tables", "--json"))
    assert [(each["name"], each["tablets"], each["files"]) for each in found["tables"]] == [
        ("root.b", 1, 1),
        ("root.sg", 1, 2),
    ]
    past = json.loads(command("tables", "--at", found["commit"], "--json"))
    for each in found["tables"] + past["tables"]:  # a server tells how they stand
        assert each.pop("state", "") in ("", "running")
    assert past == found
    assert "root.sg" in command("tables")
    of = json.loads(command("tablets", "root.sg", "--json"))
    assert of["table"] == found["tables"][1]["id"]
    assert json.loads(command("tablets", of["table"], "--json")) == of
    (tablet,) = of["tablets"]
    assert (tablet["begin"], tablet["end"], tablet["files"]) == (0, 1, 2)
    assert tablet["id"] in command("tablets", "root.sg", "--from", tablet["last_time"])
    behind = str(int(tablet["last_time"]) + 1)
    for where in (("--from", behind), ("--to", tablet["first_time"])):
        assert tablet["id"] in command("tablets", "root.sg", *where), "that of the partition"
    assert "no tablets" in command("tablets", "root.sg", "--to", "-5")
    week = 7 * 86_400_000
    shown = command("tablets", "root.sg", "--from", -week, "--to", 2 * week)
    assert "in no tablet: -1, 1\n" in shown
    assert "there is no table" in command("tablets", "root.none", code=2)
    assert "no time" in command("tables", "--at", "soon", code=2)


def test_status_tells_of_the_schema(either, command):
    code = 0 if either == "a server" else 4
    found = json.loads(command("status", "--json", code=code))["schema"]
    assert (found["series"], found["devices"], found["storage_groups"]) == (3, 3, 2)
    assert found["memory"] > 0
    assert (
        0
        <= int(found["oldest_answerable"])
        < int(json.loads(command("status", "--json", code=code))["newest_commit"])
    )
    assert found["log_entries"] > 0
    assert json.loads(command("status", "--json", code=code))["clock"]["doubt"] is None
    text = command("status", code=code)
    for each in ("3 of 3 devices in 2 groups", "no limit", "history since", "TTL:"):
        assert each in text


def test_what_is_verified_is_shown(filled, config, command, request):
    with Node.open(config) as node:
        one, two, *_ = list_files(node.operator).files
        found = [Verdict(one.physical, one.md5), Verdict(two.physical, two.md5, "its sum differs")]
        record_verdicts(node.engine, found)
    for code in (4, 0):  # from the directories, then from a server
        if code == 0:
            request.getfixturevalue("running")
        assert "1 file, 1 not yet, the oldest verification 20" in command("status", code=code)
        status = json.loads(command("status", "--json", code=code))
        assert (status["verified"], status["unverified"]) == (1, 1)
        assert int(status["oldest_verification"]) > 0
        files = json.loads(command("files", "--json"))["files"]
        assert sum(int(each["verified"]) > 0 for each in files) == 1
        (left,) = json.loads(command("files", "--unverified", "--json"))["files"]
        assert left["path"] not in (one.path, two.path)
        header, _ = command("files", "--unverified").splitlines()
        assert "VERIFIED" in header
        assert "its sum differs" in command("quarantine", "list")
        assert "VERIFIED" in command("senders", "list")


def test_expired_files_can_be_asked_for(either, command):
    assert json.loads(command("files", "--state", "expired", "--json"))["files"] == []


def test_an_operator_confirms_the_clock_and_that_is_committed(running, command):
    before = int(json.loads(command("status", "--json"))["newest_commit"])
    assert "was not in doubt" in command("clock", "confirm")
    assert json.loads(command("clock", "confirm", "--json")) == {"was_doubted": None}
    told = json.loads(command("status", "--json"))
    assert int(told["clock"]["corrected"]) == int(told["newest_commit"]) > before
    assert told["clock"]["why"] == "operator"


def test_ttl_goes_on_when_the_clock_is_confirmed(running, command):
    assert "was not suspended" in command("ttl", "resume")
    assert json.loads(command("ttl", "resume", "--json")) == {"was_suspended": None}


def test_tables_show_names_without_what_a_terminal_would_obey(either, command):
    for arguments in (("owners", "list"), ("files",), ("senders", "list"), ("quarantine", "list")):
        shown = command(*arguments)
        assert A[:8] in shown
        assert not any(ord(c) < 32 and c != "\n" for c in shown)
        assert "\u202e" not in shown
    assert "\\x1b" in command("owners", "list")
    assert "\x1b" not in command("owners", "list", "--json")


def test_tokens_with_and_without_a_server(either, command):
    made = json.loads(
        command(
            "token", "create", "--sender", A, "--scope", "root.a.**", "--expires", "1d", "--json"
        )
    )
    assert made["token"].startswith("tsf_")
    assert command("token", "create", "--role", "reader").startswith("tsf_")
    listed = json.loads(command("token", "list", "--json"))["tokens"]
    assert [each["role"] for each in listed] == ["sender", "reader"]
    assert made["id"] in command("token", "revoke", made["id"])
    assert made["id"] not in command("token", "list")
    command("token", "revoke", made["id"], code=2)


def test_a_token_can_forbid_deletes(either, command, config):
    made = json.loads(command("token", "create", "--sender", A, "--no-deletes", "--json"))
    other = json.loads(command("token", "create", "--sender", B, "--json"))
    listed = json.loads(command("token", "list", "--json"))["tokens"]
    assert {each["id"]: each["allow_deletes"] for each in listed} == {
        made["id"]: False,
        other["id"]: True,
    }
    shown = {line.split()[0]: line for line in command("token", "list").splitlines()[1:]}
    assert "held" in shown[made["id"]]
    assert "held" not in shown[other["id"]]
    assert "only a sender" in command("token", "create", "--role", "reader", "--no-deletes", code=2)
    with Engine.read_only(config.schema_dir).reading() as state:
        assert not state.tokens[made["id"]].allow_deletes


def test_a_writers_token_says_for_whom_it_loads(either, command, config):
    made = json.loads(
        command("token", "create", "--role", "writer", "--as", A, "--as", "centre",
                "--scope", "root.sg.**", "--no-overwrite", "--json")
    )  # fmt: skip
    assert made["owners"][0] == A
    assert (len(made["owners"]), made["scope"], made["allow_deletes"]) == (2, ["root.sg.**"], False)
    (shown,) = [each for each in command("token", "list").splitlines() if made["id"] in each]
    assert "no overwriting" in shown
    assert A in shown
    assert "no sender" in command("token", "create", "--role", "writer", "--as", "x", code=2)
    assert "--no-overwrite" in command(
        "token", "create", "--role", "writer", "--no-deletes", code=2
    )
    command("token", "create", "--sender", A, "--no-overwrite", code=2)
    command("token", "create", "--role", "reader", "--as", A, code=2)


def test_owners_and_senders_are_changed_by_the_server(running, command):
    assert "free" in command("owners", "release", "root.sg.d1")
    command("owners", "release", "root.sg.d1", code=2)
    assert json.loads(command("owners", "transfer", EVIL, B, "--json"))["commit"]
    assert "accepted" in command("senders", "accept", A)
    command("senders", "accept", "no such sender/..", code=2)
    assert A in command("senders", "accept", "--all")
    command("senders", "accept", code=2)
    assert "what stays" in command("senders", "remove", B)
    assert "removed" in command("senders", "list")
    assert json.loads(command("senders", "remove", B, "--json"))["tokens"] == 0
    command("senders", "remove", "0" * 32, code=2)


def test_a_late_sender_is_named_by_lists_and_by_the_exit_code(running, command):
    node = site_of(running.application).node
    assert "late" not in command("senders", "list")
    for uuid in (A, B):
        node.checks.heard.checked(uuid, node.clock() - 100_000, "0.2.0")
    assert command("senders", "list", code=7).count("late: silent for more than 1d") == 2
    assert "2, 2 late: " in command("status", code=7)
    assert json.loads(command("status", "--json", code=7).rpartition("}")[0] + "}")["late"] == 2
    command("senders", "set", A, "--late-after", "2d")
    assert command("senders", code=7).count("late: silent for more than 1d") == 1
    command("senders", "set", B, "--late-after", "never")
    assert "0.2.0" in command("senders", "list")
    command("senders", "set", A, "--late-after", "default")
    assert command("senders", "list", code=7).count("late: silent") == 1
    assert "duration" in command("senders", "set", A, "--late-after", "soon", code=2)
    command("senders", "set", "0" * 32, "--late-after", "2d", code=2)


def test_a_list_of_senders_says_what_is_wrong_with_each_as_the_page_does(running, command):
    node = site_of(running.application).node
    beat = wire.Heartbeat(version="1", problem="no space to write looks.state", conflicts=2)
    node.checks.heard.beaten(A, node.clock(), beat)
    node.checks.heard.clone_refused(A, node.clock())
    said = "two machines speak under its uuid; its last round: no space to write looks.state"
    assert f"{said}; 2 in conflict" in command("senders", "list")
    assert "two machines speak under one uuid: " in command("status", "--check", code=1)


def test_a_monitoring_plugin_has_its_line_with_and_without_a_server(either, command):
    if either == "a server":
        line = command("status", "--check", code=1)
        assert line.startswith("TSFERRY WARNING - 1 file is not taken")
    else:
        line = command("status", "--check", code=2)
        assert line.startswith("TSFERRY CRITICAL - no receiver is running")
    assert line.strip().count("\n") == 0
    assert " quarantined=1;0 " in line


LISTS_OF_A_SENDER = [
    ("files",),
    ("owners", "list"),
    ("quarantine", "list"),
    ("lost", "list"),
    ("retired", "list"),
]


def test_a_sender_is_named_as_lists_show_it(either, command):
    for words in LISTS_OF_A_SENDER:
        whole = command(*words, "--sender", A)
        assert command(*words, "--sender", A[:8]) == whole
    assert "root.sg.d1" in command("owners", "list", "--sender", A[:8])


def test_who_names_no_sender_is_not_told_that_there_is_nothing(either, command):
    for words in LISTS_OF_A_SENDER:
        assert "no sender has the uuid" in command(*words, "--sender", "nobody", code=2)


def test_what_is_done_of_a_sender_takes_its_label_and_tells_its_uuid(running, command):
    site_of(running.application).node.load.make_known(A, "", "plant 7")
    assert command("senders", "set", "plant 7", "--late-after", "2d").startswith(A)
    assert A in command("owners", "transfer", "root.b.d", "plant 7")
    assert A in command("senders", "remove", A[:8])
    assert A in command("senders", "accept", "plant 7")


def test_edges_with_one_label_are_warned_of(running, command, capsys):
    node = site_of(running.application).node
    for uuid in (A, B):
        node.load.make_known(uuid, "", "plant 7")
    assert run(cli, "tsferry-receiver", ["--config", "receiver.toml", "senders", "list"]) == 0
    assert f"2 senders have the label plant 7: {A}, {B}; give each" in capsys.readouterr().err
    assert "'plant 7'" in command("status")


@pytest.fixture
def retired(filled, config):
    """The same with a file that its sender has no more; its physical path."""
    with Node.open(config) as node:
        with node.engine.reading() as state:
            row = state.file_table.held(B, path_of(3, sg="root.b"))
        node.engine.commit([records.FileRetired(row.physical, 1)])
        return row.physical


def test_retired_files_are_listed_and_shown_with_and_without_a_server(retired, either, command):
    (found,) = json.loads(command("retired", "list", "--json"))["files"]
    assert (found["physical"], found["state"]) == (retired, "retired")
    assert retired in command("retired", "list", "--sender", B)
    assert "no files" in command("retired", "list", "--superseded")
    assert path_of(3, sg="root.b") in command("retired", "show", retired)
    assert json.loads(command("retired", "show", retired, "--json"))["points"] == 5
    command("retired", "show", "no such file", code=2)


def test_status_says_how_many_retired_files_wait(retired, either, command):
    code = 0 if either == "a server" else 4
    shown = command("status", code=code)
    assert re.search("retired: .*(1 wait for a proof|1 have points of their own)", shown)


@pytest.fixture
def lost(config, filled):
    """A file that its sender tells, and of which there is nothing here."""
    with Node.open(config) as node:
        told = wire.LostFile(path=path_of(7), md5="0" * 32, size=5, first_time=70, last_time=79)
        node.lost.tell(sender(A), A, wire.LostPage(files=[told]))
    return path_of(7)


def test_lost_files_are_shown_with_and_without_a_server(lost, either, command):
    code = 3 if either == "a server" else 4
    assert re.search("lost: +1 file", command("status", code=code))
    (found,) = json.loads(command("lost", "list", "--json"))["files"]
    assert (found["path"], found["sender"], found["first"]) == (lost, A, "70")
    assert lost in command("lost", "list", "--sender", A)
    assert "nothing is lost" in command("lost", "list", "--sender", B)


def test_lost_files_are_acknowledged_at_the_server(lost, running, command):
    command("lost", "acknowledge", "--sender", A, code=2)
    command("lost", "acknowledge", "--sender", A, "--all", lost, code=2)
    command("lost", "acknowledge", "--sender", A, path_of(8), code=2)
    assert "acknowledged: 1 file" in command("lost", "acknowledge", "--sender", A, lost)
    assert "nothing is lost" in command("lost", "list")
    assert "lost:             none" in command("status")


def test_retired_files_are_dropped_by_the_server(retired, running, command):
    assert "dropped" in command("retired", "drop", retired)
    assert "no files" in command("retired", "list")
    command("retired", "drop", retired, code=3)


def test_files_that_have_ended_are_deleted_everywhere_by_the_server(retired, running, command):
    assert "deleted everywhere" in command("files", "delete", "--everywhere", retired)
    again = json.loads(command("files", "delete", retired, "--json", code=3))
    assert again["failed"] == [{"physical": retired, "reason": "it is deleted already"}]
    assert f"{retired}" in command("files", "--state", "deleted")


def test_quarantine_is_dropped_by_the_server(running, command):
    command("quarantine", "retry", path_of(9), code=3)  # still no TsFile
    command("quarantine", "drop", "no such path", code=2)
    command("quarantine", "drop", code=2)
    assert "dropped" in command("quarantine", "drop", path_of(9))
    assert "nothing" in command("quarantine", "list")
    assert json.loads(command("quarantine", "drop", "--all", "--json")) == {"dropped": []}


@pytest.mark.parametrize(
    "arguments",
    [
        ("owners", "release", "d"),
        ("owners", "transfer", "d", A),
        ("senders", "accept", A),
        ("senders", "set", A, "--late-after", "2d"),
        ("quarantine", "drop", "--all"),
        ("quarantine", "retry", "--all"),
        ("ttl", "resume"),
        ("clock", "confirm"),
        ("retired", "drop", "x"),
        ("senders", "remove", A),
        ("files", "delete", "x"),
    ],
)
def test_what_changes_something_says_that_no_server_runs(filled, command, arguments):
    assert "no receiver is running" in command(*arguments, code=4)


def test_a_token_file_that_is_left_from_a_killed_server_is_no_server(running, command, config):
    schema = config.schema_dir
    left = {name: (schema / name).read_bytes() for name in ("operator.url", "operator.token")}
    running.stop(2)
    until(lambda: not (schema / "operator.token").exists())
    for name, content in left.items():
        (schema / name).write_bytes(content)
    assert "not running" in command("status", code=4)


def test_fsck_finds_and_repairs(filled, command, config):
    (victim,) = (config.data_dirs[0] / "sequence" / "root.b").rglob("*.tsfile")
    victim.unlink()
    assert "missing" in command("fsck", code=1)
    report = json.loads(command("fsck", "--repair", "--json"))
    assert [each["repaired"] for each in report["found"]] == [True]
    assert "0 left" in command("fsck")


def test_fsck_says_what_a_damaged_log_still_holds_and_cuts_it_when_told(filled, command, config):
    log = config.schema_dir / "mlog-1.tsf"
    frames = [at for at in range(log.stat().st_size) if log.read_bytes()[at : at + 4] == b"TSFm"]
    content = bytearray(log.read_bytes())
    content[frames[-2] + 30] ^= 0xFF
    log.write_bytes(content)
    (found,) = json.loads(command("fsck", "--json", code=1).partition("tsferry-receiver:")[0])[
        "found"
    ]
    assert f"damaged at offset {frames[-2]}" in found["detail"]
    assert "1 frames behind the damage" in found["detail"]
    assert "--cut-log" in found["detail"]
    assert "expected with --repair" in command("fsck", "--cut-log", code=2)
    assert log.read_bytes() == content
    command("fsck", "--repair", "--cut-log")
    assert log.stat().st_size >= frames[-2]
    assert (config.schema_dir / f"mlog-1.tsf.cut-{frames[-2]}").exists()
    assert "0 left" in command("fsck")


def test_fsck_does_not_repair_beside_a_server(running, command):
    assert "held by process" in command("fsck", "--repair", code=5)


def test_init_overwrites_nothing(command, tmp_path):
    before = (tmp_path / "receiver.toml").read_bytes()
    assert b'schema_dir = "schema"' in before
    assert b"#port = 8765" in before
    assert "already" in command("init", code=2)
    assert (tmp_path / "receiver.toml").read_bytes() == before
    assert (tmp_path / "schema").is_dir()
    assert (tmp_path / "data").is_dir()


def test_an_init_that_fails_leaves_nothing_that_the_next_one_stumbles_over(command, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "units").mkdir()
    arguments = ("init", "new.toml", "--data-dir", "good", "--data-dir", "file", "--units")
    assert "file" in command(*arguments, "units", code=2)
    assert not (tmp_path / "new.toml").exists()
    new = ("init", "new.toml", "--data-dir", "good")
    assert "cannot be written" in command(*new, "--units", "file", code=2)
    assert not (tmp_path / "new.toml").exists()
    command("init", "new.toml", "--data-dir", "good", "--units", "units")


def test_init_writes_where_it_is_told(command, tmp_path):
    odd = 'da"ta\\dir'
    command("init", "x/y/my.toml", "--data-dir", odd, "--data-dir", "two")
    read = load(
        ReceiverConfig, file=tmp_path / "x/y/my.toml", env_prefix=ENV_PREFIX, environ={}, flags={}
    )
    assert read.value.data_dirs == (tmp_path / odd, tmp_path / "two")  # what the shell means
    assert read.value.schema_dir == tmp_path / "x/y/schema"


def test_init_writes_who_reaches_the_receiver(command, tmp_path):
    said = ("--host", "0.0.0.0", "--tls-cert", "c.pem", "--tls-key", "c.key")
    command("init", "my.toml", *said, "--allow", "127.0.0.0/8", "--allow", "10.20.0.0/16")
    assert tomllib.loads((tmp_path / "my.toml").read_text())["listen"] == {
        "host": "0.0.0.0",
        "tls_cert": str(tmp_path / "c.pem"),
        "tls_key": str(tmp_path / "c.key"),
        "allow": ["127.0.0.0/8", "10.20.0.0/16"],
    }
    assert "already" in command("init", "my.toml", "--host", "::", code=2)


def test_init_writes_what_was_set(command, tmp_path):
    said = ("--set", "listen.port=9555", "--set", "log.file=x.log", "--set", "page.report=none")
    command(*said, "init", "a/my.toml", "--host", "::1")
    read = load(
        ReceiverConfig, file=tmp_path / "a/my.toml", env_prefix=ENV_PREFIX, environ={}, flags={}
    )
    assert (read.value.listen.host, read.value.listen.port) == ("::1", 9555)
    assert read.value.log.file == tmp_path / "x.log"  # what the shell means
    assert read.value.page.report is None


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("listen.prot=1", "no such key"),
        ("listen.port=many", "expected"),
        ("listen=1", "does not write"),
        ("data_dirs=x", "--data-dir"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is(command, tmp_path, setting, said):
    before = sorted(tmp_path.rglob("*"))
    assert said in command("--set", setting, "init", "a/my.toml", code=2)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("option", ["--units", "--alerts"])
def test_a_directory_that_was_mistyped_is_not_made(command, tmp_path, option):
    before = sorted(tmp_path.rglob("*"))
    assert "sytem is not there" in command(
        "init", "a/my.toml", "--host", "::1", option, "sytem", code=2
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_init_adopts_what_was_exchanged(command, filled, config, tmp_path):
    shutil.rmtree(tmp_path / "data")
    assert "away" in command("status", code=4)
    told = json.loads(command("init", "--adopt", "--json"))
    assert told["marked"] == [str(tmp_path / "data")]
    assert json.loads(command("init", "--adopt", "--json"))["marked"] == []
    with Node.open(config) as node:
        assert node.problem() is None


def test_init_begins_anew_where_the_engine_is_lost_and_lets_nobody_in(
    command, filled, config, tmp_path
):
    shutil.rmtree(tmp_path / "schema")
    assert "marked" in command("init", "--adopt")
    with Node.open(config) as node, node.engine.reading() as state:
        assert state.token_table.roles == set(records.TOKEN_ROLES)
        assert not state.tokens
        assert node.problem() is None


def test_an_engine_whose_making_was_cut_off_lets_nobody_in(
    command, filled, config, tmp_path, monkeypatch
):
    shutil.rmtree(tmp_path / "schema")

    def full(engine):
        raise NoSpaceError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(receiver.cli.box_commands.init, "require_tokens", full)
        command("init", "--adopt", code=3)
    with pytest.raises(ConfigError, match="say it again"):
        Node.open(config)
    assert "marked" in command("init", "--adopt")
    with Node.open(config) as node, node.engine.reading() as state:
        assert state.token_table.roles == set(records.TOKEN_ROLES)
        assert node.problem() is None


def test_init_writes_the_rules_for_prometheus_once(command, tmp_path):
    rules = tmp_path / "prometheus" / "tsferry-alerts.yml"
    rules.parent.mkdir()
    assert json.loads(command("init", "--alerts", "prometheus", "--json"))["alerts"] == str(rules)
    assert "TsferryEdgeLate" in rules.read_text()
    rules.write_text("groups: []\n")
    assert "already" in command("init", "--alerts", "prometheus", code=2)
    assert rules.read_text() == "groups: []\n"


@pytest.mark.parametrize("named", [("init", "other.toml"), ("--config", "other.toml", "init")])
def test_a_unit_alone_is_that_of_a_configuration_which_is_there(command, tmp_path, named):
    before = sorted(tmp_path.iterdir())
    for more in ((), ("--alerts", "rules")):
        said = command(*named, "--units", "units", *more, code=2)
        assert "other.toml is not there, and a unit is that of a configuration" in said
        assert sorted(tmp_path.iterdir()) == before


def test_rules_alone_need_no_configuration_and_make_none(command, tmp_path):
    (tmp_path / "rules").mkdir()
    told = json.loads(command("init", "other/new.toml", "--alerts", "rules", "--json"))
    assert (told["config"], told["directories"]) == (None, [])
    assert (tmp_path / "rules/tsferry-alerts.yml").exists()
    assert not (tmp_path / "other").exists()


def test_init_adopts_nothing_without_a_configuration(command):
    assert "--adopt" in command("init", "other.toml", "--adopt", code=2)


def test_init_writes_the_unit_of_what_is_there_and_changes_nothing_else(command, tmp_path):
    before = (tmp_path / "receiver.toml").read_bytes()
    unit = tmp_path / "units/tsferry-receiver.service"
    unit.parent.mkdir()
    assert json.loads(command("init", "--units", "units", "--json")) == {
        "config": str(tmp_path / "receiver.toml"),
        "directories": [],
        "unit": str(unit),
        "unit_user": pwd.getpwuid(os.getuid()).pw_name,
        "alerts": None,
        "marked": [],
    }
    assert f"\nReadWritePaths={tmp_path / 'schema'} {tmp_path / 'data'}\n" in unit.read_text()
    assert (tmp_path / "receiver.toml").read_bytes() == before
    assert "already" in command("init", "--units", "units", "--schema-dir", "other", code=2)


def test_config_show_tells_where_values_come_from(command):
    assert "receiver.toml" in command("config", "show", "--origin")


def test_tasks_are_added_cancelled_and_tried_again_with_a_server(command, running):
    _look_after_tasks(command)
    assert "1 task waits, 0 run, the oldest waits since" in command("status")


def test_tasks_are_added_cancelled_and_tried_again_without_a_server(command, filled):
    _look_after_tasks(command)
    shown = json.loads(command("sql", "--json", "show tasks"))
    assert (shown["kind"], shown["scope"]) == ("prove", "root.sg 0")


def _look_after_tasks(command):
    assert "no background tasks" in command("tasks", "list")
    for group, partition in (("root.nothing", ""), ("root.*", ""), ("root.sg", "3")):
        command("tasks", "add", "prove", group, partition, code=2)
    task = command("tasks", "add", "prove", "root.sg", "0", "--priority=-7").strip()
    assert "root.sg 0" in command("tasks", "list", "--state", "pending")
    command("tasks", "add", "prove", "root.sg", code=3)
    command("tasks", "add", "odd", "root.sg", code=2)
    assert task in command("tasks", "cancel", task, "--reason", "not now")
    (found,) = json.loads(command("tasks", "list", "--json"))["tasks"]
    assert (found["state"], found["reason"], found["priority"]) == ("cancelled", "not now", -7)
    command("tasks", "cancel", task, code=3)
    assert json.loads(command("tasks", "retry", task, "--json")) == {"task": task}
    command("tasks", "retry", "12", code=2)


@pytest.mark.few(1)
@pytest.mark.slow
def test_a_task_is_run_now_by_the_command(command, either):
    assert "no background task waits" in command("tasks", "run")
    task = command("tasks", "add", "merge", "root.sg").strip()
    assert "no background task waits" in command("tasks", "run", "--kind", "prove")
    assert command("tasks", "run", task).startswith(f"{task} merge root.sg: done: 2 files, ")
    assert json.loads(command("tasks", "list", "--json"))["tasks"][0]["state"] == "done"
    merged = json.loads(command("status", "--json", code=0 if either == "a server" else 4))
    assert (merged["merged"]["inputs"], merged["merged"]["outputs"]) == (2, 1)
    command("tasks", "run", task, code=3)
    for other in ("12", "x", "9" * 30):
        command("tasks", "run", other, code=2)
    for group in ("root.sg", "root.b"):
        command("tasks", "add", "merge", group)
    (cancelled,) = json.loads(command("tasks", "list", "--state", "pending", "--limit", "1",
                                      "--json"))["tasks"]  # fmt: skip
    command("tasks", "cancel", cancelled["task"])
    command("tasks", "run", cancelled["task"], code=3)
    (ran,) = json.loads(command("tasks", "run", "--all", "--json"))["tasks"]
    assert (ran["scope"], ran["state"], ran["reason"]) == (
        ["root.b"], "done", "nothing is to be merged",
    )  # fmt: skip


def test_an_executor_says_what_it_lacks(command, monkeypatch):
    monkeypatch.delenv("TSFERRY_WORKER_TOKEN", raising=False)
    here = ("work", "--from", "http://127.0.0.1:1")
    assert "TSFERRY_WORKER_TOKEN" in command(*here, code=2)
    assert "expected merge, prove" in command(*here, "--token", "t", "--kinds", "prove,odd", code=2)
    assert "above 0" in command(*here, "--token", "t", "--every", "0", code=2)
    elsewhere = ("work", "--from", "http://centre.example:1", "--token", "t")
    assert "expected https" in command(*elsewhere, code=2)


def test_without_directories_reading_says_so(command):
    assert command("owners", "list", code=2)


def _leaves(group, name=()):
    context = click.Context(group)
    for key in group.list_commands(context):
        each = group.get_command(context, key)
        if isinstance(each, click.Group):
            yield from _leaves(each, (*name, key))
        else:
            yield (*name, key), each


@pytest.mark.parametrize("name", [name for name, _ in _leaves(cli)], ids=" ".join)
def test_every_command_explains_itself(command, name):
    text = " ".join(command(*name, "--help").split())
    assert "Example: tsferry-receiver" in text
    assert "Exit code" in text
    if name not in (("serve",), ("work",)):
        assert "--json" in text or name in (("senders", "accept"), ("senders", "set"))


def test_the_whole_explains_its_exit_codes(command):
    assert "Exit codes:" in command("--help")


def test_what_init_shows_as_defaults_are_the_defaults(command, tmp_path):
    plain = json.loads(command("config", "show", "--json"))
    text = (tmp_path / "receiver.toml").read_text()
    with_default = re.sub(r"(?m)^#(?=[a-z_]+ = (?!.*# default: none))", "", text)
    (tmp_path / "receiver.toml").write_text(with_default)
    assert json.loads(command("config", "show", "--json")) == plain


def test_a_directory_of_this_machine_is_loaded_by_the_server(running, command, tmp_path):
    for number, (device, first) in enumerate((("root.sg.d1", 100), ("root.sg.d1", 200)), 5):
        place = tmp_path / "old" / path_of(number)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(tsfile(device, first=first))
    refused = command("load", "old", code=3)
    assert f"--as {A}" in refused
    assert "2 refused" in refused
    dry = json.loads(command("load", "old", "--as", A, "--dry-run", "--json"))
    assert dry["dry_run"]
    assert len(json.loads(command("files", "--json"))["files"]) == 3
    done = json.loads(command("load", "old", "--as", A, "--json"))
    assert [each["result"] for each in done["files"]] == ["loaded", "loaded"]
    assert [each["result"] for each in dry["files"]] == ["loaded", "loaded"]
    assert len(json.loads(command("files", "--json"))["files"]) == 5
    assert "2 already" in command("load", "old", "--as", A)
    place.write_bytes(tsfile(first=203))
    assert "--on-duplicate keep" in command("load", "old", "--as", A, code=3)
    assert "1 loaded" in command("load", "old", "--as", A, "--on-duplicate", "keep")
    place.write_bytes(tsfile(first=204))
    assert "1 loaded" in command("load", "old", "--as", A, "--on-duplicate", "skip")
    assert "no such file" in command("load", "nowhere", code=2)


def test_what_an_old_receiver_has_is_adopted_by_the_server(running, command, tmp_path):
    where = lay(tmp_path / "old", {path_of(8): tsfile("root.sg.old"), path_of(9): b"half"})
    dry = command("adopt", "old", "--as", B)
    assert "dry run: 1 loaded, 1 to be known; --commit does it" in dry
    assert len(json.loads(command("files", "--json"))["files"]) == 3
    command("adopt", "old", "--as", B, "--as", f"root.sg={A}", "--as", A, code=2)
    done = json.loads(command("adopt", "old", "--as", f"root.sg={B}", "--commit", "--json"))
    assert [each["result"] for each in done["files"]] == ["loaded"]
    assert "adopted" in command("files", "--sender", B)
    lay(where, {path_of(7): tsfile("root.sg.d1", first=900)})
    assert "nothing was taken: " in command("adopt", "old", "--as", B, "--commit", code=3)


def test_nothing_is_loaded_while_no_server_runs(filled, command, tmp_path):
    assert "no receiver is running" in command("load", str(tmp_path), code=4)


LISTS = (
    "senders list", "files", "tree --files", "tables", "tablets root.b", "nodes list",
    "owners list", "quarantine list", "retired list", "tasks list", "token list", "deletes list",
    "lost list", "fsck", "files --state deleted",
)  # fmt: skip


@pytest.mark.slow
def test_every_list_fits_a_terminal_of_80_columns(config, filled, command, monkeypatch):
    long = "root." + "a_long_name_of_a_plant." * 6 + "**"
    arguments = ("--role", "writer", "--scope", long, "--as", "*", "--note", "n" * 90)
    command("token", "create", *arguments, "--expires", "900000d")
    with Node.open(config) as node:
        node.engine.set_storage_group(long.removesuffix(".**"))
    command("tasks", "add", "prove", long.removesuffix(".**"), "--priority=-7")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for each in LISTS:
        for line in command(*each.split()).splitlines():
            assert display_width(line) <= 80, f"{each}: {line}"
            assert "\x1b" not in line


def test_what_comes_next_is_said_of_what_was_written(command, tmp_path):
    (tmp_path / "rules").mkdir()
    (tmp_path / "units").mkdir()
    assert "next: name " in command("init", "--alerts", "rules")
    units = command("init", "--units", "units")
    assert "next: systemctl daemon-reload && systemctl enable --now tsferry-receiver\n" in units


def test_a_backup_into_a_file_is_wrong_usage(command, tmp_path):
    (tmp_path / "taken").touch()
    assert "'taken' is a file" in command("backup", "taken", code=2)
