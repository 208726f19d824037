"""The chat server of a reported case: the first rule that applies answers, else the case's answers in turn."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Json = dict[str, Any]

_HELLO: Json = {"events": [{"delta": {"content": "Hello there."}}, {"finish": "stop"}, {"usage": True}, "DONE"]}
_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_LETTERS = {"system": "s", "developer": "d", "user": "u", "assistant": "a", "tool": "t"}


class ChatServer:
    """Plays `backend` of a case. `requests` has the bodies that came; `piece` is the length of the pieces of markup."""

    def __init__(self, backend: Json, models: dict[str, str], piece: int) -> None:
        self.url = ""
        self.requests: list[Json] = []
        self._rules: list[Json] = backend.get("rules", [])
        self._answers: list[Json] = backend.get("answers", [])
        self._models = models
        self._piece = piece
        self._played = 0
        self._stopped = asyncio.Event()

    async def list_models(self, _: web.Request) -> web.Response:
        data = [{"id": name, "object": "model", "created": 1, "owned_by": owner} for name, owner in self._models.items()]
        return web.json_response({"object": "list", "data": data})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        answer = self._choose(body)
        if "status" in answer:
            return _plain(answer)
        events = [payload_of(event) for event in answer.get("events") or _markup_events(answer["markup"], self._piece)]
        if not body.get("stream"):
            return _whole(events)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **answer.get("headers", {})})
        await response.prepare(request)
        for event in events:
            if isinstance(event, float):
                await asyncio.sleep(event)
            else:
                await response.write(event)
        await self._hold(response, answer.get("hold"))
        return response

    def stop(self) -> None:
        """End the answers that are held."""
        self._stopped.set()

    def _choose(self, body: Json) -> Json:
        for rule in self._rules:
            index = _where(rule["if"], body)
            if index is not None:
                filled: Json = json.loads(json.dumps(rule["answer"]).replace("$i", str(index)))
                return filled
        if not self._answers:
            return _HELLO
        answer = self._answers[min(self._played, len(self._answers) - 1)]
        self._played += 1
        return answer

    async def _hold(self, response: web.StreamResponse, hold: Json | None) -> None:
        """Keep the connection open, and send something each second if the answer says so."""
        for _ in range(hold["seconds"] if hold else 0):
            if hold and "send" in hold:
                await response.write(hold["send"].encode())
            try:
                await asyncio.wait_for(self._stopped.wait(), 1)
            except TimeoutError:
                continue
            return


def _plain(answer: Json) -> web.Response:
    if "text" in answer:
        return web.Response(status=answer["status"], text=answer["text"], headers=answer.get("headers"))
    return web.json_response(answer["json"], status=answer["status"], headers=answer.get("headers"))


def payload_of(event: object) -> bytes | float:
    """Return the bytes of an event, or a pause in seconds."""
    if isinstance(event, int | float):
        return float(event)
    if isinstance(event, str):
        return b"data: [DONE]\n\n" if event == "DONE" else event.encode()
    assert isinstance(event, dict)
    return b"data: " + json.dumps(_chunk(event)).encode() + b"\n\n"


def _chunk(event: Json) -> Json:
    """Return the chunk that an event in short stands for."""
    if not {"delta", "finish", "usage"} & set(event) or "choices" in event:
        return event
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1780000000, "model": "m"}
    if set(event) == {"usage"}:
        return {**head, "choices": [], "usage": _USAGE if event["usage"] is True else event["usage"]}
    choice = {"index": 0, "delta": event.get("delta", {}), "finish_reason": event.get("finish"), **event.get("choice", {})}
    return {**head, "choices": [choice], **event.get("chunk", {})}


def _markup_events(text: str, piece: int) -> list[Any]:
    pieces = [text[start : start + piece] for start in range(0, len(text), piece)]
    return [*({"delta": {"content": part}} for part in pieces), {"finish": "stop"}, {"usage": True}, "DONE"]


def _whole(events: list[bytes | float]) -> web.Response:
    """Return the answer as one object, for a request that is not streamed: of a call, all that its deltas brought."""
    message: Json = {"role": "assistant", "content": None}
    whole: Json = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1780000000, "model": "m", "usage": _USAGE}
    finish = "stop"
    for event in events:
        if not isinstance(event, bytes) or not event.startswith(b"data: {"):
            continue
        for choice in json.loads(event[6:]).get("choices") or []:
            finish = choice.get("finish_reason") or finish
            for name, value in (choice.get("delta") or choice.get("message") or {}).items():
                grown = isinstance(value, str) and name != "role"
                message[name] = (message.get(name) or "") + value if grown else value
    return web.json_response({**whole, "choices": [{"index": 0, "message": message, "finish_reason": finish}]})


# ---- rules -------------------------------------------------------------------------------------------------------------


def _where(condition: Json, body: Json) -> int | None:
    """Return the index of the message to which a condition applies (0 if to none in particular); None if it does not apply."""
    if "roles_not" in condition:
        return 0 if re.match(condition["roles_not"], _roles(body)) is None else None
    if "has" in condition:
        return next((index for index, present in _places(condition["has"], body) if present), None)
    if "lacks" in condition:
        return next((index for index, present in _places(condition["lacks"], body) if not present), None)
    if "call_content" in condition:
        contents = [message.get("content", "missing") for message in body["messages"] if message.get("tool_calls")]
        return next((at for at, content in enumerate(contents) if content in condition["call_content"]), None)
    if "tools_say" in condition:
        return 0 if condition["tools_say"] in json.dumps(body.get("tools")) else None
    if "thoughtless" in condition:
        said = [message.get("reasoning_content") for message in body["messages"] if message["role"] == "assistant"]
        return next((at for at, thought in enumerate(said) if not thought), None)
    if "ids_above" in condition:
        ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
        return next((at for at, call_id in enumerate(ids) if len(call_id) > condition["ids_above"]), None)
    if "images_above" in condition:
        return 0 if json.dumps(body["messages"]).count('"image_url": {') > condition["images_above"] else None
    if "above" in condition:
        return 0 if any((body.get(name) or 0) > most for name, most in condition["above"].items()) else None
    assert set(condition) == {"value"}
    return 0 if all(body.get(name) == value for name, value in condition["value"].items()) else None


def _roles(body: Json) -> str:
    return "".join("c" if message.get("tool_calls") else _LETTERS[message["role"]] for message in body["messages"])


def _places(path: str, body: Json) -> Iterator[tuple[int, bool]]:
    """Yield for each place of a path (`messages[].tool_calls[].id`) its message's index, and whether something is there."""
    first, _, rest = path.partition("[].")
    if not rest:
        yield 0, _present(first, body)
        return
    for index, entry in enumerate(body.get(first) or []):
        for inner, present in _places(rest, entry):
            yield (index if first == "messages" else inner), present


def _present(path: str, value: Any) -> bool:
    for name in path.split("."):
        if not isinstance(value, dict) or value.get(name) is None:
            return False
        value = value[name]
    return True


@asynccontextmanager
async def serving(backend: Json, models: dict[str, str], piece: int) -> AsyncIterator[ChatServer]:
    """Serve a case's chat server on a free port. `models`: their names, and who owns them."""
    server = ChatServer(backend, models, piece)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_get("/v1/models", server.list_models)
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield server
    finally:
        server.stop()
        await runner.cleanup()
