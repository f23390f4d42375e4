"""Writes the tables of docs/hooks.md from the types of events; a test holds that they agree.

python scripts/hooks_page.py
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from common.hooks import event_content  # noqa: E402
from common.hooks.hook_event import EventKind, HookEvent, HookSource  # noqa: E402
from scripts.json_page import members  # noqa: E402

PAGE = ROOT / "docs" / "hooks.md"
CONTENT: Mapping[EventKind, type[msgspec.Struct]] = {
    "round": event_content.RoundEnded,
    "loaded": event_content.FilesLoadedEvent,
    "conflict": event_content.FilesTold,
    "quarantined": event_content.FilesTold,
    "lost": event_content.FilesTold,
    "deletions_held": event_content.FilesTold,
    "late": event_content.LateEdge,
    "verification_failed": event_content.FilesTold,
    "disk": event_content.StandingTrouble,
    "read_only": event_content.StandingTrouble,
    "dropped": event_content.DroppedEvents,
    "test": event_content.TestEvent,
}
_MARK = "<!-- made by python scripts/hooks_page.py -->\n"


def written(page: str) -> str:
    """The page with its tables as they should be; what stands before the mark stays.

    Raises:
        ValueError: it has no mark.
    """
    head, mark, _ = page.partition(_MARK)
    if not mark:
        raise ValueError("the page does not say where its tables begin")
    parts = [_part("The event", HookEvent), _part("HookSource", HookSource)]
    for kind in dict.fromkeys(CONTENT.values()):
        kinds = ", ".join(f"`{name}`" for name, of in CONTENT.items() if of is kind)
        parts.append(_part(f"`what` of {kinds}", kind))
    parts.append(_part("ToldFile", event_content.ToldFile))
    return head + mark + "\n" + "\n".join(parts)


def _part(title: str, kind: type[msgspec.Struct]) -> str:
    said = (kind.__doc__ or "").strip().split("\n")[0]
    return f"### {title}\n\n{said}\n\n{members(kind)}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
