"""The calls of the model are kept token by token, for trainers: those of rollouts, and of responses that ask for their ids."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from shutil import disk_usage

import msgspec
from aiohttp import web

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.prompt_tokens import PromptTokens
from responses_gateway.request.rollout_names import ROLLOUT_HEADER, TOKEN_TRUE_HEADER, named_rollout, rollout_name
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.rollouts.export import Rollouts
from responses_gateway.server.features.rollouts.keeping import ResponseKeeper
from responses_gateway.server.features.rollouts.spans import shown
from responses_gateway.server.features.rollouts.token_chain import TokenChain, TreeName
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.generation.preparation.prepare import PreparedRequest
from responses_gateway.server.http.exchange import EXCHANGE
from responses_gateway.server.http.routes import HttpPrefix, HttpRoute, Route
from responses_gateway.settings import Settings, entry_for
from responses_gateway.state import Database, Sqlite
from responses_gateway.state.token_trees import TokenTreeTable, TreeFull
from responses_gateway.state.usage import DAY
from responses_gateway.stream.sampling import CallRecorder
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import TOKEN_IDS

# What is kept without a store, in bytes: the tokens of about a hundred long tasks of agents. More would be missing elsewhere.
MOST_BYTES_IN_MEMORY = 256 * 1024 * 1024


@dataclass(eq=False, slots=True)
class Keeping:
    """Has the tokens of those responses kept for which that is asked."""

    table: TokenTreeTable
    pool: Pool
    prompts: PromptTokens
    live: LiveSettings

    async def step(self, prepared: PreparedRequest, settings: Settings) -> PreparedRequest:
        """Return a request whose calls are kept, if it names a rollout or asks for the ids of its tokens. Raise `ApiError`,
        `StoreUnavailable`."""
        headers = prepared.caller.headers
        shows = TOKEN_IDS in (prepared.context.request.include or ())
        by_ids = bool(settings.models) and self._token_true(settings, prepared.call.route.model)
        if not shows and not by_ids and ROLLOUT_HEADER not in headers:
            return prepared
        rollout = named_rollout(headers)
        by_ids = by_ids or (rollout is not None and headers.get(TOKEN_TRUE_HEADER, "").lower() in ("1", "true"))
        place = await self._place(prepared, rollout)
        options = prepared.options
        recorder = CallRecorder(hides_logprobs=not options.logprobs, shows=shown if shows else None)
        await self.pool.watch.identified()
        chain = TokenChain(self.table, place, self.prompts, settings.connect_timeout) if by_ids else None
        owner = self._owner(prepared.call.route.model)
        keeper = ResponseKeeper(self.table, place, recorder, owner, prepared, self.live, chain)
        options = msgspec.structs.replace(options, recorder=recorder)
        return msgspec.structs.replace(prepared, options=options, call=msgspec.structs.replace(prepared.call, keeper=keeper))

    async def _place(self, prepared: PreparedRequest, rollout: str | None) -> TreeName | None:
        """Return where the calls are kept: in the rollout, or else beside those of the responses that are continued."""
        tenant = prepared.caller.tenant
        if rollout is not None:
            place = TreeName(tenant, f"rollout:{rollout}")
        elif prepared.record is None:
            return None
        else:
            previous = prepared.context.request.previous_response_id
            known = None if previous is None else await self.table.name_of(tenant, previous)
            place = TreeName(tenant, known or f"response:{prepared.options.response_id}")
        try:
            await self.table.begin(tenant, place.name)
        except TreeFull:
            message = "This rollout has as many calls as a rollout may have. Begin another one."
            raise ApiError(409, message, code="rollout_full") from None
        return place

    def _token_true(self, settings: Settings, model: str) -> bool:
        """Tell whether the settings want the prompts of a model to be ids."""
        entry = entry_for(settings.models, model, self.pool.own_name(model))
        return entry is not None and bool(entry.token_true)

    def _owner(self, model: str) -> str:
        """Return what all backends of a model are, as their lists of models tell; empty where they are not alike."""
        owners = {member.catalogue.owner(model) for member in self.pool.models.candidates(model)}
        return owners.pop() or "" if len(owners) == 1 else ""


def _enter(request: web.Request) -> None:
    """Note the rollout in the path, unless the key names one. Raise `ApiError` 400."""
    exchange = request[EXCHANGE]
    exchange.rollout = exchange.rollout or rollout_name(request.match_info["rollout"])


async def _open(core: Core, stack: AsyncExitStack) -> Opened:
    store = core.responses.store
    database: Database
    most_bytes = None  # `store_max_bytes` tells
    if store is None:  # what is asked for by name is kept all the same, as long as the gateway runs
        most_bytes = MOST_BYTES_IN_MEMORY
        folder = core.workers_folder  # in memory, too, mostly
        if folder is not None:
            most_bytes = min(most_bytes, disk_usage(folder).free // 2)
        database = Sqlite(None if folder is None else folder / "rollouts.sqlite3")
        await database.open()
        stack.push_async_callback(database.close)
    else:
        database = store.database
    pool = core.responses.pool
    table = TokenTreeTable(database, core.settings.store_days * DAY, most_bytes=most_bytes)
    rollouts = Rollouts(table)
    routes: list[Route] = [
        HttpPrefix("/rollouts/{rollout}", _enter),
        HttpRoute("GET", "/rollouts/{id}", rollouts.read),
        HttpRoute("DELETE", "/rollouts/{id}", rollouts.delete),
        HttpRoute("POST", "/rollouts/{id}/reward", rollouts.reward),
        HttpRoute("GET", "/v1/responses/{id}/trajectory", rollouts.trajectory),
    ]
    return Opened(steps=[Keeping(table, pool, PromptTokens(pool, None), core.responses.live).step], routes=routes)


ROLLOUTS = Feature("rollouts", None, _open)
