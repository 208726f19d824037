"""`/v1/models`, also in the words of the Messages API: the backends' lists in OpenAI's shape (`data`), Codex's catalog of the
same (`models`), and what tools the gateway runs itself (`hosted_tools`), in one answer.

Codex fetches it at each start when its provider has `model_catalog_url`, and takes the whole catalog or nothing. An answer of
5xx keeps it waiting for seconds, so it never gets one: while the backend is down it gets the last list known, or else an empty
one, at which it falls back quietly. Other clients get the truth."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.backend.member import Member
from responses_gateway.backend.policies.health import LARGEST_LIST
from responses_gateway.backend.pool import Pool
from responses_gateway.bounded_body import read_at_most
from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.server.access.api_keys import Needs, needs
from responses_gateway.server.access.middleware import protocol_of
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.http.exchange import EXCHANGE, json_answer, read_limit
from responses_gateway.server.http.loop_detection import LoopDetection
from responses_gateway.server.protocols.messages import MESSAGES
from responses_gateway.server.resources.codex_catalog import ModelTable
from responses_gateway.stream.options import CODEX, recognise
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import (
    ApiError,
    gateway_key_refused,
    invalid_request,
    read_error,
    server_error,
    unknown_model,
)
from responses_gateway.wire.json_text import quoted
from responses_gateway.wire.messages import for_client

# How long a list is kept, in seconds: Codex asks twice at once, and several windows of a user start together.
KEPT_SECONDS = 3.0
# Lists kept, one for each key of a client.
_LISTS = 64
_PASSED_BACK = ("Content-Type", "Content-Encoding", "Retry-After")
_NO_LIST: dict[str, Any] = {"object": "list", "data": []}
_MOST = 1000
_DEFAULT = 20


class Refused(Exception):
    """The backend answered the question for its models with an error: status, body as it came, the headers that go with it."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    def passed_on(self) -> web.Response:
        """Return the same answer for the client."""
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@dataclass
class _Kept:
    """A list and when it came. The lock merges questions that come at the same time into one."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer: dict[str, Any] | None = None
    at: float = 0.0


class Models:
    """Serves the models of the backends, as each key may see them."""

    def __init__(
        self, table: ModelTable, pool: Pool, live: LiveSettings, loop_detection: LoopDetection, hosted_tools: Sequence[str] = ()
    ) -> None:
        """`hosted_tools` are the types of tools that the gateway runs itself, for clients."""
        self._table = table
        self._pool = pool
        self._live = live
        self._loop_detection = loop_detection
        self._hosted_tools = list(hosted_tools)
        self._kept: BoundedDict[bytes, _Kept] = BoundedDict(_LISTS)

    async def list_models(self, request: web.Request) -> web.Response:
        """Answer `GET /v1/models`. The ETag covers what matters to Codex only: vLLM's list contains the time of day."""
        try:
            listed = await self.listed(request)
        except Refused as refused:
            return refused.passed_on()
        catalog = [self._table.catalog_entry(model) for model in listed["data"]]
        etag = f'W/"{hashlib.sha256(quoted(catalog)).hexdigest()[:32]}"'
        if etag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers={"ETag": etag})
        # Ours goes last: llama.cpp has a `models` of another shape, which would make Codex reject the whole catalog.
        judges = self._live.current.settings.safeguards_model is not None
        ours = {"models": catalog, "hosted_tools": self._hosted_tools, "safeguards": judges}
        answer = json_answer({**listed, **ours})
        answer.headers["ETag"] = etag
        return answer

    async def retrieve_model(self, request: web.Request) -> web.Response:
        """Answer `GET /v1/models/{id}` with one of the list, and its entry for Codex. The id may have slashes."""
        name = request.match_info["id"]
        try:
            listed = await self.listed(request)
        except Refused as refused:
            return refused.passed_on()
        for model in listed["data"]:
            if model["id"] == name:
                return web.json_response({**self._table.catalog_entry(model), **model})
        raise unknown_model(name)

    async def listed(self, request: web.Request) -> dict[str, Any]:
        """Return the list. Codex gets the last one known, or an empty one, where others get the backend's failure."""
        headers = {"Via": self._loop_detection.via(request)}
        authorization = self._authorization(request)
        if authorization is not None:
            headers["Authorization"] = authorization
        kept = self._kept_for(authorization)
        try:
            return self._visible(request, await self._recent(kept, headers))
        except (Refused, ApiError) as error:
            # Codex is recognised by its header, or by the version that it puts into the query of this request alone.
            from_codex = recognise(request.headers) is CODEX or "client_version" in request.query
            if not from_codex or not (error.status >= 500 or error.status == 429):
                raise
            logs.logger().warning("no models from the backend", extra=logs.fields(status=error.status))
            return self._visible(request, kept.answer or _NO_LIST)

    def _visible(self, request: web.Request, listed: dict[str, Any]) -> dict[str, Any]:
        """Return the part of a list that the client may use."""
        allows = request[EXCHANGE].allows
        return listed if allows is None else {**listed, "data": [model for model in listed["data"] if allows(model["id"])]}

    async def _recent(self, kept: _Kept, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the backends' list, a few seconds old at most. Raise `Refused` and `ApiError`."""
        loop = asyncio.get_running_loop()
        async with kept.lock:
            if kept.answer is None or loop.time() - kept.at > KEPT_SECONDS:
                kept.answer = await self._ask(headers)
                kept.at = loop.time()
            return kept.answer

    def _kept_for(self, authorization: str | None) -> _Kept:
        # By a digest, so that clients' keys stay in memory no longer than needed.
        key = hashlib.sha256((authorization or "").encode("utf-8", "surrogateescape")).digest()
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        return kept

    async def _ask(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the lists of all backends that answer, as one. Raise as `_ask_one` does if there is none."""
        members = list(self._pool.members.by_name.values())
        if not members:
            return _NO_LIST
        within = self._live.current.settings.connect_timeout
        asking = (_ask_one(self._pool, member, headers, within) for member in members)
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Refused | ApiError):
                raise answer
        lists = [(member, answer) for member, answer in zip(members, answers, strict=True) if isinstance(answer, dict)]
        if not lists:
            raise next(answer for answer in answers if isinstance(answer, BaseException))
        return _union(lists)

    def _authorization(self, request: web.Request) -> str | None:
        """Return what the backend gets of the client's key; the backend's own key, where there is one, replaces it."""
        settings = self._live.current.settings
        if settings.backend_api_key is not None or not settings.forwards_client_key:
            return None
        return request.headers.get("Authorization")


def _union(lists: list[tuple[Member, dict[str, Any]]]) -> dict[str, Any]:
    """Return one list of several: each model once, as the first backend has it, and under its aliases too."""
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


async def _ask_one(pool: Pool, member: Member, headers: Mapping[str, str], within: float) -> dict[str, Any]:
    """Return the list of one backend, without entries that are not models. Raise `Refused` for an answer that is not a success,
    `ApiError` (502, 504) for none, or one that is not a list."""
    try:
        async with asyncio.timeout(within):
            async with await member.backend.request("GET", "models", headers=headers.items()) as answer:
                body = await read_at_most(answer.content, LARGEST_LIST)
    except TimeoutError:
        raise server_error("The backend did not list its models in time.", 504) from None
    except aiohttp.ClientError:
        raise server_error("The backend's answer broke off.") from None
    if pool.refuses_gateway_key(member, answer.status):
        raise gateway_key_refused(answer.status)
    if answer.status != 200:
        passed = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        raise Refused(answer.status, body, passed)
    return _read(body)


def _read(body: bytes) -> dict[str, Any]:
    """Return the list in a body. Raise `ApiError` (502)."""
    try:
        listed = msgspec.json.decode(body)  # stricter than Python's own: half a character would spoil the catalog
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        listed = None
    data = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(listed, dict) or not isinstance(data, list):
        raise server_error("The backend's list of models cannot be read.")
    return {**listed, "data": [model for model in data if isinstance(model, dict) and isinstance(model.get("id"), str)]}


def by_version(others: Handler, messages: Handler) -> Handler:
    """Return the handler for a path that both APIs have."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await (messages if protocol_of(request) is MESSAGES else others)(request)

    return handle


@needs(Needs.NOTHING)
async def hello(_request: web.Request) -> web.Response:
    """Answer `HEAD`, which Claude Code asks at its start: there is a server."""
    return web.Response()


class MessagesModels:
    """Serves the models of the backends, with their aliases."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def list_models(self, request: web.Request) -> web.Response:
        """Answer `GET /v1/models` with a page of the list."""
        models = [_shown(model) for model in await self._listed(request)]
        page, more = _page(models, request)
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
        return web.json_response({"data": page, "has_more": more, **ends})

    async def retrieve_model(self, request: web.Request) -> web.Response:
        """Answer `GET /v1/models/{id}`. The id may have slashes."""
        name = request.match_info["id"]
        for model in await self._listed(request):
            if model["id"] == name:
                return web.json_response(_shown(model))
        raise ApiError(404, f"model: {name[:100]}", param="model", code="model_not_found")

    async def _listed(self, request: web.Request) -> Sequence[Mapping[str, Any]]:
        try:
            listed: Sequence[Mapping[str, Any]] = (await self._models.listed(request))["data"]
        except Refused as refused:
            raise for_client(read_error(refused.status, refused.body)) from None
        return listed


def _shown(model: Mapping[str, Any]) -> dict[str, Any]:
    created = model.get("created")
    moment = datetime.fromtimestamp(created if type(created) is int and 0 <= created < 2**32 else 0, UTC)
    entry = {"type": "model", "id": model["id"], "display_name": model["id"], "created_at": f"{moment:%Y-%m-%dT%H:%M:%SZ}"}
    window = model.get("max_model_len")
    return {**entry, "max_input_tokens": window, "max_tokens": window} if type(window) is int else entry


def _page(models: list[dict[str, Any]], request: web.Request) -> tuple[list[dict[str, Any]], bool]:
    """Return the models that are asked for, and whether there are more. Raise `ApiError` 400."""
    limit = read_limit(request, _DEFAULT, _MOST)
    ids = [model["id"] for model in models]
    if (before := request.query.get("before_id")) is not None:
        end = _position(ids, before, "before_id")
        return models[max(0, end - limit) : end], end > limit
    begin = 0
    if (after := request.query.get("after_id")) is not None:
        begin = _position(ids, after, "after_id") + 1
    return models[begin : begin + limit], len(models) > begin + limit


def _position(ids: list[str], wanted: str, param: str) -> int:
    if wanted not in ids:
        raise invalid_request(f"{param}: there is no model of this id.", param, "invalid_value")
    return ids.index(wanted)
