"""What a forwarding sender asks of the receiver on its node: a reader's calls."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from common import wire
from common.errors import ProtocolError
from common.formats.schemaitems import SchemaChanges
from sender.send.connection.json_calls import JsonCalls

__all__ = ["CatalogueCalls", "CatalogueNow"]


class CatalogueNow(msgspec.Struct, frozen=True):
    """The whole catalogue of a receiver.

    Attributes:
        entries: every committed file.
        engine: uuid of the receiver's engine.
        commit: of the oldest page.
        whole: whether all pages are of one commit of one engine: otherwise a file that came
            meanwhile may be missing.
    """

    entries: list[wire.CatalogueEntry]
    engine: str
    commit: int
    whole: bool


class CatalogueCalls(JsonCalls):
    """Reads the catalogue of a receiver, and has its files brought to the disk."""

    def catalogue_now(self, limit: int = 1000) -> CatalogueNow:
        """Every committed file of the receiver."""
        entries: list[wire.CatalogueEntry] = []
        marks = set()
        for page in self.pages("/catalogue", wire.CatalogueAnswer, limit):
            entries += page.entries
            marks.add((page.commit, page.engine))
        commit, engine = min(marks)
        return CatalogueNow(entries, engine, commit, len(marks) == 1)

    def fates(self, paths: Sequence[str], limit: int = 1000) -> wire.FatesAnswer:
        """What became of files that were in the receiver's catalogue.

        Raises:
            NotFoundError: it is of a version that does not know.
        """
        fates: list[wire.FileFate] = []
        answer: wire.FatesAnswer | None = None
        for at in range(0, max(1, len(paths)), limit):
            page = wire.FatesRequest(paths=list(paths[at : at + limit]))
            answer = self.json("POST", "/catalogue/fates", wire.FatesAnswer, page)
            if [each.path for each in answer.fates] != page.paths:
                raise ProtocolError(f"{self.endpoint.url}: fates of other paths than were asked")
            fates += answer.fates
        assert answer is not None
        return msgspec.structs.replace(answer, fates=fates)

    def fetch(
        self, paths: Sequence[str], ahead: Sequence[str] = (), limit: int = 100
    ) -> list[wire.FailedFetch]:
        """Have files brought to the receiver's disk that it has in an object store only.

        Args:
            paths: of the files.
            ahead: of those that are going to be asked for next.
            limit: files of one call.

        Returns:
            those that did not come.
        """
        failed: list[wire.FailedFetch] = []
        waiting = list(paths)
        while waiting:
            asked, waiting = waiting[:limit], waiting[limit:]
            following = [] if waiting else list(ahead[:limit])
            page = wire.FetchRequest(paths=asked, ahead=following)
            answer = self.json("POST", "/catalogue/fetch", wire.FetchAnswer, page)
            failed += answer.failed
            waiting = [*answer.coming, *waiting]
        return failed

    def noted(self, limit: int = 1000) -> list[wire.NotedEntry]:
        """Deletion files that the receiver knows.

        Raises:
            NotFoundError: it is of a version that knows none.
        """
        pages = self.pages("/catalogue/deletions", wire.NotedAnswer, limit)
        return [each for page in pages for each in page.entries]

    def schema_changes(self, after: int, cursor: str | None = None) -> SchemaChanges:
        """A page of what changed in the receiver's schema."""
        query = {"after": str(after), "limit": "1000"}
        query |= {} if cursor is None else {"cursor": cursor}
        page = self.json("GET", f"/schema/changes?{urlencode(query)}", SchemaChanges)
        if page.next is not None and page.next == cursor:
            raise ProtocolError(f"{self.endpoint.url}/schema/changes: the pages do not end")
        return page
