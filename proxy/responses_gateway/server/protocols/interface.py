"""A protocol of clients as a value, and what it reads of a request. `standard.py` lists the protocols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from responses_gateway.backend.members import Members
from responses_gateway.conformance.levels import Violation
from responses_gateway.request import Loss, Policy
from responses_gateway.request.messages import ReadTurns
from responses_gateway.stream.writer.interface import AnswerForm
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import ResponsesRequest

# Tells whether a client may use the model of a name.
Allows: TypeAlias = Callable[[str], bool]


class LimitCount(NamedTuple):
    """What is left of a limit on `requests` or `tokens`, and the seconds until all of it is there."""

    kind: str
    limit: int
    remaining: int
    seconds: float


class ReadingScope(msgspec.Struct, frozen=True):
    """What a body is read for. `model` is the one that is asked, by `policy`; `served_as` is the backend's name of it, and
    `context_window` is in tokens, where it is known. `hosted` are the kinds of tools that the gateway runs."""

    model: str
    policy: Policy
    hosted: Collection[str]
    served_as: str
    context_window: int | None = None
    request_id: str | None = None


class Reading(msgspec.Struct, frozen=True):
    """A body of another protocol, read as the Responses request that asks for the same, and what that cannot express.

    `model` is the client's name of the model. `form`: how the answer is written. `losses` are those of reading, `words` gives
    those of the translation the names that the client knows, and `error` does so for errors. `policy`: how the request is
    translated. Requests with the same `affinity` go to the same backend; if it is empty, those with the same beginning.
    `context_window`: of the tokens that the client allows no more are asked for than this has room for. `told`: the fields of
    the body that may tell for which agent it asks (`request/who_asks/`). `turns`: what the next body can be read from.
    `resumed`: the first turns of this one were not read again."""

    request: ResponsesRequest
    model: str
    form: AnswerForm
    losses: Sequence[Loss]
    words: Callable[[Iterable[Loss]], Sequence[Loss]]
    error: Callable[[ApiError], ApiError]
    policy: Policy
    affinity: str = ""
    context_window: int | None = None
    told: Mapping[str, Any] = {}
    turns: ReadTurns | None = None
    resumed: bool = False


class BodyReader(msgspec.Struct, frozen=True):
    """How bodies of another protocol become Responses requests.

    `read` takes what `BodyForm.parse` returned, and raises `ApiError` 400. Turns that are known are not read again; it returns
    None if the whole may be read in another way. `served_model` returns the model that is asked for a
    client's name of one, given the model that the settings have for names that nobody serves, and what tells the models that
    the client may use. `form` is the type of `Reading.form`. `key_header`: where its clients send what backends expect in
    `Authorization`."""

    read: Callable[[Any, ReadingScope, ReadTurns | None], Reading | None]
    served_model: Callable[[Members, str, str | None, Allows | None], str]
    form: type[Any]
    key_header: str


class BodyForm(NamedTuple):
    """How bodies are decoded and checked. `parse` does it with a whole one.

    Agents send again what they have sent, with more behind it: the list `elements` is what grows, and `large` are other fields
    that seldom change. `parse_continued` takes the fields of a body that are new, those that are known, a mark, and the
    elements that it stands for; it returns None if the list does not begin with it. Both raise `ApiError` 400."""

    parse: Callable[[bytes], Any]
    parse_continued: Callable[[dict[str, Any], Mapping[str, Any], str, Sequence[Any]], Any]
    elements: str
    large: Sequence[str]


class ClientProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol that clients speak.

    `name` stands in metrics, log lines and records. The paths at and below `path` are its own; where it shares others, its
    clients send the `version_header`. `error` returns status and body for an error and the id of the request, which answers
    have in the header `id_header`, too. `limit_headers` tell what is left of the limits. `body`: how bodies are decoded.
    `check` finds what is wrong with a stream, whose last event is one of `terminals`; `show` adds what an event (its name, its
    data) tells to the items of an answer, for the window. `reader`: None where a body is a Responses request itself.
    `has_failed_answers`: a whole answer can be one that has failed."""

    name: str
    path: str
    version_header: str | None = None
    id_header: str | None = None
    error: Callable[[ApiError, str | None], tuple[int, dict[str, Any]]]
    limit_headers: Callable[[Iterable[LimitCount]], dict[str, str]]
    body: BodyForm
    check: Callable[[bytes], Iterable[Violation]]
    terminals: frozenset[str]
    show: Callable[[dict[int, dict[str, Any]], str, dict[str, Any]], None]
    reader: BodyReader | None = None
    has_failed_answers: bool = False
