"""What the command lines of both programs share: options, errors, exit codes, output.

A program describes itself once and hangs its commands below a group::

    PROGRAM = Program("tsferry-sender", SenderConfig, "TSFERRY_SENDER_", Path("/etc/tsferry/..."))

    @click.group()
    @PROGRAM.options
    def cli() -> None: ...

    cli.add_command(config_group(PROGRAM))

    def main() -> int:
        return run(cli, PROGRAM.name)
"""

from __future__ import annotations

import functools
import json
import os
import select
import shlex
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar

import click
import msgspec

from common.config import Flag, Loaded, as_json, drop_in_directory, load, render, setting_as_toml
from common.console.json_option import JsonForm, json_option
from common.console.logs import LogConfig, set_up
from common.console.shown_config import ConfigOrigins, ConfigTables, SettingFound
from common.console.terminal import printable
from common.errors import EXIT_INTERNAL, EXIT_USAGE, TsferryError, UsageError
from common.system_errors import impossible_place, system_error

__all__ = ["Invocation", "Program", "config_group", "emit_json", "run"]

T = TypeVar("T", bound=msgspec.Struct)
F = TypeVar("F", bound=Callable[..., Any])

EXIT_INTERRUPTED = 130
"""What a shell reports for a command that Ctrl-C ended: 128 + SIGINT."""
EXIT_UNREAD = 141
"""What a shell reports for a command whose reader went away: 128 + SIGPIPE."""
TRACE = "TSFERRY_TRACE"


@dataclass(frozen=True)
class Program(Generic[T]):
    """A program and its configuration.

    Attributes:
        name: the command.
        schema: its top table.
        env_prefix: of its variables, with the last underscore.
        default_file: read where neither ``--config`` nor ``<env_prefix>CONFIG`` names one, if it
            is there. The working directory is not looked at: a daemon must not change with the
            place that it was started from.
        exit_codes: what its commands end with, and what each says. Help and manual show them.
        implied: dotted key -> what keys without a default are where that one is set.
        first_codes: which of them a command ends with where several apply, the strongest first.
    """

    name: str
    schema: type[T]
    env_prefix: str
    default_file: Path
    exit_codes: Mapping[int, str] = field(default_factory=dict, compare=False)
    first_codes: tuple[int, ...] = ()
    implied: Mapping[str, Mapping[str, object]] = field(default_factory=dict, compare=False)

    @property
    def exit_text(self) -> str:
        """The exit codes as help has them: a paragraph of lines that click leaves as they are."""
        lines = [
            textwrap.fill(said, 78, initial_indent=f"  {code:>3}  ", subsequent_indent=" " * 7)
            for code, said in self.exit_codes.items()
        ]
        text = "\n".join(["\b", "Exit codes:", *lines])
        if not self.first_codes:
            return text
        order = ", ".join(map(str, self.first_codes))
        return f"{text}\n\nWhere several apply, the first of {order} is the one."

    def options(self, command: F) -> F:
        """Decorate a group with ``--config``, ``--set``, ``--verbose``; it gets an `Invocation`.

        Commands below reach it with ``@click.pass_obj``.
        """

        @click.option(
            "--config",
            "-c",
            "file",
            type=click.Path(path_type=Path, readable=False),  # who reads it says why it cannot
            envvar=f"{self.env_prefix}CONFIG",
            show_envvar=True,
            help=f"Configuration file.  [default: {self.default_file}, if it is there]",
        )
        @click.option(
            "--set",
            "settings",
            metavar="KEY=VALUE",
            multiple=True,
            help="Set a configuration key, as in --set log.level=debug. May be repeated.",
        )
        @click.option("--verbose", "-v", is_flag=True, help="Log at debug level.")
        @click.pass_context
        @functools.wraps(command)
        def wrapped(
            context: click.Context,
            /,
            *args: Any,
            file: Path | None,
            settings: tuple[str, ...],
            verbose: bool,
            **kwargs: Any,
        ) -> Any:
            context.obj = Invocation(self, self._file(file), settings, verbose)
            return context.invoke(command, *args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _file(self, named: Path | None) -> Path | None:
        if named is not None:
            return named
        # Drop-ins without the file that they lie over are none of which nobody hears.
        for each in (self.default_file, drop_in_directory(self.default_file)):
            try:
                each.lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                pass  # it may be there: what reads it says why it cannot
            return self.default_file
        return None


@dataclass(frozen=True)
class Invocation(Generic[T]):
    """How the program was called: what `load` needs, before any command of it runs.

    Attributes:
        program: what was called.
        file: the configuration file; None where there is none.
        settings: ``KEY=VALUE``, as given with ``--set``.
        verbose: whether debug records are wanted.
        environ: the environment.
    """

    program: Program[T]
    file: Path | None = None
    settings: tuple[str, ...] = ()
    verbose: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def load(self, flags: Mapping[str, object] | None = None, *, secrets: bool = True) -> Loaded[T]:
        """Load the configuration, with the flags that a command has of its own (dotted keys).

        Without `secrets` the files that hold tokens are not read, and need not be there yet.

        Raises:
            ConfigError: something in it is wrong.
            UsageError: a ``--set`` without ``=``.
        """
        return load(
            self.program.schema,
            file=self.file,
            env_prefix=self.program.env_prefix,
            environ=self.environ,
            flags=dict(map(_setting, self.settings)) | dict(flags or {}),
            secrets=secrets,
            implied=self.program.implied,
        )

    def settings_as_toml(self) -> dict[str, str]:
        """What ``--set`` says, for a new file: dotted key -> value as TOML.

        A file without it would be another than the one that was asked for.

        Raises:
            ConfigError: there is no such key, or it cannot be written there.
            UsageError: a ``--set`` without ``=``.
        """
        said = map(_setting, self.settings)
        return {
            key: setting_as_toml(self.program.schema, key, str(flag.value)) for key, flag in said
        }

    def start(self, log: LogConfig) -> None:
        """Set up logging for a command that does its work."""
        set_up(log, verbose=self.verbose)


def _setting(text: str) -> tuple[str, Flag]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text}: expected KEY=VALUE, as in --set log.level=debug")
    return key.strip(), Flag(value, f"--set {key.strip()}")


