"""The hosted tools of the settings: the limits of their calls, the access to the web, the sandbox for code, and the server of
images, which is one of the backends."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

import aiohttp

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.served_models import Route
from responses_gateway.bounded_body import read_at_most
from responses_gateway.extras import how_to_install
from responses_gateway.hosted.code.container import ContainerLimits
from responses_gateway.hosted.code.sandbox import Sandbox, SandboxOptions
from responses_gateway.hosted.code.worker_sandbox import WorkerSandbox
from responses_gateway.hosted.fetch import Fetcher
from responses_gateway.hosted.images.generation import LONGEST_ANSWER, Generate
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.search.pages import WebPages, html_packages, page_obstacle
from responses_gateway.hosted.search.providers import CallerFor, McpProvider, Provider
from responses_gateway.hosted.search.service_provider import ServiceProvider
from responses_gateway.hosted.search.services import SERVICES
from responses_gateway.hosted.search.web import Web
from responses_gateway.hosted.tool_runner import HostedLimits
from responses_gateway.settings import Settings
from responses_gateway.settings.hosted import SANDBOX
from responses_gateway.version import __version__
from responses_gateway.wire.errors import ApiError, read_error

_STARTING = 15  # until a container runs, on a busy machine, in seconds
# Seconds for a search, and for fetching and reading a page, because the model waits, and whoever waits for it.
FETCH_SECONDS = 15
# Bytes of a page, packed or not, because an article with its markup seldom has more; of a larger one the beginning is read.
_PAGE_BYTES = 5_000_000
_SEARCH_RESULTS = 8  # results of a search of medium size, because models seldom open more
# Seconds for which a container is kept unused, with its variables and files, because those of OpenAI are kept as long.
_IDLE_SECONDS = 1200
IMAGE_BYTES = 4 * 1024**2  # bytes of the images that code makes
# A request for an image to a backend.
_PATH = "images/generations"
_HEADERS = (("Content-Type", "application/json"),)
# Calls of a response for each turn that it may have: models that search call four or five tools at once.
CALLS_FOR_EACH_TURN = 8
_LONGEST_REASON = 300  # how much of a server's refusal the model reads, in characters


def hosted_limits(settings: Settings) -> HostedLimits:
    """Return the limits of one response."""
    return HostedLimits(
        calls=CALLS_FOR_EACH_TURN * settings.hosted_turns,
        call_seconds=settings.hosted_call_timeout,
        # The sandbox stops code by itself, and keeps its files then.
        code_seconds=settings.hosted_call_timeout + _STARTING,
        result_bytes=settings.hosted_result_bytes,
    )


async def try_page_reader() -> None:
    """Have a page read once, because a library may be missing though the extra is installed. Raise `ValueError`."""
    obstacle = await asyncio.to_thread(page_obstacle)
    if obstacle:
        raise ValueError(f"web search cannot read pages: {obstacle}. Install the extra again: {how_to_install('web')}")


def open_web(settings: Settings, caller_for: CallerFor | None = None) -> Web | None:
    """Return the access to the web; None without a search provider. `caller_for` returns what calls the MCP tool that the
    settings name. Call this inside the running event loop. Raise `ValueError` for settings that cannot be used."""
    name = settings.searches_with
    if name is None:
        if settings.web_search_api_key is not None:
            raise ValueError("web_search_api_key needs the setting web_search_provider, which says whose key it is")
        return None
    html_packages()
    provider = _provider(name, settings, caller_for)
    fetcher = Fetcher(timeout=FETCH_SECONDS, max_bytes=_PAGE_BYTES, private_hosts=settings.web_fetch_private_hosts)
    return Web(provider, WebPages(fetcher, timeout=FETCH_SECONDS), _SEARCH_RESULTS)


def _provider(name: str, settings: Settings, caller_for: CallerFor | None) -> Provider:
    if name.startswith("mcp:"):
        if caller_for is None:
            raise ValueError(f"web_search_provider: there is no MCP server for {name}")
        return McpProvider(caller_for)
    service = SERVICES[name]
    url = settings.web_search_url or service.url
    key = settings.web_search_api_key
    if url is None:
        raise ValueError(f"web_search_provider: {name} needs the setting web_search_url, such as http://searxng:8080")
    if key is None and service.needs_key:
        raise ValueError(f"web_search_provider: {name} needs the setting web_search_api_key")
    return ServiceProvider(service, url=url, key=key.get_secret_value() if key else "", timeout=FETCH_SECONDS)


async def open_sandbox(settings: Settings, workers_folder: Path | None = None) -> Sandbox | WorkerSandbox | None:
    """Open the sandbox; return None if code runs elsewhere, or nowhere. `workers_folder` is the folder of all workers, if this
    process is one of several: they share one sandbox. Raise SandboxUnavailable."""
    where, _, python = settings.code_interpreter.partition(":")
    if where != SANDBOX:
        return None
    options = SandboxOptions(
        __version__, python or sys.executable, code_limits(settings), settings.code_interpreter_containers, _IDLE_SECONDS
    )
    sandbox = Sandbox(options) if workers_folder is None else WorkerSandbox(workers_folder, options)
    await sandbox.start()
    return sandbox


def code_limits(settings: Settings) -> ContainerLimits:
    """Return the limits of one container."""
    return ContainerLimits(
        timeout=settings.hosted_call_timeout, memory_bytes=int(settings.code_interpreter_memory_bytes), image_bytes=IMAGE_BYTES
    )


def image_server(pool: Pool, model: str) -> Generate:
    """Return what asks the backends that serve the model for images."""
    return partial(_generate, pool, Route(model))


async def _generate(pool: Pool, route: Route, body: bytes) -> bytes:
    try:
        async with pool.request("POST", _PATH, route, body=body, headers=_HEADERS) as (_, answer):
            content = await read_at_most(answer.content, LONGEST_ANSWER + 1)
            if len(content) > LONGEST_ANSWER:
                raise ToolFailure("The image is too large. Ask for a smaller one.")
            if answer.status != 200:
                reason = read_error(answer.status, content).message[:_LONGEST_REASON]
                raise ToolFailure(f"The server of images refused: {reason}")
            return content
    except ApiError as error:
        raise ToolFailure(f"The server of images cannot be used: {error}") from None
    except aiohttp.ClientError:
        raise ToolFailure("The server of images cannot be reached.") from None
