"""``[hooks]`` of both programs: who is told of what happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from common.config import ConfigFinding, Duration, SecretUrl, is_loopback
from common.config.toml_file import read_secret, readable_by_others
from common.errors import ConfigError
from common.hooks.hook_event import EventKind
from common.hooks.webhook_signing import signing_key

__all__ = ["HooksConfig", "shown_address"]


class HooksConfig(Struct, frozen=True, kw_only=True):
    """``[hooks]``: a command and a webhook that are told of events; none by default.

    Attributes:
        command: a program by its absolute path, and its arguments; it is given an event as a line
            of JSON on its standard input. No shell is asked. Empty for none.
        webhook: https address that events are posted to, signed.
        secret_file: holds what they are signed with: ``whsec_`` and 24 bytes or more in base64.
        events: only these; empty for all.
        timeout: that a command, or an answer, may take.
        queue_limit: events of what is no commit (late, disk, ...; at a sender all) that wait, at
            most; then the oldest is dropped, and that is told.
        give_up_after: of tries for one event, until it is dropped, and that is told.
        ca_cert: PEM file with the authorities that the webhook's certificate is checked against.
        insecure: allow plain HTTP to another machine: everyone on the way can read what is told.
    """

    command: tuple[str, ...] = ()
    webhook: SecretUrl | None = None
    secret_file: Path | None = None
    events: tuple[EventKind, ...] = ()
    timeout: Annotated[Duration, Meta(ge=0.1, le=3600)] = 10.0
    queue_limit: Annotated[int, Meta(ge=10, le=1_000_000)] = 1000
    give_up_after: Annotated[Duration, Meta(ge=1)] = 86400.0
    ca_cert: Path | None = None
    insecure: bool = False

    @property
    def are_any(self) -> bool:
        """Whether anybody is told anything."""
        return bool(self.command) or self.webhook is not None

    def wants(self, kind: EventKind) -> bool:
        """Whether events of a kind are told."""
        return not self.events or kind in self.events

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        if self.command and not os.path.isabs(self.command[0]):
            text = "expected an absolute path first: no PATH is looked through, no shell asked"
            yield ConfigFinding("command", text)
        if any("\0" in each for each in self.command):
            yield ConfigFinding("command", "expected texts without NUL")
        if self.webhook is None:
            for key in ("secret_file", "ca_cert"):
                if getattr(self, key) is not None:
                    yield ConfigFinding(key, "expected only with webhook")
            return
        parts = urlsplit(self.webhook)
        if self.secret_file is None:
            yield ConfigFinding("secret_file", "missing: expected with webhook, to sign with")
        if parts.scheme == "http":
            if not self.insecure and not is_loopback(parts.hostname or ""):
                text = "plain HTTP to another machine; use https:// or set insecure = true"
                yield ConfigFinding("webhook", text)
            if self.ca_cert is not None:
                yield ConfigFinding("ca_cert", "expected only with an https:// webhook")

    def key(self) -> bytes:
        """What requests are signed with; the file may be replaced while we run.

        Raises:
            ConfigError: the file cannot be read, or holds no such secret.
        """
        assert self.secret_file is not None
        try:
            return signing_key(read_secret(self.secret_file))
        except ValueError as error:
            raise ConfigError(f"hooks.secret_file {self.secret_file}: {error}") from None

    def problems(self) -> list[str]:
        """What keeps a hook from being told anything, as the disk is now; in words."""
        found = []
        if self.command:
            trouble = _not_runnable(self.command[0])
            if trouble is not None:
                found.append(f"hooks.command {self.command[0]}: {trouble}")
        if self.secret_file is not None:
            try:
                self.key()
            except ConfigError as error:
                found.append(error.message)
            if readable_by_others(self.secret_file):
                found.append(f"hooks.secret_file {self.secret_file}: others can read it: chmod 600")
        if self.ca_cert is not None and not self.ca_cert.is_file():
            found.append(f"hooks.ca_cert {self.ca_cert}: there is no such file")
        return found


def _not_runnable(path: str) -> str | None:
    if not os.path.lexists(path):
        return "there is no such file"
    if not os.path.isfile(path):
        return "is no file"
    return None if os.access(path, os.X_OK) else "is not executable: chmod +x"


def shown_address(url: str) -> str:
    """An address as logs may have it: what is behind the host is a secret of many services."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    more = "/..." if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{host}{port}{more}"
