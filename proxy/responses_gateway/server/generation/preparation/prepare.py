"""From a Responses request to all that is needed to ask a backend and to read its answer, in four stages.

Each stage makes a new value from those before it: what the request builds on (`ground.py`), what is opened for it
(`opened.py`), the chat request (`translation.py`), and how it is sent (`plan.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.prompt_tokens import PromptTokens
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.fair_queue import FairQueue
from responses_gateway.hosted.pdf import PdfReader
from responses_gateway.request import ChatRequest
from responses_gateway.server.generation.preparation.client_keys import ClientKeys
from responses_gateway.server.generation.preparation.compaction import Summarise
from responses_gateway.server.generation.preparation.context import Caller, Context, PreviousResponse
from responses_gateway.server.generation.preparation.encrypted_content import Encryption
from responses_gateway.server.generation.preparation.ground import find_ground
from responses_gateway.server.generation.preparation.known_inputs import KnownInputs
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.preparation.opened import HostedToolbox, open_for
from responses_gateway.server.generation.preparation.plan import Planner
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest, RequestScope
from responses_gateway.server.generation.preparation.translation import RequestTranslator
from responses_gateway.server.protocols.interface import Reading
from responses_gateway.state import Store
from responses_gateway.wire.requests import ResponsesRequest


@dataclass(frozen=True, slots=True)
class Preparation:
    """Prepares requests, with the parts that all of them share. `sealing` has the key for the keys of clients, `known`
    the last requests of threads."""

    pool: Pool
    store: Store | None
    encryption: Encryption
    tokenizer: ModelTokenizer | None
    toolboxes: Sequence[HostedToolbox] = ()
    pdf_reader: PdfReader | None = None
    sealing: Encryption | None = None
    known: KnownInputs = field(default_factory=lambda: KnownInputs(0))
    client_keys: ClientKeys = field(init=False)
    translator: RequestTranslator = field(init=False)
    planner: Planner = field(init=False)

    def __post_init__(self) -> None:
        queue = FairQueue(1, 1)  # of long requests
        tokens = PromptTokens(self.pool, self.tokenizer)
        keys = ClientKeys(self.pool.models, self.sealing)
        translator = RequestTranslator(self.pool, self.store, self.encryption, queue, tokens, keys, self.known)
        object.__setattr__(self, "client_keys", keys)
        object.__setattr__(self, "translator", translator)
        object.__setattr__(self, "planner", Planner(self.pool, self.store, self.encryption, self.tokenizer, keys))

    async def prepare(
        self,
        request: ResponsesRequest,
        scope: RequestScope,
        summarise: Summarise,
        previous: PreviousResponse | None = None,
        context: Context | None = None,
    ) -> PreparedRequest:
        """Prepare a request. `context` is what it builds on, where that is known, and `previous` the last response of the same
        connection. `summarise` has the backend summarise a context that is too long. Raise `ApiError`, `StoreUnavailable`."""
        ground = await find_ground(self.store, request, scope, previous, context)
        opened = await open_for(ground, self.toolboxes, self.pdf_reader)
        translated = await self.translator.translated(ground, opened)
        return await self.planner.planned(ground, opened, translated, summarise)

    async def translate(
        self, request: ResponsesRequest, caller: Caller, in_force: InForce, reading: Reading | None = None
    ) -> ChatRequest:
        """Return the chat request alone, of a request that is not answered. Raise `ApiError`, `StoreUnavailable`."""
        scope = RequestScope(caller, in_force, None, reading=reading)
        ground = await find_ground(self.store, request, scope, None, None)
        return await self.translator.chat_request(ground, await open_for(ground, self.toolboxes, self.pdf_reader))
