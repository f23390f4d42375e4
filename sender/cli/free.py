"""`tsferry-sender free`: remove files here that every receiver holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from common.config.units import parse_duration, parse_size
from common.console.cli import Invocation, emit_json
from common.console.terminal import counted, printable, size_text
from common.errors import TsferryError, UsageError
from sender.cli.program import PROGRAM, json_option, opened, stopping, warn_of_root
from sender.config import SenderConfig

if TYPE_CHECKING:
    from sender.round.freed_files.freeing import FreeReport
    from sender.select.found import LocalFile

__all__ = ["free"]

T = TypeVar("T")

_SHOWN = 20


@click.command(
    epilog="Example, from cron: tsferry-sender free --keep 30d --until-free 20GiB. "
    "Exit codes: 0 done; 2 usage; 4 a receiver is out of reach, nothing more is safe; 5 another "
    "one runs; 130 interrupted."
)
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
@click.option(
    "--verified",
    is_flag=True,
    help="Only files that every receiver has verified, point by point, since it has them.",
)
@click.option(
    "--older-than", metavar="DURATION", help="Only files last changed that long ago, as in 7d."
)
@click.option(
    "--keep", metavar="DURATION", help="Keep files with data of the last DURATION, as in 30d."
)
@click.option(
    "--until-free",
    metavar="SIZE",
    help="Only while less than this is free on the file system of a file, as in 10GiB.",
)
@json_option("sender.cli.command_views:FreeShown")
@click.pass_obj
def free(
    invocation: Invocation[SenderConfig],
    patterns: tuple[str, ...],
    dry_run: bool,
    verified: bool,
    older_than: str | None,
    keep: str | None,
    until_free: str | None,
    as_machine: bool,
) -> int:
    """Remove files that every receiver holds, with what belongs to them.

    A file goes only if each receiver says, at that moment, that it is visible there, that its bytes
    lie on its disk, and that its newest deletion file and resource are committed; the lowest rank
    first, the oldest partitions first, and a late (unsequence) file only when nothing that it
    overlaps stands. With propagate_deletes = "all" nothing does. PATTERN is matched with the whole
    path below the data directory, as in 'sequence/root.turbine/*'.

    Each removed file is printed, as a path. With --json one object is written: `freed` (file, path,
    size), `files`, `bytes`, `kept` (file, reason), `error`.
    """
    from sender.round.freed_files.freeing import Freeing, FreeOptions

    options = FreeOptions(
        verified=verified,
        older_than=_parsed("--older-than", older_than, parse_duration, "30d"),
        keep=_parsed("--keep", keep, parse_duration, "30d"),
        until_free=_parsed("--until-free", until_free, parse_size, "20GiB"),
        patterns=patterns,
        dry_run=dry_run,
    )

    def tell(file: LocalFile) -> None:
        if not as_machine:
            click.echo(str(file.data_dir / file.rel))

    with opened(invocation) as session, stopping(session.stop):
        remotes = [each for each in session.remotes if each.entry.source == "directories"]
        if not remotes:
            raise UsageError("free: the files here belong to the receiver on this node")
        if not dry_run:
            warn_of_root(session.config)
        freeing = Freeing(remotes, options, stop=session.stop, tell=tell)
        try:
            freeing.run()
        except TsferryError as error:
            if as_machine:
                _emit(freeing.report, error)
                return error.exit_code
            _show(freeing.report, dry_run=dry_run)
            raise
    if as_machine:
        _emit(freeing.report, None)
    else:
        _show(freeing.report, dry_run=dry_run)
    return 0


def _parsed(name: str, text: str | None, parse: Callable[[object], T], example: str) -> T | None:
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{name} {text}: {error}; expected such as {example}") from error


def _emit(report: FreeReport, error: TsferryError | None) -> None:
    from sender.cli.command_views import FreeShown

    shown: FreeShown = {
        "freed": [
            {"file": each.path.text, "path": str(each.data_dir / each.rel), "size": each.size}
            for each in report.freed
        ],
        "files": len(report.freed),
        "bytes": report.bytes,
        "kept": [{"file": path.text, "reason": why} for path, why in report.kept.items()],
        "error": None,
    }
    if error is not None:
        shown["error"] = {"type": error.slug, "message": error.message}
    emit_json(shown, FreeShown)


def _show(report: FreeReport, *, dry_run: bool) -> None:
    """What came of it, beside the paths: to stderr."""
    done = "would be freed" if dry_run else "freed"
    lines = [
        f"{PROGRAM.name}: {counted(len(report.freed), 'file')} {done} ({size_text(report.bytes)}), "
        f"{len(report.kept)} stay"
    ]
    kept = list(report.kept.items())
    lines += [f"  stays: {path.text}: {why}" for path, why in kept[:_SHOWN]]
    if len(kept) > _SHOWN:
        lines.append(f"  ... and {len(kept) - _SHOWN} more (--json lists them all)")
    click.echo("\n".join(map(printable, lines)), err=True)
