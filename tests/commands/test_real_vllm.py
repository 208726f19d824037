"""A real vLLM on the CPU behind the doctor and the gateway: `make oracle` installs it, and runs this with `REAL_VLLM=1`.

It takes a minute for each way to start it, and 2 GB of memory; the model is a tiny one that has learned a few conversations by
heart, in the folder `TINY_MODEL`, or where it is kept beside the checkout.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.commands import doctor_report
from tests.server.running_gateway import gateway, post
from tests.server.running_gateway import run as run_test

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".cache" / "oracle" / "bin" / "python"
MODEL = Path(os.environ.get("TINY_MODEL") or ROOT.parent / "shared" / "tinymodel" / "model")
_READY_WITHIN = 240.0

pytestmark = [
    pytest.mark.skipif(os.environ.get("REAL_VLLM") != "1", reason="takes minutes: asked for with REAL_VLLM=1 (`make oracle`)"),
    pytest.mark.skipif(not PYTHON.exists(), reason="vLLM is not installed: `make oracle` does it"),
    pytest.mark.skipif(not MODEL.is_dir(), reason="there is no model to serve: name its folder in TINY_MODEL"),
]

#: How the server is started → the flags for it.
STARTS = {
    "raw": [],
    "parsed": ["--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"],
}
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Server:
    """A running vLLM: `start` is a key of `STARTS`."""

    def __init__(self, start: str, url: str) -> None:
        self.start, self.url = start, url


@pytest.fixture(scope="module", params=STARTS)
def vllm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("vllm")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            _command(port, STARTS[request.param]), env=_environment(folder), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", process, folder / "log")
            yield Server(request.param, f"http://127.0.0.1:{port}")
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _command(port: int, flags: list[str]) -> list[str]:
    return [
        str(PYTHON), "-m", "vllm.entrypoints.cli.main", "serve", str(MODEL), "--served-model-name", "tiny",
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "32768", "--max-num-seqs", "16",
        "--max-num-batched-tokens", "4096", "--block-size", "32", "--enforce-eager", "--disable-uvicorn-access-log", *flags,
    ]  # fmt: skip


def _environment(folder: Path) -> dict[str, str]:
    """The package of the CPU build has another name than the one that vLLM asks its own version of: a second entry says it."""
    entry = folder / "vllm-0.32.0+cpu.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(folder),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_WITHIN
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        try:
            with opener.open(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            ended = process.poll() is not None
        assert not ended, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < deadline, "vLLM is not ready"
        time.sleep(0.3)


def test_the_doctor(vllm: Server) -> None:
    with redirect_stdout(StringIO()) as out:
        status = doctor_report.run(vllm.url, "--json", "--timeout", "60")
    report = doctor_report.Report(status, out.getvalue())
    print(out.getvalue(), file=sys.stderr)
    assert (report.status, report.server) == (0, "vLLM 0.32.0")
    facts = report.profile
    assert facts["models"] == [{"id": "tiny", "max_length": 32768}]
    assert (facts["token_ids"], facts["tokenize"], facts["stops"]) == (True, "messages", True)
    assert (facts["max_tokens_field"], facts["error_shape"], facts["overflow"]) == (
        "max_completion_tokens",
        "openai",
        "recognised",
    )
    assert facts["tolerates"]["two_user"] is True
    assert facts["calls"] == ("refused" if vllm.start == "raw" else "none")  # this model calls only what it has learned
    assert ("--enable-auto-tool-choice" in report.said("warning")) is (vllm.start == "raw")


def test_a_response_through_a_gateway_that_adapted(vllm: Server) -> None:
    async def test() -> None:
        # The model does not think about questions that it has not learned: its reasoning is named.
        given = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"} if vllm.start == "raw" else {}
        async with gateway(vllm.url, backend_api_key=None, **given) as served:
            served.parts.autoconfiguration.begin()
            assert served.parts.autoconfiguration.task is not None
            await served.parts.autoconfiguration.task
            assert served.parts.live.current.settings.max_tokens_field == "max_completion_tokens"
            asked = {"model": "tiny", "input": "Please play scenario: weather", "tools": [WEATHER], "temperature": 0}
            answer = await post(served, asked)
            items = answer.final["output"]
            assert items[0]["type"] == "reasoning"
            assert items[-1]["type"] == "function_call"
            assert items[-1]["name"] == "get_weather"
            assert answer.final["usage"]["output_tokens_details"]["reasoning_tokens"] > 0 or vllm.start == "parsed"

    run_test(test())


def test_what_the_gateway_finds_out_by_itself(vllm: Server) -> None:
    async def test() -> None:
        async with gateway(vllm.url) as served:
            served.parts.autoconfiguration.begin()
            assert served.parts.autoconfiguration.task is not None
            await served.parts.autoconfiguration.task
            assert served.parts.live.current.settings.tool_call_parser == ("auto" if vllm.start == "raw" else "none")

    run_test(test())