def _of_the_program(error: click.UsageError) -> str | None:
    """What to say of an option of the program that stands behind one of its commands."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    root = error.ctx.find_root()
    known = {name for each in root.command.params for name in each.opts}
    if error.ctx is root or error.option_name not in known:
        return None
    words = error.ctx.command_path.removeprefix(f"{root.info_name} ")
    return f"it stands before the command: {root.info_name} {error.option_name} ... {words}"


def run(
    command: click.Command,
    name: str,
    arguments: Sequence[str] | None = None,
    *,
    extra: str | None = None,
) -> int:
    """Run a command line to its exit code; errors become one line each on stderr.

    Codes: 0 done, 2 wrong usage or configuration, or a package of `extra` is not installed, 130
    interrupted, 141 whoever read its output has gone (`| head`) before its end, 1 an error nobody
    foresaw, otherwise what the class of the error says (`common.errors`). With ``TSFERRY_TRACE=1``
    each error comes with its traceback.

    Args:
        command: what to run.
        name: of the program.
        arguments: of the command line; None for those of this process.
        extra: of the distribution, which brings packages that the command imports.
    """
    stdout = sys.stdout
    try:
        result = command.main(arguments, prog_name=name, standalone_mode=False)
        stdout.flush()
    except SystemExit:
        # Of a broken pipe, whichever, click makes a silent exit code 1, which says something else
        # here; it has put something in the place of stdout then.
        if sys.stdout is stdout:
            raise
        if _is_read(stdout):
            return _report(name, "the other end of a connection is gone", EXIT_INTERNAL)
        return EXIT_UNREAD
    except BrokenPipeError:  # by the flush: click has taken all others
        with suppress(BrokenPipeError):
            stdout.close()  # or the interpreter finds it broken, too, and says so
        return EXIT_UNREAD
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.UsageError as error:
        command_path = error.ctx.command_path if error.ctx else name
        hint = _of_the_program(error) or f"see {command_path} --help"
        return _report(name, f"{error.format_message()} ({hint})", EXIT_USAGE)
    except click.ClickException as error:
        return _report(name, error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _report(name, "interrupted", EXIT_INTERRUPTED)
    except TsferryError as error:
        return _report(name, error.message, error.exit_code)
    except Exception as error:
        known = None
        if isinstance(error, OSError):
            known = system_error(error) or impossible_place(error)
        if known is not None:
            return _report(name, known.message, known.exit_code)
        if extra and isinstance(error, ModuleNotFoundError) and _is_foreign(error.name):
            return _report(name, _missing(error.name, extra), EXIT_USAGE)
        hint = "" if os.environ.get(TRACE) else f" ({TRACE}=1 shows where)"
        return _report(name, f"{type(error).__name__}: {error}{hint}", EXIT_INTERNAL)
    return result if type(result) is int else 0


def _is_read(stream: TextIO) -> bool:
    """Whether somebody may read what is written there."""
    try:
        looked = select.poll()
        looked.register(stream.fileno(), 0)
        return not any(events & select.POLLERR for _, events in looked.poll(0))
    except (OSError, ValueError):  # it has no descriptor
        return True


def _is_foreign(module: str | None) -> bool:
    """Whether a module is neither ours nor Python's: another distribution brings it."""
    ours = {"common", "sender", "receiver"}
    return (module or "").partition(".")[0] not in {"", *ours, *sys.stdlib_module_names}


