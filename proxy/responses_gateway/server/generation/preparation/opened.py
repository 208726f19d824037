"""The second stage of preparing a request: what is opened for it, hosted tools and documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Protocol

import msgspec

from responses_gateway.hosted.pdf import PdfReader
from responses_gateway.request import Loss
from responses_gateway.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from responses_gateway.server.generation.hosted_tools.turns import OpenedTools
from responses_gateway.server.generation.preparation.context import Item
from responses_gateway.server.generation.preparation.documents import NO_DOCUMENTS, ReadDocuments, read_documents
from responses_gateway.server.generation.preparation.ground import Ground
from responses_gateway.wire.requests import ResponsesRequest


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

    @property
    def offered(self) -> HostedTools:
        """The tools as they are offered to the model."""
        return NO_HOSTED_TOOLS if self.tools is None else self.tools.tools

    def losses(self, *, strict: bool) -> Sequence[Loss]:
        """Return what of the declarations cannot be honoured. `strict`: raise `ApiError` 400 for the first one."""
        return () if self.tools is None else self.tools.reported_losses(strict=strict)


async def open_for(ground: Ground, toolboxes: Sequence[HostedToolbox], pdf_reader: PdfReader | None) -> Openings:
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
    items_of_request: Sequence[Item] = request.input if isinstance(request.input, list) else ()
    growing = ground.scope.growing
    if growing is not None and growing.beginning is not None:  # because what is known has no documents
        items_of_request = items_of_request[growing.beginning.items :]
    too_many = len(items_of_request) > policy.max_input_items  # which the translation refuses
    if pdf_reader is None or too_many or not (items_of_request or context.history):
        return Openings(tools, NO_DOCUMENTS)
    items = chain(items_of_request, context.history, context.references.values())
    # Clients of other protocols send a conversation again and again, which one refused document would end.
    explains = ground.scope.reading is not None
    documents = await read_documents(pdf_reader, items, tenant, explains=explains, strict=policy.strict)
    return Openings(tools, documents)
