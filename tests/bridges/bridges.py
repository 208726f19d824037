"""The bridges: how each is installed and started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.bridges.backend import MODEL
from tests.ports import free_port
from tests.real_servers.processes import plain_environment, running

ROOT = Path(__file__).parents[2]
# Where `make bridges` installs them, one environment each.
INSTALLED = Path(os.environ.get("BRIDGES") or ROOT / ".cache" / "bridges")
_CONFIGS = Path(__file__).with_name("configs")
_READY_WITHIN = 180.0
OURS = "responses-gateway"


@dataclass(frozen=True)
class Bridge:
    """A bridge: its name, the package on PyPI, its command, its environment, the file with its configuration, and the path of
    its endpoint. In all of them `{bin}`, `{port}`, `{backend}` (a URL without `/v1`) and `{folder}` are replaced.
    `model` is the name that it gives to the backend's model."""

    name: str
    package: str
    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    config: str | None = None
    path: str = "/v1/responses"
    model: str = MODEL

    @property
    def python(self) -> Path:
        """The interpreter that has the package."""
        return Path(sys.executable) if self.name == OURS else INSTALLED / self.package / "bin" / "python"

    @property
    def version(self) -> str:
        """The version that is installed."""
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        asked = subprocess.run([self.python, "-c", code], check=True, capture_output=True, text=True)
        return asked.stdout.strip()


BRIDGES = (
    Bridge(OURS, OURS, ["{bin}/responses-gateway", "serve", "--backend", "{backend}", "--port", "{port}", "--store", "none"]),
    Bridge(
        "LiteLLM",
        "litellm",
        ["{bin}/litellm", "--config", "{folder}/litellm.yaml", "--host", "127.0.0.1", "--port", "{port}"],
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"},
        "litellm.yaml",
    ),
    Bridge(
        "OGX",
        "ogx",
        ["{bin}/ogx", "run", "{folder}/ogx.yaml", "--port", "{port}", "--insecure"],
        config="ogx.yaml",
        model=f"vllm/{MODEL}",
    ),
    Bridge(
        "codex-relay",
        "codex-relay",
        ["{bin}/codex-relay", "--port", "{port}", "--upstream", "{backend}/v1", "--api-key", "none"],
    ),
    Bridge(
        "codex-bridge-python",
        "codex-bridge-python",
        ["{bin}/codex-bridge-python", "--port", "{port}", "--upstream", "{backend}/v1", "--api-key", "none"],
    ),
    Bridge(
        "open-responses-server",
        "open-responses-server",
        ["{bin}/otc", "start"],
        {
            "OPENAI_BASE_URL_INTERNAL": "{backend}",
            "OPENAI_BASE_URL": "http://127.0.0.1:{port}",
            "OPENAI_API_KEY": "none",
            "API_ADAPTER_HOST": "127.0.0.1",
            "API_ADAPTER_PORT": "{port}",
        },
        path="/responses",
    ),
)


@contextmanager
def started(bridge: Bridge, backend: str, folder: Path) -> Iterator[str]:
    """Run a bridge in front of the backend while the block lasts, and yield the URL of its endpoint."""
    folder.mkdir(parents=True)
    port = free_port()
    values = {"bin": str(bridge.python.parent), "port": str(port), "backend": backend, "folder": str(folder)}
    if bridge.config is not None:
        config = _CONFIGS.joinpath(bridge.config).read_text(encoding="utf-8")
        folder.joinpath(bridge.config).write_text(_filled(config, values), encoding="utf-8")
    command = ["env", f"--chdir={folder}", *(_filled(word, values) for word in bridge.command)]  # some write where they start
    environment = plain_environment(folder) | {name: _filled(value, values) for name, value in bridge.variables.items()}
    environment["PATH"] = f"{values['bin']}{os.pathsep}{environment['PATH']}"
    with running(command, environment, folder / "output.txt") as process, httpx.Client(trust_env=False, timeout=5) as client:
        process.wait_until(lambda: _answers(client, f"http://127.0.0.1:{port}/"), _READY_WITHIN)
        yield f"http://127.0.0.1:{port}{bridge.path}"


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _answers(client: httpx.Client, url: str) -> bool:
    """Tell whether somebody answers there, be it with an error."""
    try:
        client.get(url)
    except httpx.HTTPError:
        return False
    return True
