"""Each statement of docs/sql.md gives the answer that the page shows."""

from __future__ import annotations

import io
import re
import socket
import threading
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.config import load
from common.console.cli import run
from common.errors import TsferryError
from receiver.cli.commands import cli
from receiver.cli.shell.sqlformat import output
from receiver.cli.shell.sqlsource import SqlSource
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.metadata.sql.parser import parse
from receiver.metadata.sql.statements import Statement
from receiver.web import serving
from tests.support.architecture import ROOT
from tests.support.tsfile_bytes import build
from tests.support.web import BOUND

PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
PROMPT = "tsferry> "
OFFERED = "/srv/offered"
DATA = "/var/lib/tsferry/data"
HOST = "dc"
DIFFERS = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00", "TIME"),
    (r"\b[0-9a-f]{32}\b", "UUID"),
    # Before numbers: now and then one has no letter in it.
    (r"\b[0-9a-f]{13}-0000000-may\.[0-9a-f]{16}\b", "PHYSICAL"),
    (r"\b[0-9a-f]{13}-0000000-may\b", "OFFERED"),
    (r"\b\d{15,20}\b", "COMMIT"),
    (r"\b\d+\.\d{1,3}\b", "SECONDS"),
    (r"-{2,}", "--"),
    (r" +", " "),
)
"""What is another each time, and how wide columns are for it."""


def exchanges() -> list[tuple[str, str]]:
    """The statements of the page that have an answer, and that."""
    found = []
    block = PAGE[PAGE.index(PROMPT) :].partition("\n```")[0]
    for each in block.split(PROMPT)[1:]:
        statement, _, answer = each.partition("\n")
        found.append((statement, answer.rstrip()))
    return found


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ReceiverConfig:
    monkeypatch.chdir(tmp_path)
    assert run(cli, "tsferry-receiver", ["--config", "receiver.toml", "init"]) == 0
    (tmp_path / "offered").mkdir()
    points = [(1_778_000_000_000 + each * 1000, each) for each in range(10)]
    offered = build({"root.wind.t3": {"speed": points}})
    (tmp_path / "offered" / "may.tsfile").write_bytes(offered)
    found = load(
        ReceiverConfig, file=tmp_path / "receiver.toml", env_prefix=ENV_PREFIX, environ={}, flags={}
    ).value
    return msgspec.structs.replace(
        found,
        limits=msgspec.structs.replace(found.limits, min_free_bytes=0),
        listen=msgspec.structs.replace(found.listen, port=0),
        load=msgspec.structs.replace(found.load, paths=[tmp_path / "offered"]),
    )


@pytest.fixture
def source(config: ReceiverConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlSource]:
    """A centre that serves."""
    servers: list[serving.Server] = []

    class Kept(serving.Server):
        def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
            super().__init__(*args, **kwargs)
            servers.append(self)

    monkeypatch.setattr(serving, "Server", Kept)
    ready = threading.Event()
    thread = threading.Thread(
        target=serving.serve, args=(config,), kwargs={"ready": lambda url: ready.set()}
    )
    thread.start()
    assert ready.wait(BOUND)
    found = SqlSource(config)
    yield found
    found.close()
    servers[-1].stop(2)
    thread.join(BOUND)


def answer(source: SqlSource, statement: str) -> str:
    said = io.StringIO()
    try:
        reply = source.run(statement)
        out = output("table", said, reply.times)
        if reply.message is not None:
            out.done(reply.message, reply.commit)
        else:
            out.begin(reply.columns)
            for page in reply.pages:
                out.page(page)
    except TsferryError as error:
        return f"error: {error.message}"
    return said.getvalue().rstrip()


def masked(text: str) -> str:
    for pattern, name in DIFFERS:
        text = re.sub(pattern, name, text)
    return "\n".join(line.rstrip() for line in text.split("\n"))


@pytest.mark.slow
def test_each_statement_gives_the_answer_that_the_page_shows(
    source: SqlSource, tmp_path: Path
) -> None:
    here = {OFFERED: f"{tmp_path}/offered", DATA: f"{tmp_path}/data", f" {HOST} ": f" {host()} "}
    wrong = []
    for statement, shown in exchanges():
        typed, expected = statement, shown
        for of_page, of_ours in here.items():
            typed, expected = (each.replace(of_page, of_ours) for each in (typed, expected))
        said = masked(answer(source, typed))
        if said != masked(expected):
            wrong.append(f"{statement}\nsays\n{said}\nand the page\n{masked(expected)}\n")
    assert not wrong, "\n".join(wrong)


def host() -> str:
    return socket.gethostname()


def kinds(of: typing.Any) -> Iterator[type]:
    if isinstance(of, types.UnionType) or typing.get_origin(of) is typing.Union:
        for each in typing.get_args(of):
            yield from kinds(each)
    else:
        yield of


def test_each_kind_of_statement_is_among_them() -> None:
    shown = {type(parse(statement)) for statement, _ in exchanges()}
    assert [each.__name__ for each in kinds(Statement) if each not in shown] == []


def test_a_faulty_statement_is_told_as_the_page_shows() -> None:
    block = PAGE.partition("what was expected:\n\n```\n")[2].partition("\n```")[0]
    statement, mark, told = block.split("\n")
    with pytest.raises(TsferryError) as raised:
        parse(statement)
    assert told == f"tsferry-receiver: error: {raised.value.message}"
    assert mark == " " * (int(str(raised.value.extra["column"])) - 1) + "^"
