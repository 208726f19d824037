"""The private parts of aiohttp that the gateway uses: this version has them."""

from __future__ import annotations

import inspect

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_urldispatcher import UrlMappingMatchInfo
from yarl import URL

SERVER_PARTS = (
    (web.AppRunner, ("_make_server",)),
    (UrlMappingMatchInfo, ("add_app", "freeze", "expect_handler", "handler")),
    (web.StreamResponse, ("_send_headers_immediately",)),
    (RequestHandler, ("_current_request", "_manager", "_drain_helper", "connection_lost", "handle_error")),
)


def test_this_version_has_all_of_them() -> None:
    response = ("writer", "continue100", "timer", "request_info", "traces", "loop", "session", "stream_writer")
    inspect.signature(aiohttp.ClientRequest).bind("POST", URL(), loop=None)
    inspect.signature(aiohttp.ClientResponse).bind("POST", URL(), **dict.fromkeys(response))
    inspect.signature(aiohttp.ClientResponse.start).bind(None, None)
    inspect.signature(aiohttp.TCPConnector.connect).bind(None, None, [], None)
    inspect.signature(ResponseHandler).bind(None)
    for name in ("set_response_params", "data_received", "connection_lost", "should_close", "force_close", "_drain_helper"):
        assert hasattr(ResponseHandler, name)
    for owner, names in SERVER_PARTS:
        for name in names:
            assert hasattr(owner, name)
    inspect.signature(web.Server).bind(None, request_factory=None, handler_cancellation=True, loop=None)
    inspect.signature(RequestHandler).bind(None, loop=None)
    inspect.signature(RequestHandler.handle_error).bind(None, None, 400, None, "")
