"""Several backends that do as they are told: each answers, refuses, hangs or drops its chat requests, and counts them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiohttp import web

from responses_gateway.backend.policies.affinity import preference
from responses_gateway.simulator import serving
from tests.server.running_gateway import Answer, Served, gateway, post, until
from tests.server.scripted_backend import chunk, text_stream


class Replica:
    """A backend. `does` what it does with chat requests: "answer", a status, "drop", "hang"; it breaks off after the head
    ("break"), the chunk that says who speaks ("role") or the first words ("cut"), or ends in good order after the head
    ("end"); it is silent after the head of a stream ("silence"), of something else ("object") or of a 503 ("refuse"); it
    refuses with status 200 ("503 in the stream", "503 with status 200")."""

    def __init__(self, name: str, models: tuple[str, ...] = ("m",)) -> None:
        self.name = name
        self.models = models
        self.does: str | int = "answer"
        self.headers: dict[str, str] = {}
        self.reason = f"{name} refuses"
        self.health = 200
        self.lists = True  # its models
        self.url = ""
        self.asked: list[dict[str, Any]] = []  # the bodies of chat requests
        self.authorizations: list[str | None] = []
        self.others: list[tuple[str, str, bytes]] = []  # method, path and body of requests to be relayed
        self.checks = 0
        self.active = 0
        self.go_on = asyncio.Event()  # set: what hangs goes on
        self._leave: AsyncExitStack | None = None

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_route("*", "/{path:.+}", self._other)
        return app

    async def start(self, port: int = 0) -> None:
        self._leave = AsyncExitStack()
        self.url = await self._leave.enter_async_context(serving(self.app(), port=port))

    async def stop(self) -> None:
        self.go_on.set()
        if self._leave is not None:
            await self._leave.aclose()
            self._leave = None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def place(self) -> str:
        """The name that the gateway gives it."""
        return self.url.removeprefix("http://")

    async def _health(self, request: web.Request) -> web.Response:
        self.checks += 1
        return web.Response(status=self.health)

    async def _models(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("Authorization"))
        if not self.lists:
            return web.Response(status=404)
        data = [{"id": model, "object": "model", "owned_by": "vllm", "max_model_len": 1024} for model in self.models]
        return web.json_response({"object": "list", "data": data})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        self.authorizations.append(request.headers.get("Authorization"))
        self.active += 1
        try:
            return await self._answer(request)
        except ConnectionError:  # the gateway has left
            return web.Response()
        finally:
            self.active -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.transport is None:
            raise ConnectionResetError
        if self.does == "503 with status 200":
            return web.json_response({"error": {"message": "The engine is down.", "code": 503}})
        if isinstance(self.does, int):
            error = {"error": {"message": self.reason, "type": "x", "code": self.does}}
            return web.json_response(error, status=self.does, headers=self.headers)
        if self.does == "drop":
            request.transport.abort()
            return web.Response()
        kind = "application/json" if self.does in {"object", "refuse"} else "text/event-stream"
        response = web.StreamResponse(status=503 if self.does == "refuse" else 200, headers={"Content-Type": kind})
        response.enable_chunked_encoding()
        if self.does == "hang":
            await self._told(request)
        await response.prepare(request)
        if self.does in {"silence", "object", "refuse"}:
            await response.write(b": the engine loads\n\n" if self.does == "silence" else b" \n")
            await self._told(request)
        if self.does == "503 in the stream":
            await response.write(b'data: {"error":{"message":"The engine is down.","code":503}}\n\n')
            return response
        if self.does == "role":
            await response.write(chunk({"role": "assistant", "content": ""}))
        if self.does in {"break", "role"}:
            request.transport.close()
            return response
        if self.does == "end":
            return response
        for piece in text_stream(self.name):
            await response.write(piece)
            if self.does == "cut":
                request.transport.close()
                return response
        await response.write_eof()
        return response

    async def _told(self, request: web.Request) -> None:
        """Wait to be told to go on, or for the gateway to leave."""
        await until(lambda: self.go_on.is_set() or request.transport is None)
        if request.transport is None:
            raise ConnectionResetError

    async def _other(self, request: web.Request) -> web.Response:
        self.others.append((request.method, request.path, await request.read()))
        return web.json_response({"answered_by": self.name})


@asynccontextmanager
async def replicas(*several: Replica) -> AsyncIterator[tuple[Replica, ...]]:
    """Serve them while the block runs."""
    try:
        for one in several:
            await one.start()
        yield several
    finally:
        for one in several:
            await one.stop()


@asynccontextmanager
async def pool(
    *several: Replica | str, details: dict[str, dict[str, Any]] | None = None, **settings: Any
) -> AsyncIterator[tuple[Any, ...]]:
    """A gateway before several backends, given by themselves or by their names: the gateway and the replicas.

    With `details` they stand in the setting `backends`, with these fields and by the names of the replicas.
    """
    async with replicas(*(one if isinstance(one, Replica) else Replica(one) for one in several)) as started:
        urls = [one.url for one in started] if details is None else []
        if details is not None:
            settings["backends"] = {one.name: {"url": one.url, **details.get(one.name, {})} for one in started}
        async with gateway(*urls, **settings) as served:
            yield (served, *started)


def key_of(served: Served, replica: Replica) -> str:
    """A cache key that prefers this replica: their names have ports in them, and differ from run to run."""
    names = [(name, 1.0) for name in served.parts.pool.members.by_name]
    place = replica.place if replica.place in dict(names) else replica.name
    return next(key for key in map(str, range(1000)) if preference(f"key:{key}", names)[0] == place)


async def ask_first(served: Served, replica: Replica, **fields: Any) -> Answer:
    """The answer to a request that goes to this replica first."""
    return await post(served, model="m", prompt_cache_key=key_of(served, replica), **fields)


def text_of(final: dict[str, Any]) -> str:
    """The text of a response: the name of the replica that wrote it."""
    return str(final["output"][0]["content"][0]["text"])
