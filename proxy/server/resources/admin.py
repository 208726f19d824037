"""`/admin/backends`: the backends, to be listed, drained, added and removed while the gateway runs.

All of it needs the setting `admin_key` as a bearer token; without the setting there are no such paths. What is changed here
lasts until the gateway ends, or reads its settings again. Several workers do what one was told; what is shown is how
the one that answers sees its backends.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

from aiohttp import web
from pydantic import SecretStr, ValidationError

from proxy.backend.member import Member
from proxy.server.generation.gateway import GATEWAY, Gateway
from proxy.server.process.notices import ADDED, DRAINED, REMOVED, RESUMED, Notice
from proxy.server.setup.backends import name_of, spec_of
from proxy.settings import BackendDetails, check_backend_name, suggestion
from proxy.wire.errors import ApiError, invalid_request
from proxy.wire.requests import read_object

#: In bytes: other workers are told in one line of their link, which is short.
_LONGEST = 32 * 1024


def add_routes(router: web.UrlDispatcher) -> None:
    """The paths, for an application whose settings have a key for them."""
    router.add_get("/admin/backends", list_backends)
    router.add_post("/admin/backends", add)
    router.add_get("/admin/backends/{name}", show)
    router.add_delete("/admin/backends/{name}", remove)
    router.add_post("/admin/backends/{name}/drain", drain)
    router.add_post("/admin/backends/{name}/resume", resume)


async def list_backends(request: web.Request) -> web.Response:
    """`GET`: every backend and how it stands; those that are leaving, too."""
    gateway = _admitted(request)
    members = gateway.pool.members
    shown = [_shown(member, gateway) for member in [*members.by_name.values(), *members.leaving]]
    return web.json_response({"object": "list", "data": shown, "queued": gateway.pool.queued})


async def show(request: web.Request) -> web.Response:
    """`GET`: one backend."""
    gateway = _admitted(request)
    return web.json_response(_shown(gateway.pool.members.find(request.match_info["name"]), gateway))


async def add(request: web.Request) -> web.Response:
    """`POST`: a backend with the fields of `backends` in the settings, and `name`, without which it is called host:port."""
    gateway = _admitted(request)
    body = await request.read()
    if len(body) > _LONGEST:
        message = f"The description of a backend has at most {_LONGEST} bytes."
        raise ApiError(413, message, code="request_too_large")
    fields = read_object(body)
    name = fields.pop("name", None)
    try:
        details = BackendDetails.model_validate(fields)
        name = check_backend_name(name_of(details.url) if name is None else name)
    except ValidationError as error:
        raise _complaint(error) from None
    except ValueError as error:
        raise invalid_request(str(error), "name", "invalid_value") from None
    member = gateway.pool.members.add(spec_of(name, details, gateway.settings))
    gateway.post(Notice(ADDED, name, fields))
    return web.json_response(_shown(member, gateway), status=201)


async def remove(request: web.Request) -> web.Response:
    """`DELETE`: no new requests from now on; it is gone once what is under way there has ended."""
    gateway = _admitted(request)
    member = gateway.pool.members.remove(request.match_info["name"])
    gateway.post(Notice(REMOVED, member.name))
    return web.json_response(_shown(member, gateway))


async def drain(request: web.Request) -> web.Response:
    """`POST`: no new requests from now on; it stays."""
    return _drained(request, True)


async def resume(request: web.Request) -> web.Response:
    """`POST`: new requests again."""
    return _drained(request, False)


#: All of them: who may use them is their own matter.
HANDLERS = frozenset({list_backends, show, add, remove, drain, resume})


def _drained(request: web.Request, draining: bool) -> web.Response:
    gateway = _admitted(request)
    member = gateway.pool.members.drain(request.match_info["name"], draining)
    gateway.post(Notice(DRAINED if draining else RESUMED, member.name))
    return web.json_response(_shown(member, gateway))


def _admitted(request: web.Request) -> Gateway:
    """The gateway, for whoever has the key. Raises `ApiError` 401."""
    gateway = request.app[GATEWAY]
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    key = gateway.settings.admin_key or SecretStr("")
    wanted = key.get_secret_value().encode()
    right = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), wanted)
    if not wanted or scheme.lower() != "bearer" or not right:
        message = "This needs the gateway's admin key: send it as `Authorization: Bearer …`."
        raise ApiError(401, message, type="authentication_error", code="invalid_api_key")
    return gateway


def _shown(member: Member, gateway: Gateway) -> dict[str, Any]:
    """How a backend stands. Its key is not shown."""
    spec, catalogue = member.spec, member.catalogue
    return {
        "object": "backend",
        "name": member.name,
        "url": spec.url,
        "healthy": member.healthy,
        "problem": member.problem or None,
        "breaker": member.breaker.state(asyncio.get_running_loop().time()),
        "draining": member.draining,
        "leaving": member in gateway.pool.members.leaving,
        "in_flight": member.in_flight,
        "max_concurrency": spec.max_concurrency,
        "weight": spec.weight,
        "models": None if catalogue.listed is None else catalogue.names(),
        "aliases": catalogue.aliases,
    }


def _complaint(error: ValidationError) -> ApiError:
    """400: what is wrong, and with which field; values are not repeated, a key may be among them."""
    detail = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = ".".join(map(str, detail["loc"]))
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        message = f"there is no such field{suggestion(field, BackendDetails.model_fields)}"
    return invalid_request(f"'{field}': {message}.", field, "invalid_value")
