from __future__ import annotations

import json

from common.console.cli import emit_json
from receiver.operator.views.sender_views import LateView
from receiver.operator.views.status_views import StatusView, StorageView


def test_every_member_is_written_however_deep_it_stands(capsys) -> None:
    """Types of the wire leave out what has its default; a script need not know that."""
    late = (LateView(sender="a" * 32),)
    emit_json(StatusView(engine="e", version="0", newest_commit=1, ready=True, late_senders=late))
    found = json.loads(capsys.readouterr().out)
    assert found["late_senders"] == [
        {"sender": "a" * 32, "label": "", "heard_at": None, "heard_at_iso": None}
    ]
    assert found["retired"]["problem"] is None
    emit_json(StorageView(url=None, upload={"root.a": 0}))
    assert json.loads(capsys.readouterr().out)["upload"] == {"root.a": 0}
