"""The calls of the model are kept token by token, for trainers: those of rollouts, and of responses that ask for their ids."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

import msgspec
from aiohttp import web

from responses_gateway.backend.pool import Pool
from responses_gateway.request.rollouts.names import ROLLOUT_HEADER, named_rollout, rollout_name
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.rollouts.export import Rollouts, full
from responses_gateway.server.features.rollouts.keeping import ResponseKeeper, TreeName
from responses_gateway.server.generation.preparation.prepared_request import PreparedRequest
from responses_gateway.server.http.exchange import EXCHANGE
from responses_gateway.server.http.routes import HttpPrefix, HttpRoute, Route
from responses_gateway.settings import Settings
from responses_gateway.state import Database, Sqlite
from responses_gateway.state.token_trees import TokenTreeTable, TreeFull
from responses_gateway.stream.sampling.recorder import CallRecorder
from responses_gateway.wire.requests import TOKEN_IDS

_DAY = 86_400.0


@dataclass(eq=False, slots=True)
class Keeping:
    """Has the tokens of those responses kept for which that is asked."""

    table: TokenTreeTable
    pool: Pool

    async def step(self, prepared: PreparedRequest, _settings: Settings) -> PreparedRequest:
        """Return a request whose calls are kept, if it names a rollout or asks for the ids of its tokens. Raise `ApiError`,
        `StoreUnavailable`."""
        headers = prepared.caller.headers
        shows = TOKEN_IDS in (prepared.context.request.include or ())
        if not shows and ROLLOUT_HEADER not in headers:
            return prepared
        rollout = named_rollout(headers)
        place = await self._place(prepared, rollout)
        options = prepared.options
        recorder = CallRecorder(hides_logprobs=not options.logprobs, shows=shows)
        await self.pool.watch.identified()
        keeper = ResponseKeeper(self.table, place, recorder, self._owner(prepared.call.route.model), prepared)
        options = msgspec.structs.replace(options, recorder=recorder)
        return msgspec.structs.replace(prepared, options=options, call=prepared.call._replace(keeper=keeper))

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
            raise full() from None
        return place

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
    if store is None:  # what is asked for by name is kept all the same, as long as the process runs
        database = Sqlite(None)
        await database.open()
        stack.push_async_callback(database.close)
    else:
        database = store.database
    table = TokenTreeTable(database, core.settings.store_days * _DAY)
    rollouts = Rollouts(table)
    routes: list[Route] = [
        HttpPrefix("/rollouts/{rollout}", _enter),
        HttpRoute("GET", "/rollouts/{id}", rollouts.read),
        HttpRoute("DELETE", "/rollouts/{id}", rollouts.delete),
        HttpRoute("POST", "/rollouts/{id}/reward", rollouts.reward),
        HttpRoute("GET", "/v1/responses/{id}/trajectory", rollouts.trajectory),
    ]
    return Opened(steps=[Keeping(table, core.responses.pool).step], routes=routes)


ROLLOUTS = Feature("rollouts", None, _open)
