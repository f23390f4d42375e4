"""Findings of one part of a file, while they are collected."""

from __future__ import annotations

from dataclasses import replace

from receiver.spark.report.results import Finding, Severity

__all__ = ["MOST_FINDINGS", "Findings"]

MOST_FINDINGS = 100
"""Of one part: a file that is bad throughout need not say so a million times."""


class Findings:
    """What was found so far: the first ones are kept, bad ones before others; all are counted."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.dropped = 0

    def add(
        self,
        severity: Severity,
        check: str,
        detail: str,
        *,
        device: str | None = None,
        measurement: str | None = None,
        offset: int | None = None,
    ) -> None:
        """Note one."""
        finding = Finding(severity, check, device, measurement, offset, detail)
        if finding in self.kept:  # what is wrong with a device is met at each of its chunks
            return
        if len(self.kept) < MOST_FINDINGS:
            self.kept.append(finding)
            return
        self.dropped += 1
        if severity is Severity.BAD:  # the verdict must not hang on what came first
            lesser = [at for at, each in enumerate(self.kept) if each.severity is not severity]
            if lesser:
                self.kept[lesser[-1]] = finding

    def bad(self, check: str, detail: str) -> None:
        """Note a fault of the whole file."""
        self.add(Severity.BAD, check, detail)

    def unproved(self, check: str, detail: str) -> None:
        """Note what keeps the whole file from being judged."""
        self.add(Severity.UNPROVED, check, detail)

    def soften(self) -> None:
        """Take back every judgement: the ground it stood on has moved."""
        self.kept = [
            replace(each, severity=Severity.UNPROVED) if each.severity is Severity.BAD else each
            for each in self.kept
        ]