def _missing(module: str | None, extra: str) -> str:
    # With a tsferry that is installed, whatever from, pip brings what the extra is short of.
    return (
        f"the package {module} is not installed: "
        f"{shlex.quote(sys.executable)} -m pip install 'tsferry[{extra}]'"
    )


def _report(name: str, message: str, code: int) -> int:
    for line in message.splitlines() or [""]:
        click.echo(f"{name}: error: {printable(line)}", err=True)
    if os.environ.get(TRACE) and code != EXIT_INTERRUPTED:
        lines = traceback.format_exc().splitlines()
        click.echo("\n".join(map(printable, lines)), err=True)
    return code


def emit_json(value: object, kind: object = None) -> None:
    """Write a value to stdout as JSON of our form (`common.console.json_form`).

    It is pure ASCII: no name in it can reach a terminal raw.

    Args:
        value: that the command's `--json` says (`common.console.json_option`).
        kind: its type, where it is a dictionary.
    """
    from common.console.json_form import json_form  # brings all wire types along

    json.dump(json_form(value, kind), sys.stdout, indent=2, ensure_ascii=True)
    sys.stdout.write("\n")


def config_group(program: Program[Any]) -> click.Group:
    """The commands below ``config``."""

    @click.group("config", help="Show the configuration.")
    def group() -> None:
        pass

    @group.command(
        epilog=f"Example: {program.name} config show --origin",
        help="Check the configuration and show every value in force; tokens are not shown. "
        "Exit code 2: something in it is wrong.",
    )
    @click.option("--origin", is_flag=True, help="Say for each value where it comes from.")
    @json_option(
        JsonForm(ConfigTables),
        JsonForm(ConfigOrigins, "with `--origin`"),
        name="as_machine",
    )
    @click.pass_obj
    def show(invocation: Invocation[Any], origin: bool, as_machine: bool) -> None:
        loaded = invocation.load()
        if as_machine:
            emit_json(as_json(loaded, origin=origin), dict[str, SettingFound] if origin else None)
        else:
            click.echo(render(loaded, origin=origin))
        for warning in loaded.warnings:
            click.echo(f"{program.name}: warning: {printable(warning)}", err=True)

    return group
