"""The endpoints of a Service of Kubernetes, by list and watch of its EndpointSlices.

A watch begins where the list ended, and after an interruption where the last event was; if the server has forgotten that
(410), it is listed again. While the API server is away, the endpoints stay as they were: health checks decide. An empty list is
believed.

`endpoint_slices.py` says what the slices mean."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import aiohttp
import msgspec

from responses_gateway.backend.discovery.endpoint_slices import SERVICE_LABEL, Slice, SliceEvent, SliceList, targets_of
from responses_gateway.backend.discovery.interface import Report, SourceKind
from responses_gateway.backend.transport.keepalive import notice_vanished
from responses_gateway.bounded_body import read_at_most

# Where a pod finds its own token, and the certificate of the API server.
IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Seconds without a sign of life from the API server's machine after which a connection is broken.
_VANISHED = 15.0
# Seconds for connecting, and for a whole list.
_CONNECT_TIMEOUT = 5.0
_LIST_TIMEOUT = 30.0
# Seconds that a watch may last beyond what was asked for, because the API server is to end it itself.
GRACE = 10.0
# Seconds before another attempt: doubled after each failure, up to the longest, with up to half of it taken off.
FIRST_WAIT = 1.0
LONGEST_WAIT = 15.0
# The least that a server may ask for, because with 0 it would be asked again and again without a pause.
_LEAST_WAIT = 0.1
# A watch that ends sooner, in seconds, without any event counts as a failure, because it would be opened again at once.
BRIEF = 1.0
# In bytes: of a line of the watch, and of the list; of a refusal.
LARGEST = 64 * 1024 * 1024
_LARGEST_REFUSAL = 64 * 1024
_GONE = 410  # the status of a watch from a version that the API server no longer has


class _Gone(Exception):
    """The server does not know the version any more: everything has to be listed again."""


class _Failed(Exception):
    """The API server did not answer as hoped. `retry_after` is in seconds, if it named a time."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(slots=True)
class _Known:
    """The slices by name, as of a version; without a version they have to be listed."""

    slices: dict[str, Slice] = field(default_factory=dict)
    version: str = ""
    news: bool = False  # a watch brought something, or lasted, since the last attempt


