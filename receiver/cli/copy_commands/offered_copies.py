"""Files that storage nodes offer back, fetched into a directory as a database lays them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.durable import Tree
from common.errors import ProtocolError, TsferryError
from common.names import FilePath, is_sender_uuid
from common.wire import DeletionsForm
from receiver.storage.cache.object_fetching import fetch_beside, settle_fetched

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from receiver.operator.client import OperatorClient
    from receiver.operator.views.copy_views import OfferedFile

__all__ = ["fetch_offered"]


class _Offered:
    """A file at a node, by way of the running server; see `fetch_beside`."""

    def __init__(self, client: OperatorClient, file: OfferedFile) -> None:
        self.url = f"the node {file.node}"
        self._client = client
        self._file = file

    def read(self, key: str, offset: int, length: int) -> bytes:
        """So many bytes, or fewer."""
        query: dict[str, str | int | None] = {
            "node": self._file.node,
            "tablet": self._file.tablet,
            "path": key,
            "begin": offset,
            "length": length,
        }
        return self._client.exchange("GET", "/v1/copies/offered/content", query, {}, b"").body


def fetch_offered(
    client: OperatorClient, files: Sequence[OfferedFile], into: Path
) -> dict[str, str]:
    """Fetch files to `<into>/<sender>/<path>`, checked, with what was deleted of them beside.

    Of several with one path the one that was loaded last is fetched.

    Args:
        client: of the running server.
        files: that are offered.
        into: made if it is not there.

    Returns:
        physical names of those that did not come, and why.
    """
    newest: dict[tuple[str, str], OfferedFile] = {}
    for each in sorted(files, key=lambda each: each.commit):
        newest[each.sender, each.path] = each
    failed: dict[str, str] = {}
    with Tree(into, create=True) as tree:
        for file in newest.values():
            try:
                _fetch(tree, client, file)
            except (TsferryError, OSError) as error:
                failed[file.physical] = str(error)
        settle_fetched(tree)
    return failed


def _fetch(tree: Tree, client: OperatorClient, file: OfferedFile) -> None:
    if not is_sender_uuid(file.sender):
        raise ProtocolError(f"{file.sender!a} is no sender")
    strange = [each.form for each in file.deletions if each.form not in list(DeletionsForm)]
    if strange:
        raise ProtocolError(f"{strange[0]!a} is no form of a deletion file")
    target = f"{file.sender}/{FilePath.parse(file.path).text}"
    beside = fetch_beside(_Offered(client, file), tree, file.physical, file.size, file.md5)
    tree.make_dirs(target.rpartition("/")[0])
    for each in file.deletions:  # before the file has its name: nobody loads it without
        tree.write_atomic(f"{target}.{each.form}", each.content)
    tree.rename(beside, target)
