"""`/rollouts/{id}`, and `/v1/responses/{id}/trajectory`: what was kept, as a tree of calls, or as one list of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from responses_gateway.request.rollout_names import rollout_name
from responses_gateway.server.access.api_keys import tenant_of
from responses_gateway.server.http.exchange import read_json_body, read_limit, too_large
from responses_gateway.state.token_trees import KeptCall, Page, TokenTreeTable, Tree
from responses_gateway.stream.sampling import WITHOUT_TOKENS
from responses_gateway.wire.errors import ApiError, invalid_request

# Calls in one answer.
_LIMIT = 100
_MOST = 1000
_LARGEST_REWARD = 64 * 1024  # the largest reward, in bytes of JSON
# What stands around a reward in the body that has it.
_AROUND_REWARD = 1024
_JSON = "application/json"
_LINES = "application/jsonl"
_encode = msgspec.json.Encoder(enc_hook=list).encode  # of arrays


class Chain(NamedTuple):
    """`mask` has 1 for what was sampled. `log_probs` are 0 for the rest, and None where the server told none. `breaks` are the
    places where a whole prompt begins anew, because it does not continue the tokens before it."""

    token_ids: list[int]
    mask: list[int]
    log_probs: list[float | None]
    breaks: list[int]
    call_ids: list[str]


def chain_of(calls: Iterable[KeptCall]) -> Chain:
    """Return the tokens of calls as one list. A call without tokens is left out, so that the next one begins anew."""
    whole = Chain([], [], [], [], [])
    for piece in pieces_of(calls):
        if whole.token_ids:
            whole.breaks.append(len(whole.token_ids))
        for name in Chain._fields:
            getattr(whole, name).extend(getattr(piece, name))
    return whole


def pieces_of(calls: Iterable[KeptCall]) -> list[Chain]:
    """Return the same, as a chain for each part that is not broken."""
    pieces: list[Chain] = []
    known = 0  # how many tokens of the call before stand at the end of the last piece
    for call in calls:
        prompt, sampled, log_probs = call.tokens
        if prompt is None or sampled is None:
            known = 0
            continue
        if not call.unbroken or not known:
            pieces.append(Chain([], [], [], [], []))
            known = 0
        piece = pieces[-1]
        new = prompt[known:]
        piece.token_ids.extend(new + sampled)
        piece.mask.extend([0] * len(new) + [1] * len(sampled))
        piece.log_probs.extend([0.0] * len(new))
        piece.log_probs.extend([None] * len(sampled) if log_probs is None else log_probs)
        piece.call_ids.append(call.id)
        known = len(prompt) + len(sampled)
    return pieces


class _Rewarded(msgspec.Struct):
    reward: msgspec.Raw


class Rollouts:
    """Serves the paths."""

    def __init__(self, table: TokenTreeTable) -> None:
        self._table = table

    async def read(self, request: web.Request) -> web.Response:
        """Answer `GET /rollouts/{id}`. Raise `ApiError`, `StoreUnavailable`."""
        name = rollout_name(request.match_info["id"])
        tree = await self._table.tree(tenant_of(request), _tree_name(name))
        if tree is None:
            raise _unknown(name)
        reward = None if tree.reward is None else msgspec.Raw(tree.reward.encode())
        about = {"object": "rollout", "id": name, "reward": reward, "dropped_calls": tree.dropped}
        return await self._answer(request, tree, about, None)

    async def delete(self, request: web.Request) -> web.Response:
        """Answer `DELETE /rollouts/{id}`. Raise `ApiError`, `StoreUnavailable`."""
        name = rollout_name(request.match_info["id"])
        if not await self._table.delete(tenant_of(request), _tree_name(name)):
            raise _unknown(name)
        return web.json_response({"id": name, "object": "rollout.deleted", "deleted": True})

    async def reward(self, request: web.Request) -> web.Response:
        """Answer `POST /rollouts/{id}/reward`: keep what a trainer says of it. Raise `ApiError`, `StoreUnavailable`."""
        name = rollout_name(request.match_info["id"])
        body = await read_json_body(request)
        if len(body) > _LARGEST_REWARD + _AROUND_REWARD:
            raise too_large(_LARGEST_REWARD)
        try:
            reward = bytes(msgspec.json.decode(body, type=_Rewarded).reward)
            msgspec.json.decode(reward)  # because it may have numbers that readers of the export take for infinite
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = 'The body has to be {"reward": …}, with any JSON. Its numbers have to be finite, and its texts Unicode.'
            raise invalid_request(message, "reward", "invalid_value") from None
        if len(reward) > _LARGEST_REWARD:
            raise too_large(_LARGEST_REWARD)
        if not await self._table.reward(tenant_of(request), _tree_name(name), reward.decode()):
            raise _unknown(name)
        answer = msgspec.json.encode({"object": "rollout.reward", "id": name, "reward": msgspec.Raw(reward)})
        return web.Response(body=answer, content_type=_JSON)

    async def trajectory(self, request: web.Request) -> web.Response:
        """Answer `GET /v1/responses/{id}/trajectory`: the calls that led to a response, and its own. Raise `ApiError`,
        `StoreUnavailable`."""
        response_id = request.match_info["id"]
        tenant = tenant_of(request)
        name = await self._table.name_of(tenant, response_id)
        tree = None if name is None else await self._table.tree(tenant, name)
        if tree is None:
            message = f"No tokens were kept of a response with id '{response_id[:100]}'."
            raise ApiError(404, message, code="response_not_found")
        return await self._answer(request, tree, {"object": "trajectory", "id": response_id}, response_id)

    async def _answer(self, request: web.Request, tree: Tree, about: Mapping[str, Any], last: str | None) -> web.Response:
        """Answer with calls of a tree: all, or those that lead to the `last` one."""
        form = _form(request)
        limit = read_limit(request, _LIMIT, _MOST)
        after = request.query.get("after")
        chain = request.query.get("chain")
        last = last if chain is None else chain
        if last is None:
            page = await self._table.page(tree, after, limit)
        else:
            page = await self._table.chain(tree, last, after, limit)
        if page is None:
            name = "chain" if chain is not None and after is None else "after"
            raise invalid_request("There is no such call.", name, "call_not_found")
        # In a thread, so that no stream waits for a million numbers.
        body = await asyncio.to_thread(_written, page, about, form, chained=chain is not None)
        following = request.rel_url.update_query(after=page.calls[-1].id) if page.more else None
        headers = None if following is None else {"Link": f'<{following}>; rel="next"'}  # which lines of JSON cannot tell
        return web.Response(body=body, content_type=_LINES if form == "jsonl" else _JSON, headers=headers)


def _written(page: Page, about: Mapping[str, Any], form: str, *, chained: bool) -> bytes:
    """Return the body of an answer."""
    if form == "jsonl":
        lines: Iterable[Any] = map(Chain._asdict, pieces_of(page.calls)) if chained else map(_shown, page.calls)
        return b"".join(_encode(line) + b"\n" for line in lines)
    content = chain_of(page.calls)._asdict() if chained else {"calls": [_shown(call) for call in page.calls]}
    paging = {"has_more": page.more, "last_id": page.calls[-1].id if page.calls else None}
    return _encode({**about, **content, **paging})


def _shown(call: KeptCall) -> dict[str, Any]:
    details = msgspec.json.decode(call.details)
    if call.tokens.sampled is None and details.get("reason") not in WITHOUT_TOKENS:
        details = {**details, "reason": "no_room", "item_spans": None, "token_true": False}
    return {
        "id": call.id,
        "response_id": call.response,
        "parent": call.parent,
        "kind": call.kind,
        "reason": None,
        "item_spans": None,
        **details,
        "prompt_token_ids": call.tokens.prompt,
        "generation_token_ids": call.tokens.sampled,
        "generation_log_probs": call.tokens.log_probs,
    }


def _unknown(name: str) -> ApiError:
    """Return the error for a rollout that does not exist, or is another tenant's."""
    return ApiError(404, f"Rollout with id '{name}' not found.", code="rollout_not_found")


def _tree_name(rollout: str) -> str:
    return f"rollout:{rollout}"


def _form(request: web.Request) -> str:
    """Return the form of the answer: as the query says, or else the header. Raise `ApiError` 400."""
    form = request.query.get("format")
    if form is None:
        accepted = request.headers.get("Accept", "")
        return "jsonl" if "jsonl" in accepted or "ndjson" in accepted else "json"
    if form not in ("json", "jsonl"):
        raise invalid_request("Invalid value for 'format': 'json' or 'jsonl' is expected.", "format", "invalid_value")
    return form
