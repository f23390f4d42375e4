"""The command `sql` and its shell, on a server in this process and on directories without one."""

import io
import json
import os
import socket
import threading
import time
from contextlib import contextmanager, nullcontext

import msgspec
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from common.config import load
from common.console.cli import run
from common.errors import UnreachableError
from receiver.cli import awaited_answer
from receiver.cli.commands import cli
from receiver.cli.shell.sqlshell import SchemaCompleter, Shell, is_whole
from receiver.cli.shell.sqlsource import SqlSource
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.metadata.engine import Engine
from receiver.metadata.sql.executing import execute
from receiver.node import Node
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadFile
from receiver.operator.views.step_now import StepNow
from receiver.web import serving
from receiver.web.sql_wire import SqlAnswer
from tests.support.web import BOUND

SCHEMA = (
    "set storage group to root.sg, root.other",
    "create timeseries root.sg.d1.s1(temp) with datatype=FLOAT, encoding=RLE tags(unit=c)",
    "create aligned timeseries root.sg.d2(s1 INT32, s2 INT32, s3 INT32)",
    "create timeseries root.other.`d\u202e1`.s1 with datatype=TEXT",
)
PATHS = [
    "root.other.`d\u202e1`.s1",
    "root.sg.d1.s1",
    "root.sg.d2.s1",
    "root.sg.d2.s2",
    "root.sg.d2.s3",
]


@pytest.fixture
def ask(tmp_path, capsys, monkeypatch):
    """Run `sql` with arguments; returns what it wrote."""
    monkeypatch.chdir(tmp_path)

    def ask(*arguments, code=0, script=None):
        if script is not None:
            monkeypatch.setattr("sys.stdin", io.StringIO(script))
        got = run(cli, "tsferry-receiver", ["--config", "receiver.toml", "sql", *arguments])
        out = capsys.readouterr()
        assert got == code, (got, out)
        return out.out if code == 0 else out

    assert run(cli, "tsferry-receiver", ["init"]) == 0
    capsys.readouterr()
    return ask


@pytest.fixture
def config(ask, tmp_path):
    loaded = load(
        ReceiverConfig, file=tmp_path / "receiver.toml", env_prefix=ENV_PREFIX, environ={}, flags={}
    )
    limits = msgspec.structs.replace(loaded.value.limits, min_free_bytes=0)
    listen = msgspec.structs.replace(loaded.value.listen, port=0)
    return msgspec.structs.replace(loaded.value, limits=limits, listen=listen)


@pytest.fixture
def filled(config):
    with Node.open(config) as node:
        for statement in SCHEMA:
            execute(node.engine, statement)


@pytest.fixture
def serve(config, monkeypatch):
    """A server for as long as `with` lasts."""
    servers = []

    class Kept(serving.Server):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            servers.append(self)

    monkeypatch.setattr(serving, "Server", Kept)

    @contextmanager
    def serve():
        ready = threading.Event()
        thread = threading.Thread(
            target=serving.serve, args=(config,), kwargs={"ready": lambda url: ready.set()}
        )
        thread.start()
        assert ready.wait(BOUND)
        yield servers[-1]
        servers[-1].stop(2)
        thread.join(BOUND)

    return serve


@pytest.fixture
def running(filled, serve):
    with serve() as server:
        yield server


@pytest.fixture(params=["a server", "directories"])
def either(request, filled):
    if request.param == "a server":
        request.getfixturevalue("running")
    return request.param


def paths(text):
    return [json.loads(line)["timeseries"] for line in text.splitlines()]


# -- statements ------------------------------------------------------------------------------------


def test_what_only_asks_works_with_and_without_a_server(either, ask):
    assert paths(ask("--json", "show timeseries")) == PATHS
    assert paths(ask("--json", "--fetch-size", "2", "show timeseries;")) == PATHS
    assert paths(ask("--json", "show timeseries where unit=c")) == ["root.sg.d1.s1"]
    assert json.loads(ask("--json", "count timeseries")) == {"count(timeseries)": 5}
    assert ask("--csv", "show storage group").splitlines()[0] == "storage group,ttl,created"
    shown = ask("show devices")
    assert "\\u202e" in shown
    assert "\u202e" not in shown
    assert len(shown.splitlines()) == 2 + 3


def test_a_script_needs_one_connection(running, ask, config, monkeypatch):
    made = []
    connect = socket.create_connection

    def counted(*args, **kwargs):
        made.append(1)
        return connect(*args, **kwargs)

    monkeypatch.setattr(socket, "create_connection", counted)
    script = "create timeseries root.sg.d9.s{0} with datatype=INT32; count timeseries;\n"
    ask(script="".join(map(script.format, range(20))))
    assert len(made) == 1
    # An error of one statement does not cost the next its connection, either.
    ask("--keep-going", script="show timeserie; show devices; show x; count devices;", code=2)
    assert len(made) == 2


