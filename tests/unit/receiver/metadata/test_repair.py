import pytest

from common.errors import DamagedError, LockedError, NotFoundError
from receiver.metadata.engine import Engine
from receiver.metadata.repair import cut, report
from tests.support.metadata import A, B, log_file, plain, seen

C = "cc" * 16


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "schema"
    with Engine.open(home) as engine:
        engine.ends = [log_file(home).stat().st_size]
        for sender in (A, B, C):
            engine.commit([seen(sender)])
            engine.ends.append(log_file(home).stat().st_size)
    home_ends[home] = engine.ends
    return home


home_ends: dict = {}


def damage(home, at):
    content = bytearray(log_file(home).read_bytes())
    content[at] ^= 0x10
    log_file(home).write_bytes(bytes(content))


def test_a_sound_log_has_nothing_to_repair(home):
    found = report(home)
    assert (found.problem, found.commits, found.torn) == (None, 4, 0)
    assert cut(home) is None


def test_a_torn_tail_is_reported_and_is_no_damage(home):
    log_file(home).write_bytes(log_file(home).read_bytes()[:-1])
    found = report(home)
    assert found.problem is None
    assert found.torn == home_ends[home][3] - home_ends[home][2] - 1


def test_the_report_says_what_can_be_saved(home):
    ends = home_ends[home]
    damage(home, ends[1] + 40)
    found = report(home)
    assert found.offset == ends[1]
    assert f"offset {ends[1]}" in found.problem
    assert found.commits == 2
    assert set(found.state.senders) == {A}
    assert [at for at, _, _ in found.behind] == [ends[2]]
    with pytest.raises(DamagedError):
        Engine.open(home)


def test_cutting_is_explicit_and_keeps_what_it_cuts(home):
    ends = home_ends[home]
    damage(home, ends[2] + 40)
    content = log_file(home).read_bytes()
    with pytest.raises(DamagedError, match="written to its end"):
        Engine.open(home)
    kept = cut(home)
    assert (home / kept).read_bytes() == content[ends[2] :]
    with Engine.open(home) as engine:
        with engine.reading() as state:
            assert set(plain(state)["senders"]) == {A, B}
        engine.commit([seen(C)])
    assert report(home).problem is None


def test_a_log_beyond_saving_is_not_touched(home):
    damage(home, 50)
    content = log_file(home).read_bytes()
    with pytest.raises(DamagedError, match="nothing sound"):
        cut(home)
    assert log_file(home).read_bytes() == content


def test_no_repair_beside_a_running_server(home):
    with Engine.open(home), pytest.raises(LockedError):
        cut(home)


def test_a_report_needs_a_log(tmp_path):
    with pytest.raises(NotFoundError):
        report(tmp_path)
