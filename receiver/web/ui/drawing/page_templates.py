"""Templates: everything that is put into one is escaped, and what is not there is an error."""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context

from common.config.units import format_duration
from common.console.terminal import size_text
from receiver.web.ui.drawing import page_texts
from receiver.web.ui.drawing.sparkline import sparkline

if TYPE_CHECKING:
    from jinja2.runtime import Context
    from markupsafe import Markup

__all__ = ["HOME", "link", "rendered", "static_file"]

HOME: Final = "/ui/"
_PACKAGE: Final = "receiver.web.ui"
_NOTHING: Final = (None, "")
_KINDS: Final = {"page.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}


def rendered(template: str, values: dict[str, Any]) -> str:
    """A template with values."""
    return _environment().get_template(template).render(values)


def link(*segments: str, **query: Any) -> str:
    """An address of the page: segments below `/ui/`, and a query without what is empty.

    0 is not: it is a time that can be asked about.
    """
    path = HOME + "/".join(quote(each, safe="") for each in segments)
    wanted = {key.rstrip("_"): each for key, each in query.items() if each not in _NOTHING}
    return f"{path}?{urlencode(wanted)}" if wanted else path


class _Static:
    def __init__(self, name: str) -> None:
        self.content = resources(_PACKAGE).joinpath("static", name).read_bytes()
        self.mark = hashlib.sha256(self.content).hexdigest()[:12]
        self.kind = _KINDS[name]


@functools.cache
def _static() -> dict[str, _Static]:
    return {name: _Static(name) for name in _KINDS}


def static_file(name: str) -> tuple[bytes, str, str] | None:
    """Content, media type and mark of a file that pages refer to; None if there is none."""
    found = _static().get(name)
    return None if found is None else (found.content, found.kind, found.mark)


def _static_link(name: str) -> str:
    return link("static", name, v=_static()[name].mark)


@pass_context
def _ago(context: Context, seconds: float | None) -> Markup | str:
    return page_texts.ago(context["page"].clock)(seconds)


@pass_context
def _data_time(context: Context, value: int | None) -> Markup | str:
    return page_texts.data_time(context["page"].time_unit)(value)


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=page_texts.visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": _ago,
        "data_time": _data_time,
        "day": page_texts.day,
        "duration": format_duration,
        "number": page_texts.number,
        "plural": page_texts.plural,
        "size": size_text,
        "when": page_texts.when,
    }
    made.globals |= {"link": link, "static": _static_link, "sparkline": sparkline}
    return made
