"""What the server says of a certificate that is past its end."""

from __future__ import annotations

import logging
import time

import msgspec

from receiver.config import ListenConfig
from receiver.web import serving
from tests.support.web import make_certificate


def test_an_expired_certificate_is_never_taken_without_a_word(tmp_path, caplog, monkeypatch):
    cert, key = make_certificate(tmp_path, "localhost")
    listen = msgspec.structs.replace(ListenConfig(), tls_cert=cert, tls_key=key)
    caplog.set_level(logging.INFO)
    context = serving._tls(listen)
    serving._reload(context, listen)
    assert "ended on" not in caplog.text
    assert "read again" in caplog.text
    later = time.time() + 10 * 86400
    monkeypatch.setattr(time, "time", lambda: later)
    caplog.clear()
    assert serving._tls(listen) is not None
    assert "ended on" in caplog.text
    caplog.clear()
    serving._reload(context, listen)
    assert "ended on" in caplog.text
    assert "read again" not in caplog.text
