"""`/v1/alpha/search`: the web search that Codex's own tool `web.run` asks for."""

from __future__ import annotations

from aiohttp import web

from responses_gateway.hosted.search.codex_commands import CodexCommands
from responses_gateway.hosted.search.web import Web
from responses_gateway.server.access.api_keys import Needs, needs, tenant_of
from responses_gateway.server.features.hosted_tools.toolbox import HOSTED_CALLS
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.server.http.exchange import EXCHANGE, in_thread, read_json_body
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.search import parse_search

_NOT_CONFIGURED = (
    "This gateway has no web search: its operator can turn it on with the setting `web_search_url` (SearXNG) or "
    '`web_search_provider`. In Codex, set web_search = "disabled".'
)


class Search:
    """Serves the path."""

    def __init__(self, access: Web | None, live: LiveSettings, metrics: Metrics) -> None:
        """Without `access` to the web every request is refused."""
        self._access = access
        self._live = live
        self._metrics = metrics

    @needs(Needs.KEY | Needs.RESERVATION)
    async def search(self, request: web.Request) -> web.Response:
        """Answer `POST` with one text for all commands. What fails among them says so in the text."""
        if self._access is None:
            raise ApiError(404, _NOT_CONFIGURED, code="web_search_not_configured")
        body = await read_json_body(request)
        commands = await in_thread(request, parse_search, body)
        answer = await CodexCommands(self._access, commands, tenant_of(request)).run()
        for outcome, number in (("completed", answer.commands - answer.failures), ("failed", answer.failures)):
            if number:
                self._metrics.count(HOSTED_CALLS, "web_search", outcome, amount=number)
        if self._live.current.settings.access_log:
            fields = {"request_id": request[EXCHANGE].request_id, "commands": answer.commands, "failures": answer.failures}
            losses = {"losses": list(answer.losses)} if answer.losses else {}
            logs.logger().info("web search", extra=logs.fields(**fields, **losses))
        # Codex also takes `results`. Neither its model nor its terminal sees them: it hands them to graphical clients, in a
        # shape of OpenAI's server that is documented nowhere.
        return web.json_response({"output": answer.text})
