"""A stand-in for the API server of Kubernetes, over TLS with an authority of its own: EndpointSlices are listed and watched.

Objects have one growing version; a list is at the present one, and a watch replays what came after the version that it names.
What is older than the last `window` changes is forgotten, and answered with 410: before the watch, or in it."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ACCOUNT = "system:serviceaccount:gateway:responses-gateway"
Object = dict[str, Any]


class ApiServer:
    """The objects of one cluster by namespace and name, and their changes. Versions are texts whose order nobody may know."""

    def __init__(self, window: int = 1000) -> None:
        self.url = ""
        self.token = "first-token"
        self.refusals: list[tuple[int, dict[str, str]]] = []  # status and headers of the next answers
        self.faults: list[str] = []  # of the next events: "reset", "twice", "gone"; of the next watch: "silence", "end"
        self.selects = True  # it heeds the selector
        self.floods = ""  # what it never ends: a "list" or a "watch"
        self.lists = 0
        self.watches = 0
        self.open = 0  # watches
        self._window = window
        self.objects: dict[tuple[str, str], Object] = {}
        self._version = 1000
        self._changes: list[tuple[int, str, Object]] = []
        self._changed = asyncio.Event()

    # ---- the cluster ----------------------------------------------------------------------------------------------

    def put(self, name: str, service: str, endpoints: list[Object], namespace: str = "models", **more: Any) -> None:
        """Create a slice or replace it."""
        kind = "MODIFIED" if (namespace, name) in self.objects else "ADDED"
        metadata = {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}}
        ports = [{"name": "http", "port": 8000, "protocol": "TCP"}]
        slice_ = {"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": endpoints, **more}
        self.objects[(namespace, name)] = self._note(kind, slice_)

    def delete(self, name: str, namespace: str = "models") -> None:
        """Delete a slice, if it is there."""
        if (namespace, name) in self.objects:
            self._note("DELETED", self.objects.pop((namespace, name)))

    def bookmark(self) -> None:
        """Have all watches send a bookmark."""
        self._note("BOOKMARK", {"metadata": {}})

    def _note(self, kind: str, changed: Object) -> Object:
        self._version += 1
        new: Object = {**changed, "metadata": {**changed["metadata"], "resourceVersion": str(self._version)}}
        self._changes = [*self._changes, (self._version, kind, new)][-self._window :]
        self._wake()
        return new

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def fault(self, name: str) -> None:
        """Let a fault happen with the next event, or to the watches that are open."""
        self.faults.append(name)
        self._wake()

    def forget(self) -> None:
        """Forget all changes: versions of before are gone."""
        self._version += 1
        self._changes = []

    # ---- its interface --------------------------------------------------------------------------------------------

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", self._endpoint_slices)
        return app

    async def _endpoint_slices(self, request: web.Request) -> web.StreamResponse:
        namespace = request.match_info["namespace"]
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized", "Unauthorized")
        if self.refusals:
            status, headers = self.refusals.pop(0)
            forbidden = (
                f'endpointslices.discovery.k8s.io is forbidden: User "{ACCOUNT}" cannot list resource "endpointslices" in API '
                f'group "discovery.k8s.io" in the namespace "{namespace}"'
            )
            words = {403: ("Forbidden", forbidden), 429: ("TooManyRequests", "Too many requests, please try again later.")}
            return _status(status, *words.get(status, ("InternalError", "an error on the server")), headers)
        wanted = dict(pair.split("=", 1) for pair in request.query.get("labelSelector", "").split(",") if pair)
        if not self.selects:
            wanted = {}
        if self.floods == ("watch" if request.query.get("watch") else "list"):
            return await _flood(request)
        if request.query.get("watch", "") in ("1", "true", "True"):
            return await self._watch(request, namespace, wanted)
        self.lists += 1
        items = [each for (where, _), each in self.objects.items() if where == namespace and _fits(each, wanted)]
        metadata = {"resourceVersion": str(self._version)}
        kinds = {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1"}
        return web.json_response({**kinds, "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, namespace: str, wanted: dict[str, str]) -> web.StreamResponse:
        self.watches += 1
        seen = int(request.query.get("resourceVersion") or self._version)
        oldest = self._changes[0][0] - 1 if self._changes else self._version
        if seen < oldest and self.watches % 2:
            return _status(410, "Expired", f"too old resource version: {seen} ({oldest})")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if seen < oldest:
            await _send(answer, "ERROR", _status_object(410, "Expired", f"too old resource version: {seen} ({oldest})"))
            return answer
        self.open += 1
        try:
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", "1800"))):
                silent = await self._follow(request, answer, seen, namespace, wanted)
            if silent:
                await asyncio.Event().wait()
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self.open -= 1
        return answer

    async def _follow(
        self, request: web.Request, answer: web.StreamResponse, seen: int, namespace: str, wanted: dict[str, str]
    ) -> bool:
        """Send what comes after a version, until a fault ends it; return whether nothing more is to be said."""
        while True:
            changed = self._changed
            for version, kind, each in [change for change in self._changes if change[0] > seen]:
                seen = version
                if kind != "BOOKMARK" and (each["metadata"].get("namespace") != namespace or not _fits(each, wanted)):
                    continue
                if kind == "BOOKMARK" and "allowWatchBookmarks" not in request.query:
                    continue
                fault = self.faults.pop(0) if self.faults and self.faults[0] in ("reset", "twice", "gone") else ""
                if fault == "reset":
                    await answer.write(_line(kind, each)[:40])
                    if request.transport is not None:
                        request.transport.abort()
                    return False
                if fault == "gone":
                    await _send(answer, "ERROR", _status_object(410, "Expired", "The resourceVersion is too old."))
                    return False
                for _ in range(2 if fault == "twice" else 1):
                    await _send(answer, kind, each)
            if self.faults and self.faults[0] in ("end", "silence"):
                return self.faults.pop(0) == "silence"
            if changed is self._changed:
                await changed.wait()


def endpoint(address: str, uid: str = "", **conditions: bool) -> Object:
    """Return an endpoint as it stands in a slice."""
    found: Object = {"addresses": [address], "conditions": conditions}
    if uid:
        found["targetRef"] = {"kind": "Pod", "name": f"vllm-{uid}", "uid": uid}
    return found


async def _flood(request: web.Request) -> web.StreamResponse:
    """Send the beginning of JSON, and never the end of it."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(b'{"items": ["')
    while request.transport is not None and not request.transport.is_closing():
        await answer.write(b"x" * 65536)
        await asyncio.sleep(0)
    return answer


def _fits(each: Object, wanted: dict[str, str]) -> bool:
    return all(each["metadata"].get("labels", {}).get(name) == value for name, value in wanted.items())


def _line(kind: str, each: Object) -> bytes:
    kinds = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1"} if kind != "ERROR" else {}
    return json.dumps({"type": kind, "object": {**kinds, **each}}).encode() + b"\n"


async def _send(answer: web.StreamResponse, kind: str, each: Object) -> None:
    await answer.write(_line(kind, each))


def _status_object(code: int, reason: str, message: str) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message}


def _status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(_status_object(code, reason, message), status=code, headers=headers)


@asynccontextmanager
async def api_server(folder: Path, window: int = 1000) -> AsyncIterator[ApiServer]:
    """Serve one while the block runs; the folder gets what a pod finds: `token`, `ca.crt`, `namespace`."""
    server = ApiServer(window)
    _write_account(folder, server.token)
    runner = web.AppRunner(server.app(), shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_tls(folder)).start()
        server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        await runner.cleanup()


def _write_account(folder: Path, token: str) -> None:
    (folder / "token").write_text(token)
    (folder / "namespace").write_text("models")


def _tls(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "ca.crt").write_bytes(pem)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(pem + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context
