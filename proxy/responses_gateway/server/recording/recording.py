"""One recorded exchange: what a bug report needs, and what `responses-gateway replay` runs again.

The translator does no I/O, so the request and the translator's calls (with the bytes of each read, and when they came) are the
whole exchange: the same calls give the same events."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from responses_gateway.request import Policy
from responses_gateway.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from responses_gateway.stream.tape import Call
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import ResponsesRequest

# What one exchange may hold in memory while it runs, in bytes; the rest of a longer one is not recorded.
EXCHANGE_LIMIT = 16 * 1024 * 1024
_CALL_COST = 100  # about what a call costs besides its bytes
# Names of fields whose text is a secret (of an MCP server, say); case, `-` and `_` are ignored.
_SECRET_FIELDS = frozenset({"authorization", "apikey", "accesstoken", "refreshtoken", "clientsecret", "password", "cookie"})
# Shorter texts are replaced only where they are a whole string: replacing each "no" would spoil the record.
SHORTEST_SECRET = 8
REDACTED = "[redacted]"


@dataclass
class Recording:
    """Keeps one exchange while it runs, bytes as they are; `keep` writes it down when it is over."""

    keep: Callable[[Recording], None]
    unwritable: tuple[str, ...]  # texts that may not be written down
    settings: Mapping[str, Any]
    headers: dict[str, str]
    websocket: bool
    api: str = "responses"
    began: float = field(default_factory=time.time)
    # Takes the place of a response id where there is none.
    number: str = field(default_factory=lambda: secrets.token_hex(8))
    size: int = 0
    truncated: bool = False
    request: bytes | None = None
    context: bytes | None = None
    chat: bytes | None = None
    response_id: str | None = None
    begun: dict[str, Any] = field(default_factory=dict)
    compacted_chat: bytes | None = None
    later_chats: list[bytes] = field(default_factory=list)
    refusal: dict[str, Any] | None = None
    calls: list[tuple[Call, bytes]] = field(default_factory=list)
    outcome: str = "failed"
    error: ApiError | None = None
    beyond: bool = False  # the request was refused for something that is not in the record: the store, a limit
    _parsed: bool = False
    _ended: bool = False

    @property
    def name(self) -> str:
        """The name of the file that the exchange gets."""
        moment = datetime.fromtimestamp(self.began, UTC)
        return f"exchange-{moment:%Y%m%dT%H%M%S.%f}-{self.response_id or self.number}.jsonl"

    def received(self, body: bytes) -> None:
        """Take the body of the client's request."""
        if self._fits(len(body)):
            self.request = body

    def parsed(self) -> None:
        """Note that the request is valid."""
        self._parsed = True

    def found(
        self,
        request: ResponsesRequest,
        policy: Policy,
        served_as: str,
        *,
        original: object,
        history: Sequence[Any],
        references: Mapping[str, Any],
        replaced: frozenset[int],
        hosted: HostedTools,
        results: Mapping[str, bytes],
    ) -> None:
        """Take what the translation is made of besides the request as it came: `request` and `policy` are those that the
        translation gets, `original` is the input as it came, and `served_as` is the backend's name of the model. `hosted`
        are the tools that the gateway runs itself, `results` the results of earlier calls of them."""
        values: dict[str, Any] = {
            "input": request.input if request.input != original else None,
            "history": history,
            "references": dict(references),
            "replaced": sorted(replaced),
            "hosted": msgspec.to_builtins(hosted) if hosted is not NO_HOSTED_TOOLS else None,
            "results": {item_id: msgspec.Raw(result) for item_id, result in results.items()},
        }
        context = {name: value for name, value in values.items() if value}
        context |= {"store": request.store, "stores_responses": policy.stores_responses, "served_as": served_as}
        data = msgspec.json.encode(context)
        if self._fits(len(data)):
            self.context = data

    def translated(self, translator: Translator, chat: bytes, start: object) -> None:
        """Take the chat request, and what the translator of its answer begins with; `start` is how the answer is read."""
        if self._fits(len(chat)):
            self.chat = chat
        options = translator.options
        self.response_id = options.response_id
        self.begun = {
            "created": translator.created,
            "start": msgspec.to_builtins(start),
            "continuable": options.continuable,
            "holds_text": options.holds_text,
        }
        if options.goes_on:
            self.begun["early_ends"] = msgspec.to_builtins(options.early_ends)
        if options.form is not None:
            self.begun["form"] = msgspec.to_builtins(options.form)

    def note(self, call: Call, sent: bytes) -> None:
        """Take a call of the translator, and the events that it returned."""
        if self._fits(_CALL_COST + len(call.argument or b"") + len(sent) + sum(map(len, call.sealed))):
            self.calls.append((call, sent))

    def compacted(self, chat: bytes) -> None:
        """Take the chat request that is sent instead, after the context was summarised."""
        if self._fits(len(chat)):
            self.compacted_chat = chat

    def asked_again(self, chat: bytes) -> None:
        """Take the chat request for the next turn of the model."""
        if self._fits(len(chat)):
            self.later_chats.append(chat)

    def backend_refused(self, status: int, body: bytes, retry_after: float | None, *, gateway_key: bool) -> None:
        """Take the backend's refusal. `gateway_key`: of the gateway's own key."""
        if self._fits(len(body)):
            self.refusal = {"status": status, "body": as_text(body), "retry_after": retry_after, "gateway_key": gateway_key}

    def failed(self, error: ApiError) -> None:
        """Take the error that is the answer instead of a response."""
        if self._ended:
            return
        self.outcome = "rejected" if error.status < 500 else "failed"
        self.beyond = self._parsed and self.context is None and not self.truncated
        self.error = error.copy()

    def end(self, outcome: str) -> None:
        """Write the exchange down. Only the first call counts."""
        if not self._ended:
            self._ended = True
            self.outcome = outcome
            self.keep(self)

    def _fits(self, size: int) -> bool:
        """Count bytes. Once there are too many nothing more is taken, so that a record never has gaps."""
        self.size += size
        self.truncated = self.truncated or self.size > EXCHANGE_LIMIT
        return not self.truncated


