import errno
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from msgspec import Struct

from common.console.cli import Program, config_group, emit_json, run
from common.errors import DamagedError, LockedError, UnreachableError
from tests.support.architecture import ROOT


class Schema(Struct, frozen=True, kw_only=True):
    count: int = 3
    must: str


@pytest.fixture
def call(tmp_path, monkeypatch, capfd):
    """Run a command line; returns exit code, stdout, stderr."""
    for name in ("TSFERRY_TRACE", "X_CONFIG", "X_COUNT", "X_MUST"):
        monkeypatch.delenv(name, raising=False)
    program = Program("x-tool", Schema, "X_", tmp_path / "etc.toml")

    @click.group()
    @program.options
    def cli():
        pass

    cli.add_command(config_group(program))

    def call(*arguments, action=None, extra=None):
        @cli.command()
        @click.pass_obj
        def act(invocation):
            return action(invocation)

        code = run(cli, "x-tool", arguments, extra=extra)
        return code, *capfd.readouterr()

    return call


def fail(error):
    def action(_):
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code"),
    [(UnreachableError("no answer"), 4), (LockedError("held"), 5), (DamagedError("at 17"), 1)],
)
def test_an_error_of_ours_is_one_line_and_its_own_exit_code(call, error, code):
    assert call("act", action=fail(error)) == (code, "", f"x-tool: error: {error}\n")


def test_an_error_that_nobody_foresaw_is_one_line_with_a_hint(call, monkeypatch):
    code, _, err = call("act", action=fail(ZeroDivisionError("by zero")))
    assert code == 1
    assert err == "x-tool: error: ZeroDivisionError: by zero (TSFERRY_TRACE=1 shows where)\n"
    monkeypatch.setenv("TSFERRY_TRACE", "1")
    code, _, err = call("act", action=fail(ZeroDivisionError("by zero")))
    assert code == 1
    assert "Traceback" in err
    assert "shows where" not in err


def test_ctrl_c_is_130_and_no_traceback(call):
    code, _, err = call("act", action=fail(KeyboardInterrupt()))
    assert code == 130
    assert err.strip() == "x-tool: error: interrupted"


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["--config"]])
def test_wrong_usage_is_2(call, arguments):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("x-tool: error: ")
    assert err.endswith("(see x-tool --help)\n")


def test_an_option_of_the_program_behind_a_command_is_told_where_it_belongs(call):
    code, _, err = call("act", "--config", "x")
    assert code == 2
    assert err.endswith("'--config'. (it stands before the command: x-tool --config ... act)\n")
    assert call("act", "--nonsense")[2].endswith("(see x-tool act --help)\n")


def test_a_group_without_a_command_shows_its_help_and_is_2(call):
    code, out, err = call("config")
    assert (code, out) == (2, "")
    assert err.startswith("Usage: x-tool config")
    assert "error" not in err


def test_a_package_that_is_not_installed_is_one_line_with_the_way_to_have_it(call):
    def action(_):
        import surely_absent  # noqa: F401

    code, _, err = call("act", action=action, extra="receiver")
    assert code == 2
    assert err == (
        "x-tool: error: the package surely_absent is not installed: "
        f"{sys.executable} -m pip install 'tsferry[receiver]'\n"
    )
    code, _, err = call("act", action=action)
    assert (code, err.splitlines()) == (1, [err.rstrip()])


@pytest.mark.parametrize("name", ["common.surely_absent", "json.surely_absent"])
def test_a_missing_module_of_our_own_or_of_python_is_no_missing_package(call, name):
    def action(_):
        importlib.import_module(name)

    code, _, err = call("act", action=action, extra="receiver")
    assert code == 1
    assert "pip" not in err