@dataclass(frozen=True, slots=True)
class KubernetesSource:
    """Watches the slices of a Service. `port` is the name or number of its port; empty: its only one. `api` is the URL of the
    API server; `credentials` the folder with `token`, `ca.crt` and, for an empty `namespace`, `namespace`. `watch_seconds`: how
    long a watch lasts about."""

    kind: ClassVar[SourceKind] = "kubernetes"
    service: str
    namespace: str = ""
    port: str = ""
    api: str = ""
    credentials: Path = IN_POD
    watch_seconds: float = 240.0

    async def watch(self, report: Report) -> None:
        known = _Known()
        failures = 0
        while True:
            known.news = False
            carried = known.version != ""  # the version is of an earlier attempt: that it is gone is no failure of this one
            try:
                async with self._session() as session:
                    await self._follow(session, known, report)
            except _Gone:
                known.version = ""
                retry_after = None
                if known.news or carried or failures == 0:
                    failures = 0 if known.news else max(failures, 1)
                    continue
            except _Failed as error:
                report(None, str(error))
                retry_after = error.retry_after
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                report(None, f"the API server cannot be reached, or its answer broke off: {_reason(error)}")
                retry_after = None
            failures = 1 if known.news else failures + 1
            wait = min(FIRST_WAIT * 2 ** min(failures - 1, 10), LONGEST_WAIT) * random.uniform(0.5, 1)
            await asyncio.sleep(wait if retry_after is None else min(max(retry_after, _LEAST_WAIT), 2 * LONGEST_WAIT))

    async def _follow(self, session: aiohttp.ClientSession, known: _Known, report: Report) -> None:
        """List if need be, then watch until something fails. Raises what `watch` handles."""
        if not known.version:
            listed = await self._list(session)
            known.slices = {each.metadata.name: each for each in listed.items if each.belongs_to(self.service)}
            known.version = listed.metadata.resource_version
            self._tell(known, report)
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            events = await self._watch_once(session, known, report)
            if not events and clock() - began < BRIEF:
                raise _Failed("a watch ended at once")
            known.news = True

    async def _list(self, session: aiohttp.ClientSession) -> SliceList:
        async with asyncio.timeout(_LIST_TIMEOUT), self._get(session, {}) as answer:
            body = await _read(answer.content, LARGEST)
        try:
            return msgspec.json.decode(body, type=SliceList)
        except (msgspec.DecodeError, RecursionError) as error:
            raise _Failed(f"the list of the API server cannot be read: {error}") from None

    async def _watch_once(self, session: aiohttp.ClientSession, known: _Known, report: Report) -> int:
        """Watch until the server ends it, in good order; return how many events came."""
        seconds = max(1, round(self.watch_seconds * random.uniform(0.75, 1)))
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": known.version, "timeoutSeconds": str(seconds)}
        events = 0
        async with asyncio.timeout(seconds + GRACE), self._get(session, query) as answer:
            self._tell(known, report)  # it can be read again
            async for line in _lines(answer.content):
                self._apply(line, known, report)
                events += 1
        return events

    def _apply(self, line: bytes, known: _Known, report: Report) -> None:
        """Take one event. Raises `_Gone` and `_Failed`."""
        try:
            event = msgspec.json.decode(line, type=SliceEvent)
        except (msgspec.DecodeError, RecursionError) as error:
            known.version = ""
            raise _Failed(f"an event of the API server cannot be read: {error}") from None
        if event.type == "ERROR":
            if event.object.code == _GONE:
                raise _Gone
            known.version = ""
            raise _Failed(f"the API server ended the watch: {event.object.message or event.object.reason}")
        known.version = event.object.metadata.resource_version or known.version
        known.news = True
        if event.type in ("ADDED", "MODIFIED") and event.object.belongs_to(self.service):
            known.slices[event.object.metadata.name] = event.object
        elif event.type in ("ADDED", "MODIFIED", "DELETED"):
            known.slices.pop(event.object.metadata.name, None)
        else:  # a bookmark has a version alone
            return
        self._tell(known, report)

    def _tell(self, known: _Known, report: Report) -> None:
        targets, problem = targets_of(known.slices.values(), self.port)
        report(targets, problem)

    # ---- the API server -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Open a session that trusts the certificate in the folder, which may have been replaced."""
        authority = self.credentials / "ca.crt"
        try:
            trusted = await asyncio.to_thread(partial(ssl.create_default_context, cafile=str(authority)))
        except OSError as error:
            raise _Failed(f"{authority} cannot be read: {error.strerror}: is this a pod with a service account?") from None
        connector = aiohttp.TCPConnector(ssl=trusted)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
            yield session

    @asynccontextmanager
    async def _get(self, session: aiohttp.ClientSession, more: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask for the slices. The token is read each time, since it is replaced within the hour. Raises `_Gone`, `_Failed`."""
        token = await asyncio.to_thread(self._read, "token")
        namespace = self.namespace or await asyncio.to_thread(self._read, "namespace")
        url = f"{self.api}/apis/discovery.k8s.io/v1/namespaces/{quote(namespace, safe='')}/endpointslices"
        query = {"labelSelector": f"{SERVICE_LABEL}={self.service}", **more}
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Accept-Encoding": "identity"}
        async with session.get(url, params=query, headers=headers, allow_redirects=False) as answer:
            if answer.connection is not None and answer.connection.transport is not None:
                notice_vanished(answer.connection.transport.get_extra_info("socket"), _VANISHED)
            if answer.status == _GONE:
                raise _Gone
            if answer.status != 200:
                raise await _refusal(answer, namespace)
            yield answer

    def _read(self, name: str) -> str:
        path = self.credentials / name
        try:
            text = path.read_text(encoding="ascii", errors="replace").strip()
        except OSError as error:
            raise _Failed(f"{path} cannot be read: {error.strerror}: is this a pod with a service account?") from None
        if not text.isascii() or not text.isprintable():
            raise _Failed(f"{path} is not one line of text")
        return text


async def _read(content: aiohttp.StreamReader, most: int) -> bytes:
    """Return a body. Raises `_Failed` if it has more bytes than `most`."""
    body = await read_at_most(content, most + 1)
    if len(body) > most:
        raise _Failed("the API server sent an answer that is too long")
    return body


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield each whole line, however long. Raises `_Failed` if the end of the body cuts one off."""
    rest = bytearray()
    async for piece in content.iter_any():
        *lines, last = piece.split(b"\n")
        for line in lines:
            rest += line
            if rest.strip():
                yield bytes(rest)
            rest.clear()
        rest += last
        if len(rest) > LARGEST:
            raise _Failed("the API server sent a line that is too long")
    if rest.strip():
        raise _Failed("the API server ended the watch within a line")


async def _refusal(answer: aiohttp.ClientResponse, namespace: str) -> _Failed:
    """Return what a refusal means, and what to grant."""
    try:
        status = msgspec.json.decode(await _read(answer.content, _LARGEST_REFUSAL))
        message = str(status.get("message", ""))[:500] if isinstance(status, dict) else ""
    except (msgspec.DecodeError, RecursionError, aiohttp.ClientError, _Failed):
        message = ""
    wait = answer.headers.get("Retry-After", "")
    retry_after = float(wait) if wait.isdecimal() else None
    if answer.status == 401:
        return _Failed("the API server does not accept the token of the service account (401)")
    if answer.status == 403:
        return _Failed(
            f"the service account may not read the endpoints: {message or 'forbidden'}. Grant it, with a Role and a "
            f"RoleBinding in the namespace {namespace}, the verbs list and watch of endpointslices (group discovery.k8s.io)"
        )
    return _Failed(f"the API server answered with HTTP {answer.status}{': ' + message if message else ''}", retry_after)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
