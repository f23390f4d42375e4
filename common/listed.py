r"""What a sender has listed as loaded, and a receiver as its files, as one sum that both compare.

    row   xxh3-128 of "<path>\n<MD5>\n<deletions>", UTF-8
    sum   of all rows, modulo 2^128: in no order, and two equal rows do not cancel

`deletions` is what is known at the receiver of the deletion files of the path, in order of the
forms: "<form>:<bytes>:<xxh3-128 of them, hex>", with a comma between two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from common.text_numbers import whole_number

__all__ = ["KnownRecords", "ListedSum", "deletions_text", "parse_deletions"]

_MODULUS = 1 << 128


class KnownRecords(NamedTuple):
    """Bytes of a deletion file that are known, and their xxh3-128 (hex)."""

    size: int
    digest: str


def deletions_text(forms: Mapping[str, KnownRecords]) -> str:
    """What is known of the deletion files of a path, as a row has it."""
    return ",".join(f"{form}:{each.size}:{each.digest}" for form, each in sorted(forms.items()))


def parse_deletions(text: str) -> dict[str, KnownRecords]:
    """The other way round; what is no such text is left out, for the other side writes it."""
    found: dict[str, KnownRecords] = {}
    for each in text.split(",") if text else ():
        form, _, rest = each.partition(":")
        size, _, digest = rest.partition(":")
        number = whole_number(size, 18)
        if form and digest and number is not None:
            found[form] = KnownRecords(number, digest)
    return found


@dataclass(slots=True)
class ListedSum:
    """The sum of rows.

    Attributes:
        files: how many rows.
        total: see the module.
    """

    files: int = 0
    total: int = 0

    def add(self, path: str, md5: str, deletions: str = "") -> None:
        """Take a row in."""
        self.files += 1
        self.total = (self.total + _row(path, md5, deletions)) % _MODULUS

    def remove(self, path: str, md5: str, deletions: str = "") -> None:
        """Take out a row that was taken in."""
        self.files -= 1
        self.total = (self.total - _row(path, md5, deletions)) % _MODULUS

    def take(self, files: int, total: int) -> None:
        """Take in the sum of other rows."""
        self.files += files
        self.total = (self.total + total) % _MODULUS

    @property
    def digest(self) -> str:
        """The sum as it travels, 32 hex digits."""
        return f"{self.total:032x}"


def _row(path: str, md5: str, deletions: str) -> int:
    return xxhash.xxh3_128_intdigest(f"{path}\n{md5}\n{deletions}".encode())
