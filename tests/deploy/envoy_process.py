"""A real Envoy with the configuration of deploy/envoy, on loopback ports."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import aiohttp
import pytest
import yaml

from tests.deploy.checking_programs import DEPLOY, tool
from tests.deploy.nginx_process import Proxy, listens, nginx
from tests.ports import free_port
from tests.server.running_gateway import until
from tests.waiting import PATIENCE

Start: TypeAlias = Callable[..., AbstractAsyncContextManager[Proxy]]


def write_configuration(folder: Path, servers: list[int], *, router: bool = False, admin: int = 0) -> tuple[Path, int]:
    """Adapt deploy/envoy/envoy.yaml to this machine: the ports of the servers. A `router` is in front of vLLM servers, and
    gives each of them the next request. `admin` is the port of its own statistics. Returns the file and the port."""
    port = free_port()
    config = yaml.safe_load((DEPLOY / "envoy/envoy.yaml").read_text(encoding="utf-8"))
    (listener,) = config["static_resources"]["listeners"]
    listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": port}
    (cluster,) = config["static_resources"]["clusters"]
    addresses = [{"socket_address": {"address": "127.0.0.1", "port_value": server}} for server in servers]
    cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": [{"endpoint": {"address": each}} for each in addresses]}]
    if router:
        cluster["health_checks"][0]["http_health_check"] = {"path": "/health"}
        cluster["lb_policy"] = "ROUND_ROBIN"
    config["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": admin}}}
    file = folder / "envoy.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return file, port


def check_configuration(file: Path) -> str:
    """Return what `envoy --mode validate` complains of; empty if all is well."""
    command = (_program(), "--mode", "validate", "--config-path", str(file), "--log-level", "warning")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.stderr if done.returncode or done.stderr else ""


@asynccontextmanager
async def envoy(folder: Path, *servers: int, router: bool = False) -> AsyncIterator[Proxy]:
    """Serve in front of servers on these ports while the block runs. It has asked each of them whether it is ready: a request
    that comes before could go to any of them."""
    admin = free_port()
    file, port = write_configuration(folder, list(servers), router=router, admin=admin)
    command = (_program(), "--config-path", str(file), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning")
    with (folder / "envoy.log").open("w") as log:
        process = await asyncio.to_thread(subprocess.Popen, command, stdout=log, stderr=log)
    try:
        await until(lambda: (listens(port) and listens(admin)) or process.poll() is not None, "Envoy listens")
        assert process.poll() is None, (folder / "envoy.log").read_text(encoding="utf-8")
        while await _health_checks(admin) < len(servers):
            pass
        yield Proxy(port)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 10)


async def _health_checks(admin: int) -> int:
    """Return how many health checks of servers have ended."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{admin}/stats?format=json") as answer:
        counters = {stat["name"]: stat["value"] for stat in (await answer.json())["stats"] if "value" in stat}
    return sum(counters.get(f"cluster.gateways.health_check.{end}", 0) for end in ("success", "failure"))


def _program() -> str:
    return tool("envoy", "install-deploy-tools")


either_router = pytest.mark.parametrize("front", [nginx, partial(envoy, router=True)], ids=["nginx", "envoy"])
