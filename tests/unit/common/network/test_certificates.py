from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from common.network.certificates import CertificateFile, end_of, is_exchanged, note_in_use
from tests.support.web import make_certificate

DAY = 86400.0


def made(directory: Path, days: int) -> bytes:
    cert = directory / f"{days}.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", str(days), "-subj", "/O=a long name/CN=x", "-keyout", "/dev/null"),
            *("-out", cert),
        ],
        check=True,
        capture_output=True,
    )
    return cert.read_bytes()


@pytest.mark.parametrize("days", [2, 20_000])
def test_the_end_is_read_in_both_forms_of_time(tmp_path: Path, days: int) -> None:
    """From 2050 on it is another type (RFC 5280, 4.1.2.5)."""
    assert abs(end_of(made(tmp_path, days)) - time.time() - days * DAY) < 60


def test_of_a_chain_the_first_end_counts(tmp_path: Path) -> None:
    chain = made(tmp_path, 90) + b"between\n" + made(tmp_path, 10)
    assert abs(end_of(chain) - time.time() - 10 * DAY) < 60


def test_a_file_that_was_renewed_is_read_again(tmp_path: Path) -> None:
    cert, _ = make_certificate(tmp_path, "127.0.0.1")
    file = CertificateFile(cert)
    assert abs((file.until() or 0) - time.time() - 2 * DAY) < 60
    cert.write_bytes(made(tmp_path, 90))
    assert abs((file.until() or 0) - time.time() - 90 * DAY) < 60
    cert.unlink()
    assert file.until() is None
    assert CertificateFile(None).until() is None


def test_what_is_in_use_counts_until_what_was_exchanged_is_read(tmp_path: Path) -> None:
    cert, _ = make_certificate(tmp_path, "127.0.0.1")
    file = CertificateFile(cert)
    note_in_use({cert: cert.read_bytes()})
    assert not is_exchanged(cert)
    cert.write_bytes(made(tmp_path, 90))
    assert is_exchanged(cert)
    assert abs((file.until() or 0) - time.time() - 2 * DAY) < 60
    note_in_use({cert: cert.read_bytes()})
    assert not is_exchanged(cert)
    assert abs((file.until() or 0) - time.time() - 90 * DAY) < 60
    cert.unlink()
    assert is_exchanged(cert)
    assert not any(map(is_exchanged, (None, tmp_path / "of nobody")))


def test_what_is_damaged_is_refused_and_never_read_past_its_end(tmp_path: Path) -> None:
    pem = made(tmp_path, 2)
    for bad in (b"", b"no certificate", pem.replace(b"MII", b"AAA"), pem.replace(b"M", b"x")):
        with pytest.raises(ValueError, match=r".+"):
            end_of(bad)
    lines = pem.splitlines(keepends=True)
    for last in range(1, len(lines) - 1):
        cut = b"".join(lines[:last]) + lines[-1]
        with pytest.raises(ValueError, match=r".+"):
            end_of(cut)
