from __future__ import annotations

import subprocess
import sys

import pytest

from common.errors import DamagedError, LockedError, UsageError
from common.names import is_sender_uuid
from sender.kept import identity


def test_an_identity_is_made_once_and_stays(tmp_path):
    uuid = identity.create(tmp_path)
    assert is_sender_uuid(uuid)
    assert identity.create(tmp_path) == uuid
    assert identity.read(tmp_path) == uuid


def test_without_an_identity_the_message_names_the_command_that_makes_one(tmp_path):
    with pytest.raises(UsageError, match="tsferry-sender init"):
        identity.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"a45b6e63eb434aad891264b5c08d448",
        b"A45B6E63EB434AAD891264B5C08D448E\n",
        b"a45b6e63eb434aad891264b5c08d448e\na45b6e63eb434aad891264b5c08d448e\n",
        b"\0" * 33,
        b"\xff" * 32,
        b"../../etc/passwd",
    ],
)
def test_a_damaged_identity_is_never_silently_made_anew(tmp_path, content):
    identity.create(tmp_path)
    where = tmp_path / "sync" / "uuid.txt"
    where.write_bytes(content)
    for call in (identity.read, identity.create):
        with pytest.raises(DamagedError, match=r"uuid\.txt is damaged"):
            call(tmp_path)
    assert where.read_bytes() == content


def test_renewing_makes_another_identity(tmp_path):
    before = identity.create(tmp_path)
    after = identity.renew(tmp_path)
    assert after != before
    assert identity.read(tmp_path) == after


def test_renewing_repairs_a_damaged_one(tmp_path):
    identity.create(tmp_path)
    (tmp_path / "sync" / "uuid.txt").write_text("garbage")
    assert identity.renew(tmp_path) == identity.read(tmp_path)


_HOLD = """
import sys
from pathlib import Path
from common.errors import LockedError
from sender.kept import identity
def inner():
    identity.take_lock(Path(sys.argv[1]), "h_1")      # the object goes out of scope at once
try:
    inner()
except LockedError as error:
    print("locked by", error.extra["pid"], flush=True)
    sys.exit(error.exit_code)
print("held", flush=True)
sys.stdin.read()
"""


def _holder(schema_dir):
    return subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(schema_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_lock_outlives_the_scope_it_was_taken_in(tmp_path):
    first = _holder(tmp_path)
    try:
        assert first.stdout.readline() == "held\n"
        second = _holder(tmp_path)
        out, _ = second.communicate(timeout=60)
        assert out == f"locked by {first.pid}\n"
        assert second.returncode == 5
    finally:
        first.communicate()


def test_the_lock_dies_with_its_process_however_it_ends(tmp_path):
    first = _holder(tmp_path)
    assert first.stdout.readline() == "held\n"
    first.kill()
    first.communicate()
    identity.take_lock(tmp_path, "h_1").release()


def test_one_lock_for_each_receiver(tmp_path):
    one = identity.take_lock(tmp_path, "h_1")
    two = identity.take_lock(tmp_path, "h_2")
    with pytest.raises(LockedError):
        identity.take_lock(tmp_path, "h_1")
    one.release()
    identity.take_lock(tmp_path, "h_1").release()
    two.release()
