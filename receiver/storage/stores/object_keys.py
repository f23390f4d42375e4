"""Under which keys a loaded file's objects lie in a store, and how its digests are written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from receiver.metadata.state.uploaded_rows import UploadedRow

__all__ = ["data_key", "digests_text", "resource_key", "stored_key"]


def data_key(engine: str, incarnation: int, physical: str, again: int = 0) -> str:
    """Of a file's object."""
    key = f"{engine}/data/{incarnation:08}/{physical}"
    return f"{key}.again-{again}" if again else key


def digests_text(digests: Mapping[str, str]) -> str:
    """Digests as the catalogue keeps them."""
    return " ".join(f"{word}={digests[word]}" for word in sorted(digests))


def stored_key(engine: str, there: UploadedRow) -> str:
    """Of a file's object, where a commit says that it is."""
    return data_key(engine, there.incarnation, there.physical, there.again)


def resource_key(key: str, digest: str) -> str:
    """Of the object of a `.resource` with an MD5, beside its file's; short enough for a name."""
    return f"{key}.{digest}"
