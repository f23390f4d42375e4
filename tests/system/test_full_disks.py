"""Full and read-only disks: a clear word, nothing lost, and it heals without a restart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.support.looking import in_sync, loaded, once
from tests.system.sender.test_rounds import call

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems")

MIB = 1 << 20


@contextmanager
def tmpfs(where: Path, options: str) -> Iterator[Path]:
    """A small file system; what is in `where` already moves into it."""
    where.mkdir(parents=True, exist_ok=True)
    kept = where.with_name(f"{where.name}.kept")
    shutil.copytree(where, kept, symlinks=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip("cannot mount a tmpfs here")
    try:
        shutil.copytree(kept, where, symlinks=True, dirs_exist_ok=True)
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def fill(where: Path, *, leave: int = 0) -> Path:
    """Take all space but `leave` bytes; to be unlinked."""
    filler = where / "filler"
    with open(filler, "wb") as file:
        free = os.statvfs(where).f_bavail * os.statvfs(where).f_frsize - leave
        while free > 0:
            try:
                free -= file.write(bytes(min(free, 65536)))
                file.flush()
            except OSError:
                break
    return filler


def fill_inodes(where: Path) -> Path:
    """Take all inodes; to be removed as a tree."""
    directory = where / "inodes"
    directory.mkdir()
    for number in range(100_000):
        try:
            (directory / str(number)).touch()
        except OSError:
            return directory
    raise AssertionError("there is no end of inodes")


# -- the receiver's ------------------------------------------------------------------------------


@pytest.mark.parametrize("room", ["bytes", "inodes"])
def test_a_full_disk_at_the_receiver_says_try_later_and_heals_without_a_restart(
    centre, make_edge, room
):
    options = "size=6m" if room == "bytes" else "size=64m,nr_inodes=60"
    with tmpfs(centre.data, options):
        url = centre.start()
        edge = make_edge(url, transfer={"chunk_bytes": 65536, "batch_bytes": 4096})
        edge.write(1)
        assert edge.round().exit_code == 0
        filler = fill(centre.data, leave=MIB) if room == "bytes" else fill_inodes(centre.data)
        for number in range(2, 5):
            edge.write(number, size=MIB)
        edge.write(6)
        for _ in range(2):
            report = edge.round()
            assert report.exit_code in (3, 4), report.as_json()
            told = json.dumps(report.as_json())
            assert "space" in told, told
            assert report.seconds < 30
        assert centre.server.running
        there = loaded(centre.root, edge.uuid)
        assert there.items() <= edge.files.items(), "nothing half is visible"
        assert edge.path(1) in there
        filler.unlink() if filler.is_file() else shutil.rmtree(filler)
        report = edge.round()
        assert report.exit_code == 0, report.as_json()
        in_sync(edge, centre.root)
        once(centre.root, edge.uuid)
        assert centre.stop() == 0


def test_a_full_disk_under_the_metadata_makes_a_load_wait_and_heals_without_a_restart(
    centre, make_edge
):
    schema = centre.root / "schema"
    with tmpfs(schema, "size=2m"):
        url = centre.start()
        edge = make_edge(url)
        edge.write(1)
        assert edge.round().exit_code == 0
        patient = edge.config.transfer
        edge.with_settings(transfer=msgspec.structs.replace(patient, load_timeout=2.0))
        filler = fill(schema)
        for number in range(2, 40):
            edge.write(number)
        report = edge.round()
        assert report.exit_code in (3, 4), report.as_json()
        assert list(loaded(centre.root, edge.uuid)) == [edge.path(1)]
        filler.unlink()
        edge.with_settings(transfer=msgspec.structs.replace(patient, load_timeout=60.0))
        report = edge.round()
        assert report.exit_code == 0, report.as_json()
        in_sync(edge, centre.root)
        once(centre.root, edge.uuid)
        assert centre.stop() == 0


def test_space_that_must_stay_free_is_left_free(centre, make_edge):
    with tmpfs(centre.data, "size=8m"):
        text = centre.config.read_text()
        centre.config.write_text(text.replace("min_free_bytes = 0", 'min_free_bytes = "6MiB"'))
        url = centre.start()
        edge = make_edge(url)
        edge.write(1, size=3 * MIB)
        report = edge.round()
        assert report.exit_code in (3, 4), report.as_json()
        assert "space" in json.dumps(report.as_json()), report.as_json()
        free = os.statvfs(centre.data).f_bavail * os.statvfs(centre.data).f_frsize
        assert free >= 6 * MIB - 65536


# -- the sender's --------------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("room", ["bytes", "inodes"])
@pytest.mark.parametrize("disk", ["data", "schema"])
def test_a_full_disk_at_the_sender_gives_a_clear_word_and_heals(shared, make_edge, disk, room):
    edge = make_edge(shared.url)
    edge.write(1)
    options = "size=4m" if room == "bytes" else "size=16m,nr_inodes=60"
    where = getattr(edge, disk)
    with tmpfs(where, options):
        assert edge.round().exit_code == 0
        edge.write(2)
        edge.write(3, size=200_000)
        config = edge.write_config()
        filler = fill(where) if room == "bytes" else fill_inodes(where)
        done = call(config, "--set", "transfer.max_retries=1", "sync", "--json")
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode != 0, done.stdout
        assert "space" in (done.stdout + done.stderr).lower(), done.stdout + done.stderr
        filler.unlink() if filler.is_file() else shutil.rmtree(filler)
        report = edge.round()
        assert report.exit_code == 0, report.as_json()
        in_sync(edge, shared.root)
        once(shared.root, edge.uuid)


@pytest.mark.parametrize("disk", ["data", "schema"])
def test_a_read_only_disk_at_the_sender_gives_a_clear_word_and_heals(shared, make_edge, disk):
    edge = make_edge(shared.url)
    edge.write(1)
    where = getattr(edge, disk)
    with tmpfs(where, "size=4m"):
        edge.write(2)
        config = edge.write_config()
        subprocess.run(["mount", "-o", "remount,ro", str(where)], check=True)
        done = call(config, "--set", "transfer.max_retries=1", "sync")
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode != 0, done.stdout
        assert "is read-only" in done.stdout + done.stderr, done.stdout + done.stderr
        looked = call(config, "status", "--json")
        # That the round ended early is told where it could be noted.
        assert looked.returncode == (3 if disk == "data" else 0), looked.stderr
        assert json.loads(looked.stdout)
        subprocess.run(["mount", "-o", "remount,rw", str(where)], check=True)
        assert edge.round().exit_code == 0
        in_sync(edge, shared.root)
