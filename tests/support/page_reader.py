"""A person in front of the web page, without a browser: follows links, fills in forms, reads.

What is read is parsed, so that a test sees elements where a browser would.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

HOSTILE = "<script>alert('1')</script>\"'&\u202e{{7*7}}"
"""What somebody may call an edge."""
_VOID = {"meta", "link", "input", "br"}


class Read(HTMLParser):
    """The elements and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.cells: list[bool] = []
        """Of each cell with a name that is open: whether an element stands in it already."""
        self.items: list[str] = []
        """Texts of the list in the page's own part that has whole sentences."""
        self.feed(text)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if self._directly_in_cell:
            self.cells[-1] = True
        if tag not in _VOID:
            self.open.append("cell" if tag == "td" and "data-label" in dict(attrs) else tag)
            self.cells += [False] * (self.open[-1] == "cell")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        found = self.open.pop()
        if found == "cell":
            self.cells.pop()
            found = "td"
        assert found == tag, f"</{tag}> closes <{found}>"

    @property
    def _directly_in_cell(self) -> bool:
        return self.open[-1:] == ["cell"]

    def handle_data(self, data: str) -> None:
        if self._directly_in_cell and data.strip():
            # On a narrow screen a cell is a grid: its name, and what it says, in two columns.
            assert not self.cells[-1], f"{data.strip()!r} would stand below the name of its cell"
        if self.open[-1:] == ["li"] and "main" in self.open:
            self.items.append(data)
        if data.strip():
            self.words.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for each, attrs in self.tags if each == tag]

    def links(self) -> list[str]:
        return [attrs["href"] or "" for attrs in self.all("a") if "href" in attrs]

    def fields(self) -> dict[str, str]:
        """Names and values of the inputs in the part that is the page's own."""
        return {
            each["name"]: each.get("value") or "" for each in self.all("input") if each.get("name")
        }


@dataclass
class Person:
    """Somebody with a browser; `peer` is where the browser is."""

    app: Flask
    peer: str = "127.0.0.1"
    host: str = "localhost"
    scheme: str = "http"
    client: FlaskClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = FlaskClient(self.app, use_cookies=True)

    def ask(self, method: str, path: str, **more: Any) -> Any:
        headers = {"Host": self.host, **more.pop("headers", {})}
        return self.client.open(
            path,
            method=method,
            headers=headers,
            base_url=f"{self.scheme}://{self.host}",
            environ_overrides={"REMOTE_ADDR": self.peer},
            **more,
        )

    def see(self, path: str, code: int = 200) -> Read:
        answer = self.ask("GET", path)
        text = answer.get_data(as_text=True)
        assert answer.status_code == code, (answer.status, text[-800:])
        check_harmless(answer, text)
        return Read(text)

    def send(self, path: str, form: dict[str, str], **headers: str | None) -> Any:
        every = {"Origin": f"{self.scheme}://{self.host}", **headers}
        given = {name: value for name, value in every.items() if value is not None}
        answer = self.ask("POST", path, data=form, headers=given)
        if answer.mimetype == "text/html" and answer.get_data():
            check_harmless(answer, answer.get_data(as_text=True))
        return answer

    def login(self, token: str, wanted: str = "") -> Any:
        return self.send("/ui/login", {"token": token, "next": wanted})

    def do(self, path: str, code: int = 303) -> tuple[Read, Any]:
        """Read what an action would do, and confirm it: what was read, and the answer."""
        read = self.see(path)
        answer = self.send(path.partition("?")[0], read.fields())
        assert answer.status_code == code, answer.get_data(as_text=True)[-800:]
        return read, answer


def check_harmless(answer: Any, text: str) -> None:
    """No page runs, fetches or frames anything but what is its own, whatever names stand in it."""
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    if answer.mimetype != "text/html":
        return
    assert answer.headers["Cache-Control"] == "no-store"
    read = Read(text)
    for tag, attrs in read.tags:
        assert tag not in ("script", "style", "iframe", "object", "embed", "base", "img"), tag
        assert not any(name.startswith("on") or name == "style" for name in attrs), (tag, attrs)
        for name in ("href", "src", "action"):
            if name in attrs:
                assert (attrs[name] or "").startswith(("/ui/", "#")), (tag, attrs)
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids)), "an id comes twice"
    labelled = {attrs.get("for") for attrs in read.all("label")}
    for attrs in read.all("input") + read.all("select"):
        named = attrs.get("type") in ("hidden", "checkbox") or attrs.get("id") in labelled
        assert named, f"a field without a label: {attrs}"
    for attrs in read.all("th"):
        assert attrs.get("scope") in ("row", "col"), "a head of a table without a scope"
    assert len(read.all("main")) == len(read.all("h1")) == 1
    assert "\u202e" not in text