def test_a_shell_goes_on_with_a_server_that_was_started_anew(filled, config, serve):
    source = SqlSource(config)
    for offline in (False, True, False):
        with nullcontext() if offline else serve():
            reply = source.run("count timeseries")
            assert reply.offline == offline
            assert [list(map(list, page)) for page in reply.pages] == [[[5]]]


def test_an_error_shows_the_place_in_the_statement(either, ask):
    out = ask("show timeserie root.sg", code=2)
    assert out.out == ""
    line, mark, message = out.err.splitlines()
    assert line == "show timeserie root.sg"
    assert mark == "     ^"
    assert "line 1, column 6" in message
    assert "did you mean TIMESERIES" in message
    assert "root.nowhere" not in ask("show timeseries root.nowhere")
    ask("show timeseries where x=y", code=2)
    ask("count devices", "--at", "soon", code=2)
    ask("", code=2)


def test_what_is_before_the_kept_history_is_told_without_a_server_too(config, ask, tmp_path):
    file = tmp_path / "receiver.toml"
    short = '[metadata]\nhistory = "1h"\nclock_jump = "1h"\n'
    file.write_text(file.read_text().replace("[metadata]\n", short))
    long_ago = time.time() - 30 * 86400

    class Clock:
        now = long_ago

        def __call__(self):
            self.now += 1800
            return self.now

    with Engine.open(config.schema_dir, clock=Clock(), background=False) as engine:
        first = execute(engine, "set storage group to root.sg").commit
        for name in "abcdef":
            last = execute(engine, f"create timeseries root.sg.d.{name} with datatype=INT32").commit
    assert "before the kept history" in ask("count timeseries", "--at", str(first), code=1).err
    assert json.loads(ask("--json", "count timeseries", "--at", str(last))) == {
        "count(timeseries)": 6
    }


def test_a_script_may_begin_with_a_byte_order_mark(either, ask):
    assert ask("--json", script="\ufeffcount devices;") == '{"count(devices)": 3}\n'


def test_what_is_no_text_is_an_error_of_usage(either, ask):
    for arguments in (("show timeseries root.`\udcff`",), ("show devices", "--at", "\udcff")):
        assert "UTF-8" in ask(*arguments, code=2).err


def test_the_mark_stands_under_the_place_whatever_stands_before_it(either, ask):
    _, mark, _ = ask("show devices root.`\x1b温` limt 3", code=2).err.splitlines()
    assert mark == " " * len("show devices root.`\\x1b  ` ") + "^"


def test_of_a_long_line_only_what_is_around_the_place_is_shown(filled, ask):
    text = f"show timeseries where a = '{'x' * 5000}' nonsense '{'y' * 5000}'"
    line, mark, _ = ask(text, code=2).err.splitlines()
    assert line[mark.index("^") :].startswith("nonsense 'yyy")
    assert len(line) < 220


def test_what_changes_something_needs_the_server(filled, ask):
    assert "no receiver is running" in ask("set storage group to root.x", code=4).err


def test_what_changes_something_is_done_by_the_server(running, ask):
    assert ask("set storage group to root.x").startswith("1 storage group set (")
    done = json.loads(ask("--json", "delete timeseries root.sg.d2.*"))
    assert done["message"] == "timeseries deleted"
    before = int(done["commit"]) - 1
    assert json.loads(ask("--json", "count timeseries")) == {"count(timeseries)": 2}
    assert json.loads(ask("--json", "count timeseries", "--at", str(before))) == {
        "count(timeseries)": 5
    }
    ask("create timeseries root.sg.d1.s1 with datatype=INT32", code=1)
    ask("delete timeseries root.sg.d1.s9", code=2)


# -- scripts ---------------------------------------------------------------------------------------


def test_a_script_ends_at_its_first_error_and_says_where(running, ask):
    script = (
        "set storage group to root.x;\nset storage group\n  root.y; set storage group to root.z;"
    )
    out = ask(script=script, code=2)
    assert "1 storage group set" in out.out
    assert "line 3, column 3: expected TO" in out.err
    assert ask("--csv", "count storage group root.z") == "count(storage group)\r\n0\r\n"


def test_a_script_can_go_on_after_an_error(running, ask):
    script = "set storage group to root.sg;\n\nset storage group to root.z"
    out = ask("--keep-going", script=script, code=1)
    assert "1 storage group set" in out.out
    assert "root.sg" in out.err
    out = ask(script="count devices;\n\n  set storage group to root.sg;", code=1)
    assert "line 3: " in out.err


