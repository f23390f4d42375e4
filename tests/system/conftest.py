"""Receivers and edges for every scenario."""

from __future__ import annotations

from tests.system.sender.conftest import centre, make_edge, shared

__all__ = ["centre", "make_edge", "shared"]
