"""The digest of the tail."""

from __future__ import annotations

import os

import pytest
import xxhash

from common.tsfile.tail_digest import tail_digest
from tests.support.tsfile_bytes import SAMPLE, build


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
def test_the_tail_digest_is_xxh3_128_of_the_last_64_kib(size, tmp_path):
    content = os.urandom(size)
    path = tmp_path / "a"
    path.write_bytes(content)
    expected = xxhash.xxh3_128(content[-65_536:] if size else b"").hexdigest()
    assert tail_digest(path) == tail_digest(content) == expected
    assert len(expected) == 32


def test_the_tail_digest_tells_files_of_other_values_apart():
    one = build({"root.sg.d1": {"s": [(1, 1.0), (2, 2.0)]}})
    other = build({"root.sg.d1": {"s": [(1, 1.0), (2, 3.0)]}})
    assert len(one) == len(other)
    assert tail_digest(one) != tail_digest(other)
    assert tail_digest(build(SAMPLE)) == tail_digest(build(SAMPLE))
