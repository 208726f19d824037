"""Questions to all workers of a gateway.

Each worker answers the others on a Unix socket in the folder that they share, which only their user can read. A question is the
name of a method of `WorkerView` and its arguments, the answer what that method returns; both as JSON over HTTP."""

from __future__ import annotations

import asyncio
import errno
import inspect
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Set
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec
from aiohttp import web

from responses_gateway.ended_tasks import end_tasks
from responses_gateway.server.http.exchange import json_answer
from responses_gateway.server.window.worker_view import WorkerView
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import ApiError

T = TypeVar("T")
_PREFIX = "window-"
_SUFFIX = ".sock"
# Seconds within which a worker has to answer; one that hangs is left out.
ANSWER_TIMEOUT = 5.0
_BUSY = "The process that has this request does not answer in time. Please try again."
_CONNECTIONS = 20  # connections to one worker: more questions at the same time wait for each other
# Seconds after which a socket that refuses connections is that of a worker that has ended.
OPENING_TIMEOUT = 5.0
# The methods of a view that other workers may call.
_METHODS = frozenset({
    "answer", "backends", "contents", "intervals", "live_steps", "record", "record_for", "recording", "replay", "request",
    "requests", "search", "steps",
})  # fmt: skip


class Workers:
    """Asks this worker and, where there are several, the others. `folder` is the one that they share.

    The connections to a worker are kept until that worker has ended."""

    def __init__(self, view: WorkerView | None, folder: Path | None, questions: Mapping[str, Callable[..., Any]]) -> None:
        """`view` is None without the window. `questions` may be asked, too, by their names."""
        self._view = view
        self._name = secrets.token_hex(4) if view is None else view.name
        self._answered = questions.keys() if view is None else _METHODS | questions.keys()
        self._questions = questions
        self._folder = folder
        self._sessions: dict[str, aiohttp.ClientSession] = {}  # by worker

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answer the other workers until the block ends; then close all connections."""
        if self._folder is None:
            yield
            self._close_view()
            return
        app = web.Application(client_max_size=1024 * 1024)
        app.router.add_post("/", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        socket = self._socket_of(self._name)
        try:
            await web.UnixSite(runner, socket).start()
            yield
        finally:
            await self._close_sessions(set(self._sessions))
            await runner.cleanup()
            socket.unlink(missing_ok=True)
            self._close_view()

    async def ask_all(self, method: str, *arguments: Any, busy: Any = None) -> list[Any]:
        """Return the answers of all workers, this one's first. Those that do not answer are left out; with `busy` that is the
        answer of each one that does not do so in time."""
        own = await self.ask_here(method, *arguments)
        names = [name for name in self._names() if name != self._name]
        await self._close_sessions(self._sessions.keys() - names)
        answers = await asyncio.gather(*(self._ask(name, method, arguments) for name in names), return_exceptions=True)
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, BaseException):
                logs.logger().debug("a worker shows nothing", extra=logs.fields(process=name, error=repr(answer)))
                self._forget_dead(name, answer)
        answers = [busy if busy and isinstance(answer, TimeoutError) else answer for answer in answers]
        return [own, *(answer for answer in answers if not isinstance(answer, BaseException))]

    async def ask_owner(self, request_id: str, method: str, *arguments: Any) -> Any:
        """Return the answer of the worker that has the request. Raise `ApiError`: 404 if that has ended, 503 if it is busy."""
        name = request_id.partition("-")[0]
        if name == self._name:
            return await self.ask_here(method, request_id, *arguments)
        if name in self._names():
            try:
                return await self._ask(name, method, (request_id, *arguments))
            except TimeoutError:
                raise ApiError(503, _BUSY, code="worker_busy") from None
            except (aiohttp.ClientError, OSError):
                pass  # it has just ended
        raise ApiError(404, "This request is not known here: it was never made, or its process has ended.", code="not_found")

    async def ask_here(self, method: str, *arguments: Any) -> Any:
        """Return the answer of this worker. Raise `ApiError`."""
        handler = self._questions.get(method) or getattr(self._view, method)
        answer = handler(*arguments)
        return await answer if inspect.isawaitable(answer) else answer

    def _close_view(self) -> None:
        if self._view is not None:
            self._view.close()

    def _names(self) -> list[str]:
        if self._folder is None:
            return [self._name]
        with suppress(OSError):  # this process may open no more files: those that it has asked before are asked
            return sorted(path.name[len(_PREFIX) : -len(_SUFFIX)] for path in self._folder.glob(f"{_PREFIX}*{_SUFFIX}"))
        return [self._name, *self._sessions]

    def _forget_dead(self, name: str, error: BaseException) -> None:
        """Delete the socket of a worker that was killed. One that is being opened refuses connections, too."""
        socket = self._socket_of(name)
        refused = isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED
        with suppress(OSError):
            if refused and time.time() - socket.stat().st_mtime > OPENING_TIMEOUT:
                socket.unlink()

    def _socket_of(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{_PREFIX}{name}{_SUFFIX}"

    def _session_of(self, name: str) -> aiohttp.ClientSession:
        session = self._sessions.get(name)
        if session is None:
            connector = aiohttp.UnixConnector(str(self._socket_of(name)), limit=_CONNECTIONS)
            session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT))
            self._sessions[name] = session
        return session

    async def _close_sessions(self, names: Set[str]) -> None:
        sessions = [self._sessions.pop(name) for name in names]
        for session in sessions:
            await session.close()

    async def _ask(self, name: str, method: str, arguments: tuple[Any, ...]) -> Any:
        question = msgspec.json.encode([method, arguments])
        async with self._session_of(name).post("http://worker/", data=question) as response:
            answer = msgspec.json.decode(await response.read())
        if response.status != 200:
            raise ApiError(response.status, answer["message"], code=answer["code"])
        return answer

    async def _answer(self, request: web.Request) -> web.Response:
        method, arguments = msgspec.json.decode(await request.read())
        if method not in self._answered:
            return json_answer({"message": "Not known to this worker.", "code": "not_found"}, 404)
        try:
            return json_answer(await self.ask_here(method, *arguments))
        except ApiError as error:
            return json_answer({"message": error.message, "code": error.code}, error.status)


class SharedAnswer(Generic[T]):
    """The answer to one question, which `ask` finds, kept for `max_age` seconds: visitors who ask meanwhile share it."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, T]], max_age: float) -> None:
        self._ask = ask
        self._max_age = max_age
        self._asking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the answer, which the caller must not change."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._find())
        return await asyncio.shield(self._asking)  # the question is not cancelled with the visitor who came first

    async def close(self) -> None:
        """Cancel a question that is not answered yet."""
        await end_tasks(self._asking)

    async def _find(self) -> T:
        try:
            return await self._ask()
        finally:
            asyncio.get_running_loop().call_later(self._max_age, self._forget)

    def _forget(self) -> None:
        self._asking = None