# -- the shell -------------------------------------------------------------------------------------


@pytest.fixture
def shell(config, capsys, tmp_path):
    """What the shell writes when these keys are typed."""

    def shell(keys, form="table", size=None):
        environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
        with create_pipe_input() as pipe:
            pipe.send_text(keys)
            source = SqlSource(config)
            made = Shell(source, form, None, size, environ, keys=pipe, screen=DummyOutput())
            assert made.run() == 0
        return capsys.readouterr().out

    return shell


def test_the_shell_answers_and_leaves(running, shell):
    out = shell("count timeseries\nset storage group to root.new;\nhelp\nexit\n")
    assert "count(timeseries)" in out
    assert "1 row, " in out
    assert "1 storage group set" in out
    assert "create aligned timeseries" in out


def test_a_statement_goes_on_until_it_is_whole(running, shell):
    out = shell("create timeseries root.sg.d9.s1\nwith datatype=INT32\nexit;\n")
    assert "1 timeseries created" in out
    out = shell("create timeseries\n\n\x04")
    assert "expected a path" in out
    assert out.splitlines()[-2] == " " * len("create timeseries") + "^"


def test_the_shell_goes_on_after_an_error(running, shell):
    out = shell("show timeserie\ncount devices\nshow timeseries where nothing=1\nexit\n")
    assert "did you mean TIMESERIES" in out
    assert "count(devices)" in out
    assert "'nothing'" in out


def test_a_long_answer_waits_after_each_page(running, shell):
    everything = shell("show timeseries\n\n\nexit\n", size=2)
    assert all(path in everything for path in PATHS[1:])
    assert "5 rows" in everything
    stopped = shell("show timeseries\nq\nexit\n", size=2)
    assert "2 rows, " in stopped
    assert PATHS[-1] not in stopped


def test_the_shell_reads_without_a_server(filled, shell):
    assert "count(devices)" in shell("count devices\nexit\n")
    assert "no receiver is running" in shell("set storage group to root.x\nexit\n")


def test_the_shell_has_transactions_and_its_end_rolls_back(running, shell, ask):
    out = shell(
        "begin\nset storage group to root.one;\nshow transactions\ncommit\n"
        "begin\nset storage group to root.two;\nexit\n"
    )
    assert "begun" in out
    assert "committed" in out
    groups = ask("--csv", "show storage group")
    assert "root.one" in groups
    assert "root.two" not in groups
    assert ask("--json", "show transactions") == ""


def test_a_script_that_ends_in_a_transaction_is_told_so(running, ask):
    out = ask(script="begin; set storage group to root.one;", code=1)
    assert "rolled back" in out.err
    assert "root.one" not in ask("--csv", "show storage group")
    assert "committed" in ask(script="begin; set storage group to root.one; commit;")
    assert "root.one" in ask("--csv", "show storage group")


def test_without_a_server_there_are_no_transactions(filled, ask):
    assert "no receiver is running" in ask("begin", code=4).err


def test_the_history_is_the_users_own(running, shell, tmp_path):
    shell("count devices\nexit\n")
    file = tmp_path / "state" / "tsferry" / "sql_history"
    assert "count devices" in file.read_text()
    assert os.stat(file).st_mode & 0o777 == 0o600
    (tmp_path / "state" / "tsferry").rename(tmp_path / "elsewhere")
    (tmp_path / "state" / "tsferry").write_text("no directory")
    assert "count(devices)" in shell("count devices\nexit\n")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("show timeseries", True),
        ("show timeseries where", False),
        ("show timeseries where;", True),
        ("show timeseries wher", True),
        ("create timeseries root.a.b", False),
        ("show timeseries root..b", True),
        ("exit", True),
        ("help", True),
        ("show devices where a = 'open", True),
    ],
)
def test_enter_carries_out_what_more_could_not_mend(text, whole):
    assert is_whole(text) is whole


def completions(config, text):
    completer = SchemaCompleter(SqlSource(config))
    found = completer.get_completions(Document(text), CompleteEvent())
    return [text[: len(text) + each.start_position] + each.text for each in found]


def test_keywords_are_completed_by_what_may_come_next(filled, config):
    assert completions(config, "sho") == ["show "]
    assert completions(config, "SHOW TI") == ["SHOW TIMESERIES "]
    assert set(completions(config, "show ")) >= {"show devices ", "show timeseries "}
    assert completions(config, "show devices li") == ["show devices limit "]
    assert completions(config, "nonsense ") == []
    assert completions(config, "show 'x") == []