class Redaction:
    """Removes secrets from bodies, and remembers them, since events may repeat what the request said."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self._found = set(known)

    def value(self, body: bytes) -> Any:
        """Return the value of a body, redacted; a body that is not JSON stays bytes, under a name that says so."""
        try:
            return self._redacted(msgspec.json.decode(body))  # as the gateway itself reads it
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {"not_json": as_text(body)}

    def text(self, record: str) -> str:
        """Return a whole record without the secrets found so far: in its own strings, and in JSON inside of them."""
        for secret in sorted(self._found, key=len, reverse=True):
            inside = json.dumps(json.dumps(secret, ensure_ascii=False))[1:-1]  # with its quotation marks
            if len(secret) >= SHORTEST_SECRET:
                record = record.replace(json.dumps(secret)[1:-1], REDACTED).replace(inside[2:-2], REDACTED)
            else:
                record = record.replace(inside, f'\\"{REDACTED}\\"')
        return record

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._redacted(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        return {name: self._field(name, entry, of=value) for name, entry in value.items()}

    def _field(self, name: str, entry: Any, of: dict[str, Any]) -> Any:
        if name == "headers" and of.get("type") == "mcp" and isinstance(entry, dict):
            return {header: self._secret(text) for header, text in entry.items()}
        if isinstance(entry, str) and entry and name.lower().replace("-", "").replace("_", "") in _SECRET_FIELDS:
            return self._secret(entry)
        return self._redacted(entry)

    def _secret(self, text: Any) -> str:
        if isinstance(text, str) and text:
            self._found.add(text)
        return REDACTED


def as_text(data: bytes) -> str | dict[str, str]:
    """Return bytes as a record has them: a text, or `{"base64": …}` where they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
