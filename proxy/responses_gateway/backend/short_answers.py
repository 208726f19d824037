"""The short chat requests that the gateway makes itself (a question to a guard, a decision, a correction): each read whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.served_models import Route
from responses_gateway.wire.errors import in_client_terms, read_error, server_error
from responses_gateway.wire.json_text import decode_as, quoted

_A = TypeVar("_A")

_NO_COMPLETION = "The backend sent something that is not a chat completion."
_LIMIT = 4 * 1024 * 1024  # bytes of an answer that are read


class _Message(msgspec.Struct):
    content: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Any = None


class Completion(msgspec.Struct):
    """What of an answer is read by those who want its text."""

    choices: list[_Choice]

    @property
    def text(self) -> str:
        """The text of the first choice; empty if there is none."""
        content = self.choices[0].message.content if self.choices else None
        return content if isinstance(content, str) else ""

    @property
    def stopped(self) -> bool:
        """Whether the model ended the text itself."""
        return bool(self.choices) and self.choices[0].finish_reason == "stop"


async def ask(pool: Pool, body: Mapping[str, Any] | bytes, headers: Mapping[str, str], route: Route, kind: type[_A]) -> _A:
    """Return the answer to a chat request, decoded as `kind`. Raise `ApiError`, in the words of clients, where a backend
    refuses it, fails, or sends something else."""
    data = body if isinstance(body, bytes) else quoted({**body, "stream": False})
    own = {name: value for name, value in headers.items() if name != "X-Request-Id"}  # each gets an id, because several may run
    async with await pool.open_chat(data, lambda _name, _url: own, route) as chat:
        if chat.status != 200:
            error = read_error(chat.status, await chat.read_refusal(), chat.retry_after)
            raise in_client_terms(pool.refusal_for_clients(chat, error))
        if chat.is_event_stream:  # though none was asked for
            raise server_error(_NO_COMPLETION)
        answer = await chat.read(_LIMIT)
    try:
        return decode_as(answer, kind)
    except msgspec.DecodeError:
        raise server_error(_NO_COMPLETION) from None