def test_paths_are_completed_by_what_the_tree_has(either, config):
    assert completions(config, "show timeseries ro") == ["show timeseries root"]
    assert completions(config, "show timeseries root.") == [
        "show timeseries root.other",
        "show timeseries root.sg",
    ]
    assert completions(config, "delete timeseries root.sg.d2.s") == [
        f"delete timeseries root.sg.d2.s{n}" for n in (1, 2, 3)
    ]
    assert completions(config, "show devices root.other.d") == [
        "show devices root.other.`d\u202e1`"
    ]
    assert completions(config, "show devices root.other.`d") == [
        "show devices root.other.`d\u202e1`"
    ]
    assert completions(config, "show devices root..") == []


class LoadingServer:
    """Says of a load that it goes on, then how far it is, then how it ended."""

    is_connected = True

    def __init__(self, *results: str) -> None:
        files = [
            CentreLoadFile(source=f"/mnt/{at}.tsfile", path=f"{at}.tsfile", size=7, result=result)
            for at, result in enumerate(results)
        ]
        step = StepNow(step="copying", done=1, total=2, bytes=0, total_bytes=0)
        self.loads = [
            CentreLoadAnswer(task=TASK, done=False, progress=step, trouble="no room"),
            CentreLoadAnswer(task=TASK, done=True, files=files),
        ]

    def ask(self, method, path, kind, *, body=None, query=None):
        if path == "/v1/sql":
            assert body.wait == 1.0
            return SqlAnswer(
                columns=[], rows=[], message="it goes on", commit=7, next=None, load=TASK
            )
        assert (method, path) == ("GET", f"/v1/loads/{TASK}")
        found = self.loads.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found


TASK = "1" * 32


@pytest.fixture
def loading(monkeypatch):
    def loading(*results):
        server = LoadingServer(*results)
        monkeypatch.setattr(SqlSource, "_server", lambda source: server)
        return server

    return loading


def test_a_load_by_sql_is_awaited_and_told_as_by_the_command(ask, loading, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(awaited_answer, "show_step", lambda _, now: shown.append(now.step))
    loading("loaded", "already")
    said = ask("load '/mnt'")
    assert said.splitlines()[-1] == "1 already, 1 loaded"
    assert "/mnt/0.tsfile" in said
    assert shown == ["copying"]
    loading("loaded")
    assert json.loads(ask("--json", "load '/mnt'"))["result"] == "loaded"


def test_a_script_ends_where_a_load_did_not_load_all(ask, loading):
    loading("loaded", "refused")
    out = ask("load '/mnt'; show timeseries", code=3)
    assert out.out.splitlines()[-1] == "1 loaded, 1 refused"
    assert "it has to wait: no room" in out.err


def test_who_stops_waiting_for_a_load_is_told_that_it_goes_on(ask, loading):
    loading().loads[1] = KeyboardInterrupt()
    out = ask("load '/mnt'", code=130)
    assert f"load {TASK} goes on at the receiver" in out.err


def test_who_lets_go_of_a_load_before_its_id_is_there_is_told_where_it_is(
    ask, loading, monkeypatch
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(loading(), "ask", interrupted)
    assert (
        "goes on at the receiver: tsferry-receiver status has it" in ask("load '/m'", code=130).err
    )
    assert "goes on" not in ask("show devices", code=130).err


@pytest.mark.parametrize(
    ("statement", "is_told"), [("\n-- all\nload '/m'", True), ("show devices", False)]
)
def test_whoever_gets_no_answer_to_a_load_is_told_where_it_may_be(
    ask, loading, monkeypatch, statement, is_told
):
    def unanswered(*_, **__):
        raise UnreachableError("it does not answer: timed out")

    monkeypatch.setattr(loading(), "ask", unanswered)
    assert ("goes on at the receiver" in ask(statement, code=4).err) == is_told


def test_the_shell_carries_out_nothing_behind_a_load_that_did_not_load_all(config, loading, capsys):
    loading("refused")
    with create_pipe_input() as keys:
        keys.send_text("load '/mnt'; delete timeseries root.**;\nexit\n")
        shell = Shell(SqlSource(config), "table", None, None, {}, keys=keys, screen=DummyOutput())
        assert shell.run() == 0
    assert "error" not in capsys.readouterr().out, "the server knows of one load alone"


def test_the_shell_tells_totals_of_a_load(config, loading, capsys):
    loading("loaded", "loaded")
    with create_pipe_input() as keys:
        keys.send_text("load '/mnt'\nexit\n")
        shell = Shell(SqlSource(config), "table", None, None, {}, keys=keys, screen=DummyOutput())
        assert shell.run() == 0
    assert "\n2 rows, 2 loaded, " in capsys.readouterr().out
