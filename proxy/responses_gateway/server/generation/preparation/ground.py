"""The first two stages of preparing a request: what it continues and by which policy it is translated, and what is opened for
it, hosted tools and documents.

PDFs and text files become their text, because few chat servers read files. Another file stays what it is, for a backend that
may read it; where clients send a conversation again and again, so that one refusal would end it, the model is told that it
cannot be read instead (`explains`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import msgspec

from responses_gateway.hosted.documents import DocumentReader, DocumentText, is_pdf
from responses_gateway.request import Loss, Policy
from responses_gateway.request.growing import TranslatedTurns
from responses_gateway.request.input.items import file_for_code
from responses_gateway.server.generation.hosted_tools.turns import OpenedTools
from responses_gateway.server.generation.preparation.context import (
    Caller,
    Context,
    Item,
    PreviousResponse,
    caller_in,
    context_at,
    continue_previous,
    find_context,
)
from responses_gateway.server.generation.preparation.kept_response import Beginning, KeptResponse
from responses_gateway.server.generation.preparation.known_inputs import Growing, KnownChain, KnownInputs
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.protocols.interface import Reading
from responses_gateway.server.recording.recording import Recording
from responses_gateway.state import Store
from responses_gateway.state.records import NO_ITEMS
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosted import SandboxFiles, SentFile, sent_file
from responses_gateway.wire.requests import ResponsesRequest

# Files -> what takes their place.
DocumentTexts = Mapping[SentFile, str]

_READ = Loss("content", "input_file", "adapted", "its text, without pictures")
_UNREAD = Loss("content", "input_file", "ignored", "a file that cannot be read, of which the model is told")
_REASONS = {
    "encrypted": "it is encrypted",
    "no_text": "it has no text, only pictures of its pages",
    "unreadable": "it is damaged, or takes too much to read",
    "late": "reading the documents of this request took too long",
    "missing": "the server of this model reads no PDF",
    "type": "the server of this model reads no files of its type",
}


class RequestScope(msgspec.Struct, frozen=True):
    """What holds for one request: who asks, the settings in force, and its recording. `kept`: the response was kept in the
    store until now. `reading`: the request was made in another protocol. `growing`: it may be one of a growing thread."""

    caller: Caller
    in_force: InForce
    recording: Recording | None
    kept: KeptResponse | None = None
    reading: Reading | None = None
    growing: Growing | None = None

    @property
    def beginning(self) -> Beginning | None:
        """How the response began in another gateway; None if it begins now."""
        return None if self.kept is None else self.kept.beginning


class Ground(msgspec.Struct, frozen=True):
    """What a request stands on: `request` is that of its context, as it is translated. The caller is in the session of
    the response that it continues, if it names none. `known`: what was translated before of its history and input;
    `new_items`, which may be anything, are those behind that. `may_grow`: the next request may go on from its translation."""

    request: ResponsesRequest
    context: Context
    policy: Policy
    scope: RequestScope
    known: TranslatedTurns | None
    new_items: Sequence[Any]
    may_grow: bool


async def find_ground(
    store: Store | None,
    known: KnownInputs,
    request: ResponsesRequest,
    scope: RequestScope,
    previous: PreviousResponse | None,
    context: Context | None,
) -> Ground:
    """Find what the request builds on, unless `context` has it. `previous` is the last response of the same connection, and
    `known` has what was translated before. Raise `ApiError`, `StoreUnavailable`."""
    reading = scope.reading
    tenant = scope.caller.tenant
    previous_id = request.previous_response_id
    chained = None if previous_id is None else known.chain(tenant, previous_id)
    policy = scope.in_force.parsers.policy(request.model) if reading is None else reading.policy
    if previous is not None and previous.response_id == previous_id:
        # Without a store, too, because what is continued is kept by its connection.
        policy = msgspec.structs.replace(policy, stores_responses=True)
        if store is None:
            request = request.model_copy(update={"store": False})
        context = continue_previous(request, previous)
    elif store is not None and scope.kept is not None:
        context = await context_at(store, tenant, request, scope.kept.history)
    elif context is None:
        known_items = NO_ITEMS if chained is None else chained.items
        context = Context(request) if store is None else await find_context(store, tenant, request, known_items)
    if context.session is not None:
        scope = msgspec.structs.replace(scope, caller=caller_in(context.session, scope.caller))
    return _ground(context, policy, scope, chained)


def _ground(context: Context, policy: Policy, scope: RequestScope, chained: KnownChain | None) -> Ground:
    """Return what a request stands on, of which a part may be known: of the response that it continues, or by its bytes."""
    request = context.request
    items: Sequence[Any] = request.input if type(request.input) is list else ()
    if context.history:
        begun: KnownChain | Growing | None = chained
        items = [*context.history, *items]
        may_grow = request.previous_response_id is not None and scope.recording is None
    else:
        begun = scope.growing
        may_grow = begun is not None and isinstance(request.input, list)
    translated = None if begun is None else begun.beginning
    if translated is not None:
        items = items[translated.items :]
    return Ground(request, context, policy, scope, translated, items, may_grow)


class HostedToolbox(Protocol):
    """The tools that the gateway runs itself."""

    @property
    def kinds(self) -> list[str]:
        """The types of tools that are turned on."""

    async def open(
        self,
        request: ResponsesRequest,
        items: Sequence[Item],
        results: Mapping[str, bytes],
        tenant: str,
        *,
        separate_web_tools: bool,
    ) -> OpenedTools | None:
        """Return the tools of a request; None if it declares none that can be run. `items` are its history and its input,
        `results` the results of earlier hosted calls among them; `separate_web_tools` as in `Policy`. Raise `ApiError` 400."""


class Openings(msgspec.Struct, frozen=True, eq=False):
    """What was opened for one request. `tools`: None where it declares none that the gateway runs."""

    tools: OpenedTools | None
    documents: ReadDocuments


async def open_for(ground: Ground, toolboxes: Sequence[HostedToolbox], document_reader: DocumentReader | None) -> Openings:
    """Open what the request declares and contains. Of several toolboxes the first one opens that has a declared tool. Raise
    `ApiError` 400."""
    request = ground.request
    context = ground.context
    policy = ground.policy
    tenant = ground.scope.caller.tenant
    tools = None
    for toolbox in toolboxes if request.tools else ():
        separate = policy.separate_web_tools
        tools = await toolbox.open(request, context.items, context.results, tenant, separate_web_tools=separate)
        if tools is not None:
            break
    items = ground.new_items  # because what is known has no documents
    if document_reader is None or not items or len(items) > policy.max_input_items:  # too many, which the translation refuses
        return Openings(tools, NO_DOCUMENTS)
    files = _files(chain(items, context.references.values()), 0 if ground.known is None else ground.known.items)
    if not files:
        return Openings(tools, NO_DOCUMENTS)
    # Clients of other protocols send a conversation again and again, which one refused document would end.
    explains = ground.scope.reading is not None
    documents = await _read_documents(document_reader, files, tenant, explains=explains, strict=policy.strict)
    return Openings(tools, documents)


class ReadDocuments(NamedTuple):
    """`texts` take the place of files; `losses` tell so."""

    texts: DocumentTexts
    losses: Sequence[Loss]


NO_DOCUMENTS = ReadDocuments({}, ())


async def _read_documents(
    reader: DocumentReader, files: Mapping[SentFile, str], tenant: str, *, explains: bool, strict: bool
) -> ReadDocuments:
    """Read the files that have a text. With `explains`, `strict` refuses the others: `ApiError` 400."""
    texts: dict[SentFile, str] = {}
    losses: dict[Loss, None] = {}
    read = await reader.read([data for _, data in files], tenant)
    for (sent, place), document in zip(files.items(), read, strict=True):
        if not document.reason:
            texts[sent] = _shown(sent[0], document)
            losses[_READ] = None
        elif explains:
            reason = _REASONS[document.reason]
            if strict:
                raise invalid_request(f"A document cannot be read: {reason}.", place, "unsupported_value")
            named = f"The document {sent[0]!r}" if sent[0] else "This document"
            texts[sent] = f"[{named} cannot be shown here: {reason}. Its text can be read with a program, if one is at hand.]"
            losses[_UNREAD] = None
    return ReadDocuments(texts, list(losses))


def with_texts(items: Sequence[Any], texts: DocumentTexts, files: SandboxFiles) -> list[Any]:
    """Return items, which may be anything, with texts in place of documents. Of `files`, which the code has, only PDFs are
    shown, too, because it has no library that reads them."""
    new_items = []
    for item in items:
        changed = {
            member: [replacement for part in parts for replacement in _as_text(part, texts, files)]
            for member in (("content", "output") if isinstance(item, dict) else ())
            if isinstance(parts := item.get(member), list)
        }
        new_items.append({**item, **changed} if changed else item)
    return new_items


def _as_text(part: Any, texts: DocumentTexts, files: SandboxFiles) -> list[Any]:
    sent = sent_file(part)
    if sent is None or sent not in texts or (sent in files and not is_pdf(sent[1])):
        return [part]
    text_part = {"type": "input_text", "text": texts[sent]}
    return [text_part, file_for_code(files[sent])] if sent in files else [text_part]


def _files(items: Iterable[Any], start: int) -> dict[SentFile, str]:
    """Return the files in messages and results, with the paths of their parts in an input, where `start` items come before."""
    files: dict[SentFile, str] = {}
    for number, item in enumerate(items, start):
        for member in ("content", "output") if type(item) is dict else ():
            parts = item.get(member)
            if type(parts) is list:
                for place, part in enumerate(parts):
                    is_file = type(part) is dict and part.get("type") == "input_file"
                    sent = sent_file(part) if is_file else None
                    if sent is not None:
                        files[sent] = f"input[{number}].{member}[{place}]"
    return files


def _shown(name: str, document: DocumentText) -> str:
    named = f" {name!r}" if name else ""
    pages = document.pages
    rest = "" if document.read >= pages else f"\n\n[The document goes on: {document.read} of its {pages} pages were read.]"
    length = f", {pages} page{'' if pages == 1 else 's'}" if pages else ""
    return f"[Text of the document{named}{length}]\n\n{document.text}{rest}"
