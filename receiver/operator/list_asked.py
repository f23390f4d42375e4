"""What is asked of a long list: searched, sorted, and a page of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["ListAsked"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class ListAsked:
    """A page of a list that has several orders, the first of which also parts what is equal.

    Attributes:
        search: only what has this text, whatever its case.
        order: one of the list's; empty for its first.
        descending: the greatest first.
        troubled: only what has trouble.
        first: so many are passed over.
        count: of the page.
    """

    search: str = ""
    order: str = ""
    descending: bool = False
    troubled: bool = False
    first: int = 0
    count: int = 50

    def found(
        self,
        every: Iterable[_T],
        orders: Mapping[str, Callable[[_T], Any]],
        *,
        has: Callable[[_T, str], bool],
        troubles: Callable[[_T], tuple[str, ...]],
    ) -> list[_T]:
        """What is searched for, in order; of all pages.

        Args:
            every: what there is.
            orders: what is compared, by order.
            has: whether one has a text, which is casefolded.
            troubles: of one.

        Raises:
            UsageError: there is no such order.
        """
        first = next(iter(orders))
        order = self.order or first
        if order not in orders:
            raise UsageError(f"order: expected one of {', '.join(orders)}")
        text = self.search.casefold()
        found = [
            each for each in every if has(each, text) and (not self.troubled or troubles(each))
        ]
        found.sort(key=orders[first])
        if order != first or self.descending:
            found.sort(key=orders[order], reverse=self.descending)
        return found

    def page(self, found: list[_T]) -> list[_T]:
        """The page of what was found."""
        return found[self.first : self.first + self.count]
