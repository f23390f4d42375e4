"""A client of etcd over its JSON gateway, version 3.4 and later: ranges, transactions, leases.

An error is `{"message": ..., "code": ...}` with a code of gRPC.

What becomes of a request that changes something is told in three ways: it returned, it raised
`UnknownOutcomeError` (sent, and no answer that says more: it may come true even later), or it
raised something else and never comes true. `NoSpaceError` is between them: etcd applies the
transaction that goes over its quota and reports it as refused, so look, but it is over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import requests
import urllib3

from common.config import Secret
from common.errors import (
    ConfigError,
    ForbiddenError,
    NoSpaceError,
    ProtocolError,
    TooLargeError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
)
from receiver.metadata.etcd.messages import (
    Compare,
    Get,
    Operation,
    Range,
    TransactionResult,
    range_of,
)
from receiver.metadata.model.errors import CompactedError, UnknownOutcomeError

__all__ = ["EtcdClient", "EtcdSettings"]

_UNKNOWN_ENDINGS = frozenset({1, 2, 4, 10, 13, 14})
"""Codes of gRPC that leave open what became of a write: cancelled, unknown, deadline exceeded,
aborted, internal, unavailable."""
_INVALID_ARGUMENT, _PERMISSION_DENIED, _EXHAUSTED, _OUT_OF_RANGE = 3, 7, 8, 11
_NOT_FOUND, _UNAUTHENTICATED = 5, 16


_LOG_INS = 5
"""In a row, for one request: each change of a user or a role at that moment costs one."""


class EtcdSettings(Protocol):
    """How to reach a cluster; `receiver.config.EtcdConfig` is one."""

    @property
    def endpoints(self) -> Sequence[str]:
        """Addresses of the members, tried in turn."""

    @property
    def prefix(self) -> str:
        """Of all keys."""

    @property
    def user(self) -> str | None:
        """Name to log in with."""

    @property
    def password(self) -> Secret | None:
        """Of the user."""

    @property
    def ca_cert(self) -> Path | None:
        """Authorities that the members are checked against, PEM."""

    @property
    def cert(self) -> Path | None:
        """Certificate of this client, PEM."""

    @property
    def key(self) -> Path | None:
        """Private key of this client, PEM."""

    @property
    def timeout(self) -> float:
        """Of one request, in seconds."""

    @property
    def lease(self) -> float:
        """Seconds without a sign of life, until another process may take over."""

    @property
    def url(self) -> str | None:
        """Where the process is found that uses them; None where nobody has said."""


class EtcdClient:
    """See the module. May be used by several threads at once; each has its own connections."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._endpoints = tuple(each.rstrip("/") for each in settings.endpoints)
        self._settings = settings
        self._first = 0
        self._token: str | None = None
        self._anonymous = settings.user is None
        self._local = threading.local()
        self._sessions: list[requests.Session] = []
        self._lock = threading.Lock()

    # -- calls -------------------------------------------------------------------------------

    def get(self, get: Get) -> Range:
        """Read.

        Raises:
            CompactedError: `revision` is compacted away.
            UnreachableError: no endpoint answers, or each is behind `revision`.
            UnauthorizedError, ForbiddenError: etcd does not let this user.
        """
        return range_of(self._call("/v3/kv/range", get.to_request(), changes=False))

    def transaction(
        self,
        conditions: Sequence[Compare],
        then: Sequence[Operation],
        otherwise: Sequence[Operation] = (),
    ) -> TransactionResult:
        """Do `then` if all conditions hold, and `otherwise` if not, as one step.

        Raises:
            CompactedError: a revision to read at is compacted away.
            UnreachableError: no endpoint answers; nothing was done.
            UnknownOutcomeError, NoSpaceError: see the module.
            TooLargeError: more than a request may hold; nothing was done.
            UnauthorizedError, ForbiddenError: etcd does not let this user; nothing was done.
        """
        request = {
            "compare": [each.to_request() for each in conditions],
            "success": [each.to_operation() for each in then],
            "failure": [each.to_operation() for each in otherwise],
        }
        changes = any(not isinstance(each, Get) for each in (*then, *otherwise))
        answer = self._call("/v3/kv/txn", request, changes=changes)
        revision = int(answer["header"]["revision"])
        found = tuple(
            range_of(each["response_range"] | {"header": {"revision": revision}})
            for each in answer.get("responses", ())
            if "response_range" in each
        )
        return TransactionResult(bool(answer.get("succeeded")), revision, found)

    def grant(self, seconds: int) -> int:
        """A new lease; its number."""
        answer = self._call("/v3/lease/grant", {"TTL": str(seconds)}, changes=False)
        return int(answer["ID"])

    def keep_alive(self, lease: int) -> int:
        """Begin the time of a lease anew; the seconds that it has now, 0 if it is gone."""
        answer = self._call("/v3/lease/keepalive", {"ID": str(lease)}, changes=False)
        if "result" not in answer:
            raise UnreachableError(f"etcd does not keep a lease alive: {answer.get('error')}")
        return int(answer["result"].get("TTL", 0))

    def revoke(self, lease: int) -> None:
        """End a lease, and with it its keys; one that is gone is no error."""
        self._call("/v3/lease/revoke", {"ID": str(lease)}, changes=False)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.close()

    # -- requests ----------------------------------------------------------------------------

    def _call(self, path: str, request: Mapping[str, Any], *, changes: bool) -> dict[str, Any]:
        """Ask the endpoints in turn; a write that may have arrived is not sent to another."""
        content = msgspec.json.encode(request)
        reasons = []
        for endpoint in self._in_turn():
            try:
                return self._ask(endpoint, path, content)
            except UnreachableError as error:
                reasons.append(error.message)
            except UnknownOutcomeError as error:
                if changes:
                    raise
                reasons.append(error.message)
        raise UnreachableError(f"etcd does not answer: {'; '.join(reasons)}")

    def _in_turn(self) -> Iterator[str]:
        """The endpoints, beginning with the one that answered last."""
        first = self._first
        for step in range(len(self._endpoints)):
            self._first = (first + step) % len(self._endpoints)
            yield self._endpoints[self._first]

    def _ask(self, endpoint: str, path: str, content: bytes) -> dict[str, Any]:
        if self._token is None and not self._anonymous:
            self._log_in(endpoint)
        status, answer = self._post(endpoint, path, content, self._token)
        for _ in range(_LOG_INS):
            if self._token is None or not _wants_new_token(status, answer):
                break
            self._log_in(endpoint)
            status, answer = self._post(endpoint, path, content, self._token)
        if status == 200:
            return answer
        return self._refused(endpoint, path, status, answer)

    def _log_in(self, endpoint: str) -> None:
        password = self._settings.password
        request = {"name": self._settings.user, "password": password and password.reveal()}
        content = msgspec.json.encode(request)
        try:
            status, answer = self._post(endpoint, "/v3/auth/authenticate", content, None)
        except UnknownOutcomeError as error:  # of the log-in; what is to follow was not sent
            raise UnreachableError(error.message) from error
        if status == 200:
            self._token = answer["token"]
        elif "not enabled" in str(answer.get("message")):
            self._anonymous = True  # a server without users takes everybody
        elif answer.get("code") == _INVALID_ARGUMENT:
            raise UnauthorizedError(
                f"etcd at {endpoint} does not know user {self._settings.user!r} with this password"
            )
        else:
            raise UnreachableError(f"{endpoint}: logging in failed: {_reason(status, answer)}")

    def _post(
        self, endpoint: str, path: str, content: bytes, token: str | None
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = token
        timeout = self._settings.timeout
        try:
            answer = self._session().post(
                endpoint + path,
                data=content,
                headers=headers,
                timeout=(timeout, timeout),
                allow_redirects=False,
            )
        except requests.exceptions.RequestException as error:
            raise _broken(endpoint, error) from error
        except OSError as error:  # a certificate or key of ours that cannot be read
            raise ConfigError(f"metadata.etcd: {error}") from error
        return answer.status_code, _decoded(answer)

    def _session(self) -> requests.Session:
        found: requests.Session | None = getattr(self._local, "session", None)
        if found is None:
            found = requests.Session()
            found.trust_env = False  # no proxies, no .netrc: the configuration says it all
            settings = self._settings
            if settings.ca_cert is not None:
                found.verify = str(settings.ca_cert)
            if settings.cert is not None and settings.key is not None:
                found.cert = (str(settings.cert), str(settings.key))
            self._local.session = found
            with self._lock:
                self._sessions.append(found)
        return found

    # -- errors ------------------------------------------------------------------------------

    def _refused(
        self, endpoint: str, path: str, status: int, answer: dict[str, Any]
    ) -> dict[str, Any]:
        code = answer.get("code")
        said = f"{endpoint}: {_reason(status, answer)}"
        if code == _NOT_FOUND and path == "/v3/lease/revoke":
            return answer
        if code in _UNKNOWN_ENDINGS or (code is None and status >= 500):
            raise UnknownOutcomeError(said)
        raise _error_of(code, said)


def _wants_new_token(status: int, answer: Mapping[str, Any]) -> bool:
    """Whether a request was refused, and not looked at, for the sake of its token alone.

    Tokens end after some minutes, and simple ones with the server that gave them. One of JSON (JWT)
    holds for the users and roles as they were when it was made ("revision of auth store is old",
    as an invalid argument, or "auth: revision in header is old", as an unknown error).
    """
    if status == 200:
        return False
    said = str(answer.get("message") or answer.get("error")).lower()
    return status == 401 or ("auth" in said and ("revision" in said or "token" in said))


def _error_of(code: object, said: str) -> TsferryError:
    """What an answer with a code of gRPC means; nothing was changed (see NoSpaceError above)."""
    if code == _OUT_OF_RANGE and "compacted" in said:
        return CompactedError(said)
    if code == _OUT_OF_RANGE:
        return UnreachableError(said)  # "a future revision": this member is behind
    if code == _UNAUTHENTICATED or "user name is empty" in said:
        return UnauthorizedError(f"{said}; see metadata.etcd.user and password")
    if code == _PERMISSION_DENIED:
        return ForbiddenError(f"{said}; its user needs to read and write beneath the prefix")
    if code == _EXHAUSTED and "space" in said:
        return NoSpaceError(f"{said}; compact and defragment etcd, then disarm its alarm")
    if "too large" in said or "too many operations" in said or "larger than max" in said:
        return TooLargeError(said)
    if code == _EXHAUSTED:
        return UnreachableError(said)  # "too many requests": refused before anything was done
    return ProtocolError(f"{said}; expected the JSON gateway of etcd 3.4 or later")


def _broken(endpoint: str, error: requests.exceptions.RequestException) -> TsferryError:
    """What a request without an answer means: was it sent, or could it not be?"""
    reason: object = error
    if isinstance(error, requests.exceptions.ConnectionError) and error.args:
        reason = getattr(error.args[0], "reason", error)
    if isinstance(error, requests.exceptions.SSLError):
        return UnreachableError(
            f"{endpoint}: TLS: {reason}; see metadata.etcd.ca_cert, cert and key"
        )
    # A connection that was never made; NewConnectionError is one of its kinds.
    if isinstance(error, requests.exceptions.ConnectTimeout) or isinstance(
        reason, urllib3.exceptions.ConnectTimeoutError | urllib3.exceptions.NewConnectionError
    ):
        return UnreachableError(f"{endpoint}: no connection: {reason}")
    if isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema):
        return ConfigError(f"metadata.etcd.endpoints: {error}")
    return UnknownOutcomeError(f"{endpoint}: the request was sent, no answer came: {reason}")


def _decoded(answer: requests.Response) -> dict[str, Any]:
    try:
        # An error in 3.4 has its trailer behind the JSON, in the same body.
        decoded = _lines.decode_lines(answer.content.partition(b"Grpc-Trailer")[0])
    except msgspec.MsgspecError:
        decoded = []
    if decoded:
        return decoded[0]
    if answer.status_code == 200:
        raise UnknownOutcomeError(f"{answer.url}: an answer that is no JSON object")
    return {"message": answer.text[:200].strip()}


_lines = msgspec.json.Decoder(dict[str, Any])


def _reason(status: int, answer: Mapping[str, Any]) -> str:
    return f"{answer.get('message') or answer.get('error')} (HTTP {status})"
