import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.log.journal import JOURNAL, parse_journal
from receiver.metadata.model import records
from tests.support.metadata import A, B, load, path, seen


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "schema"
    with Engine.open(home) as engine:
        engine.commit([seen(), seen(B), load(devices={"root.t.d1": (1, 2), "root.t.d 2": (1, 2)})])
        engine.commit([records.OwnerSet("root.t.d1", B, "moved to the new box")])
        engine.commit([records.OwnerSet("root.t.d 2", None, "released")])
    return home


def lines(home):
    return (home / JOURNAL).read_text().splitlines()[1:]


def owners(home):
    with Engine.read_only(home).reading() as state:
        return {device: row.sender for device, row in state.owners.items()}


def whole(home):
    data = (home / JOURNAL).read_bytes()
    found, good = parse_journal(data)
    assert good == len(data)
    return found


def reopen(home):
    with Engine.open(home):
        pass


def test_each_change_of_ownership_is_a_readable_line(home):
    assert [line.split(" ", 2)[2] for line in lines(home)] == [
        f'"root.t.d1" {A} first load',
        f'"root.t.d 2" {A} first load',
        f'"root.t.d1" {B} moved to the new box',
        '"root.t.d 2" - released',
    ]
    assert whole(home) == owners(home) == {"root.t.d1": B}


def test_a_good_journal_is_left_alone(home):
    before = lines(home)
    reopen(home)
    assert lines(home) == before


def test_the_journal_is_rebuilt_when_it_is_behind(home):
    file = home / JOURNAL
    every = file.read_bytes()
    for cut in range(0, len(every) + 1, 7):
        file.write_bytes(every[:cut])
        reopen(home)
        assert whole(home) == owners(home)
    file.unlink()
    reopen(home)
    assert whole(home) == owners(home)


@pytest.mark.parametrize("at", [0, 10, 75, 120, 200, -2])
@pytest.mark.parametrize("junk", [b"\x00", b"\xff", b"\n", b"{"])
def test_the_journal_is_rebuilt_when_it_is_damaged(home, at, junk):
    file = home / JOURNAL
    data = bytearray(file.read_bytes())
    data[at : at + 1 or None] = junk
    file.write_bytes(bytes(data))
    reopen(home)
    assert whole(home) == owners(home)


def test_sound_history_stays_when_the_end_is_lost(home):
    file = home / JOURNAL
    kept = lines(home)[:3]
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:4]) + b"torn")
    reopen(home)
    assert lines(home)[:3] == kept
    assert lines(home)[3].endswith('"root.t.d 2" - written anew from the engine\'s log')


def test_a_journal_ahead_of_a_restored_log_follows_the_log(home):
    log = home / "mlog-1.tsf"
    old = log.read_bytes()
    with Engine.open(home) as engine:
        engine.commit([load(path("3-3-0"), 3, devices={"root.t.late": (1, 2)})])
    log.write_bytes(old)
    reopen(home)
    assert whole(home) == owners(home) == {"root.t.d1": B}


def test_names_that_forge_lines_or_cursors_are_written_out(home):
    evil = 'root.t."\n2026-01-01T00:00:00+00:00 5 "x" - forged\x1b[2J\u202e'
    with Engine.open(home) as engine:
        engine.commit([load(path("4-4-0"), 4, devices={evil: (1, 2)})])
        engine.commit([records.OwnerSet(evil, B, "why\n\x1b[31m")])
    assert whole(home) == owners(home) == {"root.t.d1": B, evil: B}
    assert all(line.isprintable() for line in lines(home))


def test_a_journal_that_cannot_be_written_stops_no_commit(home, monkeypatch):
    with Engine.open(home) as engine:

        def fail(*_args, **_named):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(engine._journal._file, "write", fail)
        for number in (5, 6):
            name = f"root.t.n{number}"
            engine.commit([load(path(f"{number}-1-0"), number, devices={name: (1, 2)})])
        assert engine.failed is None
    monkeypatch.undo()
    reopen(home)
    assert whole(home) == owners(home)
    assert "root.t.n6" in owners(home)
