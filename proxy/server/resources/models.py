"""`/v1/models`: the backends' lists in OpenAI's shape (`data`), and Codex's catalog of the same (`models`), in one answer.

Codex fetches it at each start when its provider has `model_catalog_url`, and takes the whole catalog or nothing. An answer of
5xx keeps it waiting for seconds, so it never gets one: while the backend is down it gets the last list known, or else an empty
one, at which it falls back quietly. Other clients get the truth.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from proxy.backend.member import Member
from proxy.server.access.api_keys import forwards_authorization
from proxy.server.generation.gateway import GATEWAY
from proxy.server.resources.codex_catalog import ModelTable
from proxy.stream import clients
from proxy.telemetry import logs
from proxy.wire.errors import ApiError, server_error

#: Codex asks twice at once, and the windows of one user start together: in seconds.
_KEPT = 3.0
#: Lists kept, one for each key that clients came with.
_LISTS = 64
_PASSED_BACK = ("Content-Type", "Content-Encoding", "Retry-After")
_NO_LIST: dict[str, Any] = {"object": "list", "data": []}


class Refused(Exception):
    """The backend answered the question for its models with an error: status, body as it came, the headers that go with it."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    def passed_on(self) -> web.Response:
        """The same for the client."""
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@dataclass
class _Kept:
    """A list and when it came. The lock makes one question of several at once."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer: dict[str, Any] | None = None
    at: float = 0.0


class Models:
    """The models of the backend, as each key may see them."""

    def __init__(self, table: ModelTable) -> None:
        self.table = table
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    async def listed(self, request: web.Request) -> dict[str, Any]:
        """The backend's answer to `GET /v1/models`, a few seconds old at most. Raises `Refused` and `ApiError`."""
        authorization = _authorization(request)
        kept = self._for(authorization)
        loop = asyncio.get_running_loop()
        async with kept.lock:
            if kept.answer is None or loop.time() - kept.at > _KEPT:
                kept.answer, kept.at = await _ask(request, authorization), loop.time()
            return kept.answer

    def last_known(self, request: web.Request) -> dict[str, Any]:
        """The last answer to this key, however old; an empty list if there was none."""
        return self._for(_authorization(request)).answer or _NO_LIST

    def catalog(self, listed: dict[str, Any]) -> list[dict[str, Any]]:
        """The entries of Codex's catalog, in the order of the list."""
        return [self.table.catalog_entry(model) for model in listed["data"]]

    def _for(self, authorization: str | None) -> _Kept:
        key = hashlib.sha256(
            (authorization or "").encode("utf-8", "surrogateescape")
        ).digest()  # keys of others stay no longer than needed
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        if len(self._kept) > _LISTS:
            self._kept.popitem(last=False)
        return kept


MODELS: web.AppKey[Models] = web.AppKey("models", Models)


async def list_models(request: web.Request) -> web.Response:
    """`GET /v1/models`. The ETag is of what matters to Codex: vLLM's list has the time of day in it."""
    models = request.app[MODELS]
    try:
        listed = await _listed(request)
    except Refused as refused:
        return refused.passed_on()
    catalog = models.catalog(listed)
    etag = f'W/"{hashlib.sha256(json.dumps(catalog).encode()).hexdigest()[:32]}"'
    if etag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers={"ETag": etag})
    # Ours goes last: llama.cpp has a `models` of another shape, at which Codex would throw all away.
    return web.json_response({**listed, "models": catalog}, headers={"ETag": etag})


async def retrieve_model(request: web.Request) -> web.Response:
    """`GET /v1/models/{id}`: one of the list, with what Codex is told about it. The id may have slashes."""
    name = request.match_info["id"]
    try:
        listed = await _listed(request)
    except Refused as refused:
        return refused.passed_on()
    for model in listed["data"]:
        if model["id"] == name:
            return web.json_response({**request.app[MODELS].table.catalog_entry(model), **model})
    raise ApiError(404, f"The model `{name}` does not exist.", param="model", code="model_not_found")


async def _listed(request: web.Request) -> dict[str, Any]:
    models = request.app[MODELS]
    try:
        return await models.listed(request)
    except (Refused, ApiError) as error:
        if not _from_codex(request) or not (error.status >= 500 or error.status == 429):
            raise
        logs.logger().warning("no models from the backend", extra=logs.fields(status=error.status))
        return models.last_known(request)


async def _ask(request: web.Request, authorization: str | None) -> dict[str, Any]:
    """The list of the backend, or one made of those of all backends that answer. Raises as `_ask_one` does, if none does."""
    gateway = request.app[GATEWAY]
    asked = list(gateway.pool.members.by_name.values())
    if not asked:
        return _NO_LIST
    within = gateway.settings.connect_timeout
    answers = await asyncio.gather(*(_ask_one(member, authorization, within) for member in asked), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Refused | ApiError):
            raise answer
    lists = [(member, answer) for member, answer in zip(asked, answers, strict=True) if isinstance(answer, dict)]
    if not lists:
        raise next(answer for answer in answers if isinstance(answer, BaseException))
    return _union(lists)


def _union(lists: list[tuple[Member, dict[str, Any]]]) -> dict[str, Any]:
    """One list of several: each model once, as the first backend has it, and under its aliases too."""
    models: dict[str, dict[str, Any]] = {}
    for member, listed in lists:
        catalogue = member.catalogue
        known = {model["id"]: model for model in listed["data"]}
        for name, model in known.items():
            if catalogue.offers(name):
                models.setdefault(name, model)
        for alias, name in catalogue.aliases.items():
            # `root` is vLLM's field for what is behind a name: the table of models looks there.
            models.setdefault(alias, {"root": name, "object": "model", **known.get(name, {}), "id": alias})
    first = lists[0][1] if len(lists) == 1 else _NO_LIST
    return {**first, "data": list(models.values())}


async def _ask_one(member: Member, authorization: str | None, within: float) -> dict[str, Any]:
    """The list as a backend gives it, without what is no model. Raises `Refused` for an answer that is no success, `ApiError`
    (502, 504) for none, or one that is no list."""
    headers = [] if authorization is None else [("Authorization", authorization)]
    try:
        async with asyncio.timeout(within):
            async with await member.backend.request("GET", "models", headers=headers) as answer:
                body = await answer.read()
    except TimeoutError:
        raise server_error("The backend did not list its models in time.", 504) from None
    except aiohttp.ClientError:
        raise server_error("The backend's answer broke off.") from None
    if answer.status != 200:
        passed = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        raise Refused(answer.status, body, passed)
    return _read(body)


def _read(body: bytes) -> dict[str, Any]:
    """The list in a body. Raises `ApiError` (502)."""
    try:
        listed = msgspec.json.decode(body)  # stricter than Python's own: half a character would spoil the catalog
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        listed = None
    data = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(listed, dict) or not isinstance(data, list):
        raise server_error("The backend's list of models cannot be read.")
    return {**listed, "data": [model for model in data if isinstance(model, dict) and isinstance(model.get("id"), str)]}


def _authorization(request: web.Request) -> str | None:
    """What the backend gets of the client's key; the backend's own key, where there is one, replaces it."""
    settings = request.app[GATEWAY].settings
    if settings.backend_api_key is not None or not forwards_authorization(settings):
        return None
    return request.headers.get("Authorization")


def _from_codex(request: web.Request) -> bool:
    """By its header, or by the version that it puts into the query of this request alone."""
    return clients.recognise(request.headers) is clients.CODEX or "client_version" in request.query
