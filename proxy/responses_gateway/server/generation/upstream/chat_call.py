"""One chat request on its way to a backend, and what may stand between the answers and the translator: an `AnswerFilter`
decides what passes, and when. An `Upstream` calls it; it reaches the backend by the `AnswerSource` that `begin` gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote
from zlib import crc32

import msgspec

from responses_gateway.backend.served_models import Route
from responses_gateway.request import Loss
from responses_gateway.request.growing import ChatJson
from responses_gateway.request.prompt_cache.prompt_print import Prompt, read_prompt
from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.settings import Settings
from responses_gateway.settings.backend import PLACEHOLDERS
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry.tracing import trace_headers
from responses_gateway.wire.added_fields import ALWAYS_ADDED, AddedFields
from responses_gateway.wire.errors import ApiError

_LONGEST = 256  # characters of the value of a header
# What a value may consist of; anything else is percent-encoded.
_SAFE = "!#$&'()*+,/:;=?@[]^`|~ "
Receive: TypeAlias = Callable[[bytes], None]  # takes what one read brought


class AnswerKeeper(Protocol):
    """Keeps something of the answers of one response, whose turns and backends may be several."""

    def begin(self, facts: RequestFacts) -> None:
        """Take the facts of the request, before a backend is asked."""

    async def asking(self, call: ChatCall) -> ChatCall:
        """Return a request as it is to be sent: that of each turn, and again for each backend that is asked it."""

    async def keep(self, translator: Translator) -> None:
        """Keep what is to be kept of a response that has ended, before its client gets the terminal event, or that its client
        has left. Never raises."""


class StrictForm(NamedTuple):
    """The tools that a server is to enforce, and the same as they are `declared`, both as JSON. `refused` is called with the
    words of one that refuses only that."""

    tools: bytes
    declared: bytes
    refused: Callable[[bytes], None]


class StrictTools(Protocol):
    """Has servers enforce the schemas of tools, where the client has not asked for it."""

    def form(self, tools: Sequence[Any], backend: str, model: str) -> StrictForm | None:
        """Return the tools for a backend, by its label in metrics and its name of the model; None: as they are."""


class ChatCall(msgspec.Struct, frozen=True, eq=False):
    """The body of a chat request, as data and as the JSON that is sent (`data`); the headers that go with it, and its route.
    `added` are the fields of the body that the client has not asked for, and `words` names what it loses with them. `keeper`
    may keep something of the answer. `strict` has servers enforce the schemas of its tools, which `body` has as they came.
    `written` are the parts of the JSON, where they are known.

    Nothing changes a body in place: `with_body` returns the call of another one."""

    body: Mapping[str, Any]
    data: bytes
    headers: Mapping[str, str]
    route: Route
    added: AddedFields = ALWAYS_ADDED
    strict: StrictTools | None = None
    words: Callable[[Iterable[Loss]], Sequence[Loss]] = list
    keeper: AnswerKeeper | None = None
    written: ChatJson | None = None

    def prompt(self, key: str | None = None, checksum: Callable[[bytes], int] = crc32) -> Prompt:
        """Return what tells whether a later request begins like this one; `key` and `checksum`: see `read_prompt`."""
        written = self.written
        if written is None:
            return read_prompt(self.data, key, checksum=checksum)
        return read_prompt(written.others, key, written.messages, checksum)

    def with_body(self, body: Mapping[str, Any]) -> ChatCall:
        """Return the call with another body, which is encoded here and nowhere else."""
        return msgspec.structs.replace(self, body=body, data=msgspec.json.encode(body), written=None)

    def with_tools(self, tools: Sequence[Any]) -> ChatCall:
        """Return the call with other tools, none of which is strict. Messages whose JSON is known are not encoded anew."""
        body = {**self.body, "tools": tools}
        written = None if self.written is None else self.written.with_fields(body)
        data = msgspec.json.encode(body) if written is None else written.data
        return msgspec.structs.replace(self, body=body, data=data, written=written, strict=None)

    def strict_data(self, form: StrictForm) -> bytes:
        """Return the JSON that is sent, with strict tools. What stands before them, the history, is not encoded anew."""
        names = list(self.body)
        behind = {name: self.body[name] for name in names[names.index("tools") + 1 :]}
        rest = b"," + msgspec.json.encode(behind)[1:] if behind else b"}"
        end = form.declared + rest
        if not self.data.endswith(b'"tools":' + end):
            return self.with_body({**self.body, "tools": msgspec.Raw(form.tools)}).data
        return b"".join((memoryview(self.data)[: -len(end)], form.tools, rest))


def backend_headers(settings: Settings, headers: Mapping[str, str], request_id: str) -> dict[str, str]:
    """Return the headers for the backend: the id of the request (sent as a UUID), and of the client's its key and its trace."""
    sent = {"X-Request-Id": request_id}
    if "traceparent" in headers:
        sent.update(trace_headers(headers))
    authorization = headers.get("Authorization")
    if authorization is not None and settings.forwards_client_key:
        sent["Authorization"] = authorization
    return sent


def filled(templates: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the settings give requests, with what is known of this one in place of placeholders. A header
    whose placeholder has no value is left out. Long values are replaced by their hash."""
    texts = {}
    for name, template in templates.items():
        placeholders = [placeholder for placeholder in PLACEHOLDERS if f"{{{placeholder}}}" in template]
        if not all(values.get(placeholder) for placeholder in placeholders):
            continue
        text = template
        for placeholder in placeholders:
            text = text.replace(f"{{{placeholder}}}", _sendable(values[placeholder]))
        texts[name] = text
    return texts


def _sendable(value: str) -> str:
    text = quote(value, safe=_SAFE, errors="replace").strip()
    return text if len(text) <= _LONGEST else blake2b(value.encode("utf-8", "replace"), digest_size=16).hexdigest()


class AnswerSource(Protocol):
    """The answer of a backend, as a filter may control it."""

    def hold(self) -> None:
        """Read no more, because too much is held back."""

    def release(self) -> None:
        """Read again, unless the client takes no more."""

    def disconnect(self) -> None:
        """End the connection: the backend stops generating."""


class AnswerFilter(Protocol):
    """The filter of one response, whose turns and backends may be several."""

    @property
    def busy(self) -> bool:
        """Whether the filter itself is waited for, and not the backend."""

    @property
    def closed(self) -> bool:
        """Whether nothing more passes, so that no other backend is asked for the rest."""

    async def admit(self, call: ChatCall) -> bytes | None:
        """Let a request be sent; return what takes the place of the answer where it may not be. Raise `ApiError`."""

    def begin(self, source: AnswerSource, pass_on: Receive | None) -> None:
        """Take an answer that begins; `pass_on` gets what passes, if it is read as a stream."""

    def feed(self, data: bytes) -> None:
        """Take what one read brought."""

    async def end(self, completion: bytes | None, broken: ApiError | None) -> bytes | None:
        """Wait until all of the answer was decided on that was read to its end, or `broken`. `completion` is the body of an
        answer that was no stream; return it, or what takes its place. Raise `ApiError` for an answer that broke off."""

    def stop(self) -> None:
        """Decide on nothing more of this answer."""

    def forget(self) -> None:
        """Leave the answer: another one may begin."""

    def close(self) -> None:
        """End for good, and let go of what refers to this."""
