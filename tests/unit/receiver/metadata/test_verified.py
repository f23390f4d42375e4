"""Verifications in logs and checkpoints, and those of before there were any."""

from __future__ import annotations

import msgspec
import pytest

from common.durable import Tree
from receiver.metadata.engine import Engine
from receiver.metadata.log.checkpoints import checkpoints, open_checkpoint, write_checkpoint
from receiver.metadata.log.frames import VERSION, LogReader, encode_log_head
from receiver.metadata.log.segments import segments
from receiver.metadata.model import records
from receiver.metadata.model.errors import NewerLogError
from tests.support.metadata import B, load, path, physical, seen
from tests.support.schema_commits import everything

ONE, TWO = physical(path(), 1), physical(path("2-2-0"), 2)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "schema"


def verified(engine):
    with engine.reading() as state:
        return {
            row.physical: row.verified for row in state.files.values()
        }, state.file_table.verified()


def fill(engine):
    engine.commit([seen()])
    engine.commit([load(manifest=records.ManifestMeta(1, 2)), load(path("2-2-0"), 2)])


def test_a_verification_is_in_the_log_and_in_the_checkpoint(home):
    with Engine.open(home, background=False) as engine:
        fill(engine)
        at = engine.commit([records.FileVerified([ONE])])
    with Engine.open(home, background=False) as engine:
        assert verified(engine) == ({ONE: at, TWO: 0}, 1)
        engine.checkpoint()
        again = engine.commit([records.FileVerified([ONE, TWO])])
    with Engine.open(home, background=False) as engine:
        assert verified(engine) == ({ONE: again, TWO: again}, 2)


def set_versions(home, version):
    """Give every segment the head of an older program; the frames are what they are."""
    with Tree(home) as tree:
        for each in segments(tree):
            file = home / each.name
            content = file.read_bytes()
            with file.open("rb") as opened:
                reader = LogReader(opened.fileno(), "x")
            head = encode_log_head(reader.salt, reader.first_lsn, version=version)
            file.write_bytes(head + content[len(head) :])


def without_news(content):
    """Rows as they were before: without a time of verification and without roots."""
    rows = msgspec.msgpack.decode(content)
    for row in rows:
        del row["verified"]
        if row["manifest"] is not None:
            row["manifest"] = row["manifest"][:2]
    return msgspec.msgpack.encode(rows)


def test_what_was_written_before_there_were_verifications_opens(home):
    with Engine.open(home, background=False) as engine:
        fill(engine)
        engine.checkpoint()
        engine.commit([seen(B)])
        expected = everything(engine)
    set_versions(home, VERSION - 1)
    with Tree(home) as tree:
        (newest, *_) = checkpoints(tree)
        with open_checkpoint(tree, newest) as sections:
            old = {
                name: without_news(content) if name.startswith("files.") else bytes(content)
                for name, content in sections.items()
            }
        write_checkpoint(tree, newest.lsn, old.items())
    with Engine.read_only(home) as engine:
        assert verified(engine) == ({ONE: 0, TWO: 0}, 0)
    with Engine.open(home, background=False) as engine:
        with engine.reading() as state:
            assert state.files[ONE].manifest == records.ManifestMeta(1, 2, "")
            assert state.files[TWO].manifest is None
        assert everything(engine) == expected
        engine.commit([records.FileVerified([TWO])])
    with Engine.open(home, background=False) as engine:
        assert verified(engine)[1] == 1


def test_the_first_release_refuses_a_log_with_what_it_does_not_know_by_its_version(
    home, monkeypatch
):
    """It would call the log damaged, and point to `fsck --repair --cut-log`."""
    with Engine.open(home, background=False) as engine:
        fill(engine)
    set_versions(home, 3)
    with Engine.open(home, background=False) as engine:
        engine.commit([records.ResourceNoted(ONE, records.ResourceMeta(1, "aa" * 16))])
    monkeypatch.setattr("receiver.metadata.log.frames.VERSION", 3)
    with pytest.raises(NewerLogError, match="up to 3"):
        Engine.read_only(home)


def test_an_older_program_refuses_a_log_with_verifications_by_its_version(home, monkeypatch):
    with Engine.open(home, background=False) as engine:
        fill(engine)
    set_versions(home, VERSION - 1)
    with Engine.open(home, background=False) as engine:
        engine.commit([records.FileVerified([ONE])])
    monkeypatch.setattr("receiver.metadata.log.frames.VERSION", VERSION - 1)
    with pytest.raises(NewerLogError, match=f"version {VERSION}"):
        Engine.read_only(home)
