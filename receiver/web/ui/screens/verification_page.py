"""What verifications have proved, and what the last one found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.operator.stored.quarantine import list_quarantine
from receiver.operator.stored.verification_report import VerificationReport, last_report
from receiver.web.ui.page_routes import PageRoutes

if TYPE_CHECKING:
    from flask import Response

    from receiver.web.ui.page_call import PageCall

__all__ = ["ROUTES"]

ROUTES = PageRoutes()
_FINDINGS: Final = 200


@ROUTES.page("/ui/verification", "Verification")
def verification_page(page: PageCall) -> Response:
    """Verification."""
    directory = page.call.site.config.page.report
    report = None if directory is None else last_report(directory)
    with page.engine.reading() as state:
        files, size = state.file_table.totals()
        verified = state.file_table.verified()
    bad = [each for each in list_quarantine(page.engine) if each.loaded]
    return page.shown(
        "verification.html",
        "Verification",
        files=files,
        size=size,
        verified=verified,
        bad=bad[:_FINDINGS],
        bad_count=len(bad),
        report=None if isinstance(report, str) else report,
        why=report if isinstance(report, str) else "",
        is_configured=directory is not None,
        is_ours=_engine_of(report) == page.engine.uuid,
        most=_FINDINGS,
        labels={each: page.label_of(each) for each in {entry.sender for entry in bad[:_FINDINGS]}},
    )


def _engine_of(report: VerificationReport | str | None) -> str:
    return report.engine if isinstance(report, VerificationReport) else ""
