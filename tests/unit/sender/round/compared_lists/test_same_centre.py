"""A centre is known by its engine: under another name nothing of what is remembered is lost."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from common import crash
from common.crash import SimulatedCrash
from common.durable import tree
from common.errors import LockedError
from sender.config import ReceiverEntry
from sender.kept.identity import take_lock
from sender.round.look import dry_run, standing
from sender.select.data_dirs import mark
from sender.send.remote import Remote
from tests.support.edge import Edge
from tests.support.scripted_receiver import ScriptedReceiver

SEVERAL = 3
"""Data directories of the edge."""


class Site(Edge):
    """An edge with several data directories and a file in each, all loaded."""

    def __init__(self, root, receiver) -> None:
        super().__init__(root, receiver.url)
        self.receiver = receiver
        self.roots = [self.data]
        for number in range(1, SEVERAL):
            more = root / f"data{number}"
            more.mkdir()
            mark(more, self.uuid)
            self.roots.append(more)
        self.with_settings(data_dirs=tuple(self.roots))
        self.put_files(range(SEVERAL))

    def put_files(self, numbers) -> None:
        for number in numbers:
            self.data = self.roots[number % SEVERAL]
            self.write(number)

    def named(self, *hosts: str, port: int | None = None) -> None:
        """The configured names of the centre."""
        port = port or self.receiver.port
        self.with_settings(
            receivers=tuple(ReceiverEntry(name=host, url=f"http://{host}:{port}") for host in hosts)
        )

    def state(self, endpoint: str) -> dict[str, bytes]:
        """What is remembered under a name, in all directories."""
        folders = [self.schema / "sync" / endpoint]
        folders += [each / "sync-sender" / endpoint for each in self.roots]
        return {
            str(file.relative_to(folder)) + f" {number}": file.read_bytes()
            for number, folder in enumerate(folders)
            for file in folder.rglob("*")
            if file.is_file() and file.suffix != ".lock"
        }

    def listed_in_all(self) -> list[str]:
        """What the lists of all directories say."""
        found = (each.glob("sync-sender/*/last_local_files.txt") for each in self.roots)
        return sorted(
            line for files in found for each in files for line in each.read_text().splitlines()
        )

    def remote_to(self, number: int) -> Remote:
        """To one of several receivers."""
        return Remote.make(self.config, self.config.receivers[number], self.uuid, self.stop)

    def unmounted(self, number: int):
        """Take a data directory away; returns what brings it back."""
        away = self.root / "away"
        self.roots[number].rename(away)
        self.roots[number].mkdir()

        def back() -> None:
            self.roots[number].rmdir()
            away.rename(self.roots[number])

        return back


@pytest.fixture
def site(receiver, tmp_path):
    made = Site(tmp_path / "edge", receiver)
    assert made.round().exit_code == 0
    return made


def names(receiver) -> tuple[str, str]:
    return f"127.0.0.1_{receiver.port}", f"localhost_{receiver.port}"


def nothing_travels(site: Site, receiver) -> None:
    plans, inventories = len(receiver.plans), receiver.count("GET /inventory")
    report = site.round()
    assert (report.error, report.sent, report.deleted) == (None, 0, 0)
    assert len(receiver.plans) == plans
    assert receiver.count("GET /inventory") == inventories


def test_under_another_name_no_file_travels_and_nothing_is_compared(site, receiver):
    old, new = names(receiver)
    before = site.state(old)
    site.named("localhost")
    nothing_travels(site, receiver)
    now = site.state(new)
    assert {key: now[key] for key in before if not key.startswith("rec")} == {
        key: value for key, value in before.items() if not key.startswith("rec")
    }
    assert site.state(old) == {}
    site.put_files([5])
    assert site.round().sent == 1
    site.named("127.0.0.1")
    nothing_travels(site, receiver)


def test_a_round_that_failed_under_the_new_name_changes_nothing(site, receiver):
    site.named("localhost", port=1)
    assert site.round().error is not None
    site.named("localhost")
    nothing_travels(site, receiver)


def test_a_task_that_was_cut_off_goes_on_under_another_name(site, receiver):
    site.put_files(range(10, 10 + SEVERAL))
    die_at(site, "task.ended")
    gone = site.roots[1] / "sequence"
    shutil.rmtree(gone)
    site.named("localhost")
    report = site.round()
    assert (report.error, len(report.tasks), report.sent) == (None, 1, SEVERAL)
    assert site.path(10) in receiver.loaded
    assert site.path(11) in receiver.loaded, "its last copy was a link"


def test_looking_sees_what_a_round_would_take_over_and_renames_nothing(site, receiver):
    old, new = names(receiver)
    site.put_files([7])
    before = site.state(old)
    site.named("localhost")
    remote = site.remote()
    ahead, stands = dry_run(remote, accept_source=False), standing(remote)
    remote.close()
    assert [each["file"] for task in ahead["tasks"] for each in task["additions"]] == [site.path(7)]
    assert (stands.listed, stands.pending_files, stands.doubts) == (SEVERAL, 1, ())
    assert stands.last_task is not None
    assert stands.problem is None
    assert site.state(old) == before
    assert site.state(new) == {}


def test_a_data_directory_that_is_away_is_caught_up_later(site, receiver):
    old, new = names(receiver)
    back = site.unmounted(1)
    site.named("localhost")
    nothing_travels(site, receiver)
    assert (site.schema / "sync" / new / "takeover.json").exists()
    back()
    remote = site.remote()
    stands = standing(remote)
    assert (stands.listed, stands.doubts) == (SEVERAL, ())
    assert dry_run(remote, accept_source=False)["tasks"] == []
    remote.close()
    nothing_travels(site, receiver)
    assert site.state(old) == {}
    assert not (site.schema / "sync" / new / "takeover.json").exists()


def test_a_name_that_changes_twice_while_a_directory_is_away_loses_no_list(site, receiver):
    other, _ = names(receiver)
    back = site.unmounted(2)
    site.named("localhost")
    nothing_travels(site, receiver)
    site.named("127.0.0.1")
    nothing_travels(site, receiver)
    back()
    nothing_travels(site, receiver)
    assert len(site.listed_in_all()) == SEVERAL
    assert site.state(names(receiver)[1]) == {}
    assert not (site.schema / "sync" / other / "takeover.json").exists()


def test_what_the_new_name_has_of_another_engine_is_kept_for_when_it_answers_again(site, receiver):
    old, new = names(receiver)
    with ScriptedReceiver(engine="f" * 32) as other:
        site.named("localhost", port=other.port)
        assert site.round().sent == SEVERAL
        there = f"localhost_{other.port}"
        for parent in (site.schema / "sync", *(each / "sync-sender" for each in site.roots)):
            (parent / there).rename(parent / new)  # this name meant the other centre
        site.named("localhost")
        nothing_travels(site, receiver)
        assert site.state(old) == {}
        assert json.loads(site.state(f"{new}.{'f' * 32}")["receiver.json 0"])["engine"] == "f" * 32
        site.named("127.0.0.1", port=other.port)
        nothing_travels(site, other)


def test_two_configured_names_of_one_centre_are_an_error_that_says_so(site, receiver):
    site.named("127.0.0.1", "localhost")
    remotes = [site.remote_to(number) for number in range(2)]
    assert site.round().error is None
    site.with_settings(receivers=site.config.receivers[::-1])
    before = site.state(names(receiver)[0])
    error = site.round().error
    assert error is not None
    assert "one centre" in error.message
    assert "localhost" in error.message
    stands = [standing(remote).problem for remote in remotes]
    assert stands[0] is None
    assert site.state(names(receiver)[0]) == before
    for remote in remotes:
        remote.close()
    site.with_settings(receivers=site.config.receivers[:1])
    nothing_travels(site, receiver)


def test_two_new_names_of_one_centre_are_an_error_too(receiver, tmp_path):
    site = Site(tmp_path / "edge", receiver)
    site.named("127.0.0.1", "localhost")
    assert site.round().error is None
    site.with_settings(receivers=site.config.receivers[::-1])
    error = site.round().error
    assert error is not None
    assert "one centre" in error.message
    assert site.state(names(receiver)[1]).keys() <= {"receiver.json 0"}


def test_a_folder_that_another_process_works_in_is_not_taken(site, receiver):
    old, _ = names(receiver)
    before = site.state(old)
    lock = take_lock(site.schema, old)
    site.named("localhost")
    assert isinstance(site.round().error, LockedError)
    assert site.state(old) == before
    lock.release()
    nothing_travels(site, receiver)


def test_lists_whose_memory_was_lost_are_not_those_of_an_older_name(site, receiver):
    """They are newer than what an earlier version left under the old name."""
    old, new = names(receiver)
    for parent in (site.schema / "sync", *(each / "sync-sender" for each in site.roots)):
        shutil.copytree(parent / old, parent / new)
    (site.schema / "sync" / new / "receiver.json").unlink()
    before = site.state(old)
    site.named("localhost")
    site.round()
    assert site.state(old) == before


# -- deaths --------------------------------------------------------------------------------------

POINTS = [
    ("takeover.begun", 1),
    ("takeover.memory_renamed", 1),
    ("takeover.memory_flushed", 1),
    *(("takeover.lists_renamed", number) for number in range(1, SEVERAL + 1)),
    ("takeover.recorded", 1),
]


def die_at(site: Site, point: str, passage: int = 1) -> None:
    passages: Counter[str] = Counter()

    def hook(here: str) -> None:
        passages[here] += 1
        if here == point and passages[here] == passage:
            raise SimulatedCrash(here)

    with pytest.raises(SimulatedCrash), crash.arm(hook):
        site.round()


def test_the_list_of_points_is_whole(site, receiver):
    seen: Counter[str] = Counter()
    site.named("localhost")
    with crash.arm(lambda here: seen.update([here])):
        site.round()
    ours = {point: times for point, times in seen.items() if point.startswith("takeover.")}
    assert ours == Counter(point for point, _ in POINTS)


@pytest.mark.few(11)
@pytest.mark.parametrize("then", ["localhost", "127.0.0.1", "ip6-localhost"])
@pytest.mark.parametrize(("point", "passage"), POINTS)
def test_a_death_at_any_step_is_finished_at_the_next_start(site, receiver, point, passage, then):
    """Under the new name, under the old one again, or under a third."""
    site.named("localhost")
    die_at(site, point, passage)
    site.named("localhost" if then == "ip6-localhost" else then)
    if then == "ip6-localhost":
        die_at_if_reached(site, "takeover.recorded")
        site.named("127.0.0.1")
    remote = site.remote()
    if then == "localhost":
        stands = standing(remote)
        assert (stands.listed, stands.doubts) == (SEVERAL, ())
    remote.close()
    nothing_travels(site, receiver)
    assert len(site.listed_in_all()) == SEVERAL
    site.put_files([9])
    assert site.round().sent == 1


def steps(site: Site, monkeypatch) -> list[str]:
    """The steps of a takeover in a round, and the directories that are flushed between them."""
    found: list[str] = []
    flush_names = tree.flush_names

    def flushed(fd: int, what: str) -> None:
        flush_names(fd, what)
        found.append(str(Path(f"/proc/self/fd/{fd}").readlink().relative_to(site.root)))

    with monkeypatch.context() as patched, crash.arm(found.append):
        patched.setattr(tree, "flush_names", flushed)
        site.round()
    return found


def test_what_is_renamed_is_on_the_disk_before_it_counts_as_done(site, receiver, monkeypatch):
    old, new = names(receiver)
    site.named("localhost")
    found = steps(site, monkeypatch)
    moved, flushed = map(found.index, ("takeover.memory_renamed", "takeover.memory_flushed"))
    assert {f"schema/sync/{old}", f"schema/sync/{new}"} <= set(found[moved:flushed])
    lists = found[flushed : found.index("takeover.recorded")]
    for each in site.roots:
        assert f"{each.name}/sync-sender" in lists


def test_what_a_killed_process_renamed_is_on_the_disk_before_it_counts_as_done(
    site, receiver, monkeypatch
):
    _, new = names(receiver)
    site.named("localhost")
    die_at(site, "takeover.begun")
    before = steps(site, monkeypatch)
    assert f"schema/sync/{new}" in before[: before.index("takeover.memory_renamed")]


def test_lists_that_a_killed_process_renamed_are_flushed(site, receiver, monkeypatch):
    site.named("localhost")
    die_at(site, "takeover.lists_renamed", SEVERAL)
    found = steps(site, monkeypatch)
    lists = found[: found.index("takeover.recorded")]
    assert {f"{each.name}/sync-sender" for each in site.roots} <= set(lists)


def die_at_if_reached(site: Site, point: str) -> None:
    with contextlib.suppress(SimulatedCrash, pytest.fail.Exception):
        die_at(site, point)
