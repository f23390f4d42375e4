"""What can be done from a page: said first, in full, and done when that was confirmed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from receiver.web.ui.page_call import PageCall

__all__ = ["Confirmation", "Given", "PageAction"]

Given = Mapping[str, str]
"""What an action is about, by its fields."""


@dataclass(frozen=True)
class Confirmation:
    """What an action would do now.

    Attributes:
        says: that, in sentences; the first names what it is about.
        back: address of the page to go back to, done or not.
    """

    says: tuple[str, ...]
    back: str

    @property
    def mark(self) -> str:
        """A digest of what it says: what is done is what was read."""
        return hashlib.sha256("\n".join(self.says).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class PageAction:
    """Something that can be done.

    Attributes:
        name: in its address.
        title: what it does, as on its button.
        fields: what it is about.
        plan: says what it would do; raises an error of ours if it cannot be done.
        act: does it; what came of it, in a sentence.
        loses: whether something may be gone for good by it.
        asks: the field that a person has to fill in, if it is empty; none if empty.
        question: the text that goes with that.
    """

    name: str
    title: str
    fields: tuple[str, ...]
    plan: Callable[[PageCall, Given], Confirmation]
    act: Callable[[PageCall, Given], str]
    loses: bool = False
    asks: str = ""
    question: str = ""

    @property
    def offers_edges(self) -> bool:
        """Whether labels of edges are offered for what is asked."""
        return self.asks in ("by", "sender")