NEW = ("--set=schema_dir=s", "--set=data_dirs=d")


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "absent", "arguments"),
    [
        ("receiver.cli", "numpy", ["--help"]),
        ("receiver.cli", "lark", [*NEW, "sql", "count timeseries root.**"]),
        ("receiver.cli", "flask", [*NEW, "serve"]),
        ("receiver.spark.verify", "pyspark", ["--path", "."]),
        ("receiver.spark.verify", "numba", ["--path", "."]),
    ],
)
def test_without_its_extra_a_program_says_so(module, absent, arguments, tmp_path):
    def told(*arguments):
        code = f"import sys; sys.modules[{absent!r}] = None; from {module} import main; "
        done = subprocess.run(
            [sys.executable, "-c", f"{code}sys.exit(main())", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stderr

    code, err = told(*arguments)
    assert code == 2
    assert re.fullmatch(
        rf"tsferry-\w+: error: the package {absent} is not installed: "
        r"\S+ -m pip install 'tsferry\[\w+\]'\n",
        err,
    )
    assert told("--version")[0] == 0


def test_help_is_0(call):
    code, out, _ = call("config", "show", "--help")
    assert code == 0
    assert "Example: x-tool config show --origin" in out


def test_a_command_may_choose_its_exit_code(call):
    assert call("act", action=lambda _: 6)[0] == 6
    assert call("act", action=lambda _: None)[0] == 0
    assert call("act", action=lambda _: click.get_current_context().exit(3))[0] == 3


def test_no_name_in_an_error_reaches_the_terminal_raw(call):
    _, _, err = call("act", action=fail(LockedError("a\x1b[2Jb\rc\nd\u202e")))
    assert err == "x-tool: error: a\\x1b[2Jb\nx-tool: error: c\nx-tool: error: d\\u202e\n"
    _, _, err = call("act", action=fail(ValueError("a\x1b[2J")))
    assert "\x1b" not in err


def test_the_file_is_the_named_one_then_that_of_the_variable_then_the_default(
    call, tmp_path, monkeypatch
):
    for name in ("flag", "variable", "etc"):
        (tmp_path / f"{name}.toml").write_text(f"must = '{name}'")

    def shown(*arguments):
        return json.loads(call(*arguments, "config", "show", "--json")[1])["must"]

    assert shown() == "etc"
    monkeypatch.setenv("X_CONFIG", str(tmp_path / "variable.toml"))
    assert shown() == "variable"
    assert shown("--config", str(tmp_path / "flag.toml")) == "flag"


def test_a_named_file_must_be_there_and_the_default_need_not(call, tmp_path):
    assert call("--set", "must=x", "config", "show")[0] == 0
    code, _, err = call("-c", str(tmp_path / "gone"), "--set", "must=x", "config", "show")
    assert code == 2
    assert "No such file" in err


def test_a_default_file_that_may_not_be_looked_at_is_not_passed_over(call, tmp_path, monkeypatch):
    shut = tmp_path / "etc.toml"
    really = os.lstat

    def refuse(path, *_, **__):
        if Path(path) == shut:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really(path)

    monkeypatch.setattr(Path, "lstat", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    code, _, err = call("config", "show")
    assert code == 2
    assert f"{shut}: the user " in err
    assert len(err.splitlines()) == 1


def test_the_file_in_the_working_directory_is_not_taken(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x-tool.toml").write_text("must = 'x'")
    assert call("config", "show")[0] == 2


def test_set_comes_before_everything(call, monkeypatch):
    monkeypatch.setenv("X_COUNT", "4")
    code, out, _ = call("--set", "count=5", "--set", "must=a=b", "config", "show", "--origin")
    assert code == 0
    assert "# flag --set count" in out
    assert 'must = "a=b"' in out


@pytest.mark.parametrize("setting", ["count", "=5", ""])
def test_a_set_without_key_and_value_is_wrong_usage(call, setting):
    code, _, err = call("--set", setting, "config", "show")
    assert code == 2
    assert "KEY=VALUE" in err


def test_a_wrong_configuration_is_2_and_a_line_for_each_problem(call):
    code, out, err = call("--set", "count=x", "config", "show")
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == 2
    assert 'x-tool: error: --set count: count = "x": expected a whole number' in lines
    assert all(line.startswith("x-tool: error: ") for line in lines)


def test_origins_can_be_had_as_json(call):
    _, out, _ = call("--set", "must=x", "config", "show", "--origin", "--json")
    assert json.loads(out)["must"] == {
        "value": "x",
        "origin": {"kind": "flag", "where": "--set must"},
    }


def test_a_reader_that_goes_away_is_no_error_of_ours():
    program = (
        "import click, sys; from common.console.cli import run\n"
        "@click.command()\n"
        "def cli():\n"
        "    for _ in range(100_000): click.echo('x' * 80)\n"
        "sys.exit(run(cli, 'x-tool', []))"
    )
    done = subprocess.run(
        f"{shlex.join([sys.executable, '-c', program])} | head -1",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""


@pytest.mark.parametrize("text", ["click.echo('x' * 80)", "sys.stdout.write('x')"])
@pytest.mark.parametrize("times", [1, 100_000])
def test_output_that_nobody_reads_to_its_end_ends_as_by_sigpipe(text, times):
    """1 would say that something is wrong, and 0 that all was said, and done."""
    program = (
        "import click, sys; from common.console.cli import run\n"
        "@click.command()\n"
        "def cli():\n"
        f"    for _ in range({times}): {text}\n"
        "sys.exit(run(cli, 'x-tool', []))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as unread:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (141, "")


def test_another_broken_pipe_is_no_silent_end(call, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # click puts something in its place
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    code, _, err = call("act", action=fail(BrokenPipeError(errno.EPIPE, "a socket")))
    assert (code, err) == (1, "x-tool: error: the other end of a connection is gone\n")


def test_json_output_is_ascii_and_takes_structs(capsys):
    emit_json({"a": Schema(must="\x1b[2J数\udc80")})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == {"a": {"count": 3, "must": "\x1b[2J数\udc80"}}
