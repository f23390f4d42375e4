import pytest

from common.errors import DamagedError, LockedError, NotFoundError
from receiver.metadata import repair
from receiver.metadata.engine import Engine
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.repair import bad_tags, cut, mend_tags, put_aside, report
from tests.support.metadata import A, B, log_file, plain, seen
from tests.support.schema_commits import HISTORY, everything

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


# -- segments, checkpoints, tlog -------------------------------------------------------------------


@pytest.fixture
def large(tmp_path):
    """A directory with two checkpoints, of which the log alone is not enough."""
    home = tmp_path / "large"
    with Engine.open(home, options=EngineOptions(history=0.0), background=False) as engine:
        for number, ops in enumerate(HISTORY):
            engine.commit(ops)
            if number in (1, 3, 6):
                engine.collect()
                engine.checkpoint()
    return home


def names(found):
    return [each.name for each in found.damages]


def looked_at(home):
    with Engine.read_only(home) as engine:
        return everything(engine)


def test_sound_files_have_nothing_to_repair(large):
    found = report(large)
    assert (found.problem, found.damages, found.commits) == (None, [], 10)
    assert cut(large) is None


def test_a_checkpoint_that_a_running_server_takes_meanwhile_is_no_damage(large, monkeypatch):
    real, moved = repair.open_checkpoint, []

    def late(tree, wanted):
        if not moved:
            moved.append(True)
            with Engine.open(large, options=EngineOptions(history=0.0), background=False) as engine:
                engine.commit([seen(label="meanwhile")])
                engine.checkpoint()
                engine.commit([seen(label="again")])
                engine.checkpoint()
        return real(tree, wanted)

    monkeypatch.setattr(repair, "open_checkpoint", late)
    found = report(large)
    assert (found.problem, found.damages, found.commits) == (None, [], 12)


def test_a_damaged_checkpoint_is_reported_with_what_stands_in(large):
    (large / "mtree.snapshot-8.tsf").write_bytes(b"x" * 1000)
    found = report(large)
    assert found.problem is None
    assert names(found) == ["mtree.snapshot-8.tsf"]
    assert "stands in" in found.damages[0].remedy
    assert found.commits == 10
    assert cut(large) is None, "the next start does it"


def test_a_damaged_older_checkpoint_is_found_before_it_is_needed(large):
    (large / "mtree.snapshot-5.tsf").write_bytes(b"x" * 1000)
    looked_at(large)
    assert names(report(large)) == ["mtree.snapshot-5.tsf"]
    assert put_aside(large, "mtree.snapshot-5.tsf")
    assert not put_aside(large, "mtree.snapshot-5.tsf")
    assert report(large).damages == []
    assert (large / "mtree.snapshot-5.tsf.damaged").exists()


def test_a_damaged_segment_that_a_checkpoint_stands_for_is_reported(large):
    first = min(large.glob("mlog-*"), key=lambda each: int(each.stem[5:]))
    content = bytearray(first.read_bytes())
    content[60] ^= 1
    first.write_bytes(bytes(content))
    found = report(large)
    assert found.problem is None
    assert names(found) == [first.name]
    assert "the checkpoint stands for it" in found.damages[0].remedy
    expected = looked_at(large)
    assert put_aside(large, first.name)
    assert report(large).damages == []
    assert looked_at(large) == expected


def test_cutting_the_last_segment_keeps_the_checkpoint_and_what_is_sound(large):
    last = max(large.glob("mlog-*"), key=lambda each: int(each.stem[5:]))
    content = bytearray(last.read_bytes())
    content[60] ^= 1
    last.write_bytes(bytes(content))
    with pytest.raises(DamagedError, match=last.name):
        Engine.open(large)
    found = report(large)
    assert (found.commits, found.offset) == (8, 40)
    assert len(found.behind) == 1
    kept = cut(large)
    assert (large / kept).read_bytes() == bytes(content[40:])
    with Engine.open(large, background=False) as engine:
        assert engine._window.lsn == 8
        engine.commit([seen(label="on")])
        engine.checkpoint()
        expected = everything(engine)
    assert looked_at(large) == expected
    assert report(large).problem is None


def test_a_segment_whose_head_is_damaged_is_put_aside(large):
    last = max(large.glob("mlog-*"), key=lambda each: int(each.stem[5:]))
    content = last.read_bytes()
    last.write_bytes(b"x" + content[1:])
    assert report(large).problem
    kept = cut(large)
    assert (large / kept).read_bytes() == b"x" + content[1:]
    with Engine.open(large, background=False) as engine:
        assert engine._window.lsn == 8
        engine.commit([seen(label="on")])
        expected = everything(engine)
    assert looked_at(large) == expected


def test_a_segment_that_is_gone_can_be_given_up(large):
    last = max(large.glob("mlog-*"), key=lambda each: int(each.stem[5:]))
    last.unlink()
    with pytest.raises(DamagedError, match=f"{last.name} is gone"):
        Engine.open(large)
    assert f"{last.name} is gone" in report(large).problem
    cut(large)
    with Engine.open(large, background=False) as engine:
        assert engine._window.lsn == 8
        engine.commit([seen(label="on")])
    assert report(large).problem is None


def test_damage_to_both_checkpoints_is_beyond_cutting(large):
    for each in large.glob("mtree*"):
        each.write_bytes(b"bad")
    found = report(large)
    assert "is needed" in found.problem
    assert sorted(names(found)) == ["mtree.snapshot-5.tsf", "mtree.snapshot-8.tsf"]
    with pytest.raises(DamagedError, match="nothing sound"):
        cut(large)
    assert sorted(each.read_bytes() for each in large.glob("mtree*")) == [b"bad", b"bad"]


@pytest.mark.parametrize("left", [0, 30, 24, None])
def test_a_lost_tlog_costs_the_attributes_and_no_tags(large, left):
    """The index knows the tags; what is lost is named."""
    expected = looked_at(large)["schema"]["series"]
    tlog = large / "tlog-1.tsf"
    content = tlog.read_bytes()
    if left is None:
        tlog.unlink()
    else:
        tlog.write_bytes(content[:left])
    with pytest.raises(DamagedError, match=r"tlog-1\.tsf"):
        Engine.open(large)
    found = report(large)
    assert "tlog-1.tsf" in found.problem
    cut(large)
    with Engine.open(large, background=False) as engine:
        bad = list(bad_tags(engine))
        assert bad
        assert mend_tags(engine) == bad
        assert list(bad_tags(engine)) == []
        after = everything(engine)["schema"]["series"]
    assert {path: row["labels"][0] for path, row in after.items()} == {
        path: row["labels"][0] for path, row in expected.items()
    }
    assert looked_at(large)["schema"]["series"] == after
    assert report(large).damages == []


def test_a_flipped_bit_in_the_tlog_is_found_with_the_series(large):
    tlog = large / "tlog-1.tsf"
    content = bytearray(tlog.read_bytes())
    content[40] ^= 1
    tlog.write_bytes(bytes(content))
    with Engine.read_only(large) as engine:
        assert len(list(bad_tags(engine))) <= 1
