"""The order of system calls behind each promise, which a power cut on ext4 would not all show."""

from __future__ import annotations

import pytest

from tests.support import trace


def steps(run, root):
    """The calls that change something, with the tree's own path left out of what they touch."""
    found = []
    for call in run.calls:
        if str(root) not in call.arguments:
            continue
        if call.name in ("openat", "openat2") and "O_CREAT" not in call.arguments:
            continue
        if call.result.startswith("-1 EEXIST"):
            continue
        assert not call.result.startswith("-1"), call
        target = call.arguments.split("<")[1].split(">")[0]
        found.append((call.name, shortened(target.removeprefix(str(root)).lstrip("/"))))
    return found


def shortened(rel):
    name = rel.rpartition("/")[2]
    return rel.removesuffix(name) + "TMP" if name.endswith(".tmp") else rel


ORDER = {
    "write_atomic": (
        "tree.write_atomic('d/x', b'1')",
        [
            ("openat2", "d"),
            ("pwrite64", "d/TMP"),
            ("fsync", "d/TMP"),
            ("renameat", "d"),
            ("fsync", "d"),
        ],
    ),
    "append": (
        "log.append(b'1'), log.append(b'2')",
        [("write", "log"), ("fdatasync", "log")] * 2,
    ),
    "append_file": (
        "tree.append_file('d/log')",
        [("openat2", ""), ("fsync", "d/log"), ("fsync", "d")],
    ),
    "truncate": ("log.truncate(1)", [("ftruncate", "log"), ("fsync", "log")]),
    "make_dirs": (
        "tree.make_dirs('d/e/f')",
        [("fsync", ""), ("mkdirat", "d"), ("fsync", "d"), ("mkdirat", "d/e"), ("fsync", "d/e")],
    ),
    "rename": ("tree.rename('x', 'd/y')", [("renameat", ""), ("fsync", "d"), ("fsync", "")]),
    "exclusive rename": (
        "tree.rename('x', 'd/y', replace=False)",
        [("renameat2", ""), ("fsync", "d"), ("fsync", "")],
    ),
    "link": ("tree.link('x', 'd/y')", [("linkat", ""), ("fsync", "d")]),
    "copy": (
        "tree.copy('x', 'd/y')",
        [
            ("openat2", "d"),
            ("pwrite64", "d/TMP"),
            ("fsync", "d/TMP"),
            ("renameat2", "d"),
            ("fsync", "d"),
        ],
    ),
    "unlink": ("tree.unlink('x')", [("unlinkat", ""), ("fsync", "")]),
    "remove_empty": ("tree.remove_empty('d')", [("unlinkat", ""), ("fsync", "")]),
}


@pytest.mark.parametrize("what", ORDER)
def test_each_step_is_on_the_disk_before_the_next(tmp_path, what):
    operation, expected = ORDER[what]
    (tmp_path / "d").mkdir()
    (tmp_path / "x").write_bytes(b"old")
    (tmp_path / "log").write_bytes(b"old")
    opened = "log = tree.append_file('log', settled=True)\n" if "log." in operation else ""
    run = trace.run(f"{opened}attempt('it', lambda: ({operation}))", tmp_path)
    assert run.outcome("it") == "done", run
    found = steps(run, tmp_path)
    assert [name.replace("openat2", "openat") for name, _ in found] == [
        name.replace("openat2", "openat") for name, _ in expected
    ]
    for (name, target), (_, wanted) in zip(found, expected, strict=True):
        if name != "openat":  # the fallback opens by components
            assert target == wanted, found


def test_an_append_that_failed_is_cut_back_for_good(tmp_path):
    """Or a power cut could bring back what was reported as failed."""
    (tmp_path / "log").write_bytes(b"old")
    program = "log = tree.append_file('log', settled=True)\nattempt('it', lambda: log.append(b'1'))"
    run = trace.run(program, tmp_path, inject="fdatasync:error=ENOSPC:when=1")
    assert run.outcome("it") == "NoSpaceError", run
    of_log = [call.name for call in run.calls if f"<{tmp_path}/log>" in call.arguments]
    assert of_log == ["write", "fdatasync", "ftruncate", "fsync"]
