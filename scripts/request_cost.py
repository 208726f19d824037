"""The cost of one plain request, counted and not timed: calls, and the files of the package that run.

A streamed request whose answer is one token, over an open connection, in a warm process. A call is one of a Python or a C
function in the thread of the event loop; what is done once for many requests (metrics, log lines) is counted with them.

    python scripts/request_cost.py [--door responses|items|messages|agent] [--store] [--weak] [--files] [--functions]
    python scripts/request_cost.py --instructions   # with valgrind: some minutes

`tests/test_request_cost.py` bounds what is counted."""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import FrameType, MappingProxyType
from typing import Any

import uvloop
from aiohttp import web

from responses_gateway.server.app import create_app
from responses_gateway.server.http.connections import Runner
from responses_gateway.server.lifespan import open_parts
from responses_gateway.server.process.serve import tune_collector
from responses_gateway.settings import Settings

ROOT = Path(__file__).parents[1]
_PACKAGE = str(ROOT / "proxy" / "responses_gateway") + "/"
_WARM = 30
_COUNTED = 50
# How often so many are counted: the least counts, because what the gateway does once a second is no part of a request.
_ROUNDS = 6
_CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%s}%s}\n\n'
_ANSWER = b"".join(
    [
        _CHUNK % (b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null', b"]"),
        _CHUNK % (b'{"content":"Hi"},"logprobs":null,"finish_reason":null', b"]"),
        _CHUNK % (b'{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null', b"]"),
        b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],'
        b'"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1}}\n\n',
        b"data: [DONE]\n\n",
    ]
)
_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"%x\r\n%b\r\n0\r\n\r\n"
)
_JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
_MODELS = b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","root":"m","max_model_len":32768}]}'
_MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
_BODIES = {
    "responses": b'{"model":"m","input":"hi","stream":true}',
    "items": b'{"model":"m","input":[{"role":"user","content":"hi"}],"stream":true}',
    "messages": b'{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true}',
    "agent": b'{"model":"m","input":"hi","stream":true,"tools":[{"type":"function","name":"save","parameters":{"type":"object",'
    b'"properties":{"text":{"type":"string"}},"required":["text"]}}]}',
}
_PATHS = {"messages": "messages"}
# All that helps models that end early and make broken calls.
WEAK: Mapping[str, Any] = MappingProxyType({
    "repair_calls": "safe",
    "strict_calls": "on",
    "continue_early_ends": "certain",
    "repetition_notice": True,
    "end_text_loops": True,
})  # fmt: skip
_OFF: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Cost:
    """What so many requests cost together: `calls` by file and function, and `files` of the package."""

    requests: int = _COUNTED
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def calls_per_request(self) -> float:
        """How many calls one request makes."""
        return self.calls.total() / self.requests

    @property
    def files(self) -> list[str]:
        """The files of the package that run in each request, sorted."""
        by_file: Counter[str] = Counter()
        for (file, _name), number in self.calls.items():
            by_file[file] += number
        own = {file.removeprefix(_PACKAGE): number for file, number in by_file.items() if file.startswith(_PACKAGE)}
        return sorted(file for file, number in own.items() if number >= self.requests)


def measured(door: str = "responses", *, store: bool = False, more: Mapping[str, Any] = _OFF) -> Cost:
    """Count what a request costs at a door: `responses` (`items`: with a list as input, as the Messages API always has it) or
    `messages`, or with a tool, `agent`. `more` are settings."""
    cost = Cost()
    uvloop.run(_run(door, store=store, more=more, requests=_WARM, cost=cost))
    return cost


async def _run(door: str, *, store: bool, more: Mapping[str, Any], requests: int, cost: Cost | None) -> None:
    """Send requests, and then those that are counted into `cost`, if there is one."""
    loop = asyncio.get_running_loop()
    backend = socket.create_server(("127.0.0.1", 0))
    Thread(target=_serve, args=(backend,), daemon=True).start()
    url = f"http://127.0.0.1:{backend.getsockname()[1]}/v1"
    settings = Settings(backend=[url], store="memory" if store else "none", **more)
    async with open_parts(settings) as parts:
        parts.autoconfiguration.begin()
        await parts.autoconfiguration.looked.wait()  # as when it serves: what the backend parses is not watched for
        runner = Runner(create_app(parts))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = _Client(runner.addresses[0][1], door)
        await loop.run_in_executor(None, client.ask, requests)
        parts.metrics.flush()
        tune_collector()  # as when it serves
        if cost is not None:
            rounds: list[Counter[tuple[str, str]]] = [Counter() for _ in range(_ROUNDS)]
            for calls in rounds:
                sys.setprofile(_counting(calls))
                try:
                    await loop.run_in_executor(None, client.ask, cost.requests)
                    parts.metrics.flush()
                finally:
                    sys.setprofile(None)
            cost.calls = min(rounds, key=Counter.total)
        client.close()
        await runner.cleanup()
    backend.close()


def _counting(calls: Counter[tuple[str, str]]) -> Any:
    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_filename, frame.f_code.co_qualname] += 1
        elif event == "c_call":
            calls["C", getattr(argument, "__qualname__", "?")] += 1

    return note


class _Client:
    """Sends requests over one connection, from a thread of its own."""

    def __init__(self, port: int, door: str) -> None:
        body = _BODIES[door]
        fields = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        head = f"POST /v1/{_PATHS.get(door, 'responses')} HTTP/1.1\r\n{fields}"
        self._request = f"{head}\r\n\r\n".encode() + body
        self._socket = socket.create_connection(("127.0.0.1", port))

    def ask(self, times: int) -> None:
        """Send the request so often, and read each answer to its end."""
        for _ in range(times):
            self._socket.sendall(self._request)
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                data = self._socket.recv(65536)
                if not data:
                    raise SystemExit(f"the gateway closed the connection: {answer!r}")
                answer += data
            if b".completed" not in answer and b"message_stop" not in answer:
                raise SystemExit(f"the gateway answered: {answer!r}")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _serve(listener: socket.socket) -> None:
    """Be a chat server with a model: answer each connection in a thread of its own."""
    while True:
        try:
            connection, _address = listener.accept()
        except OSError:
            return
        Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    received = b""
    with connection:
        while data := connection.recv(65536):
            received += data
            while b"\r\n\r\n" in received:
                head, _, rest = received.partition(b"\r\n\r\n")
                length = 0
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                if len(rest) < length:
                    break
                received = rest[length:]
                connection.sendall(_response(head))


def _response(head: bytes) -> bytes:
    if head.startswith(b"POST /v1/chat/completions"):
        return _STREAM % (len(_ANSWER), _ANSWER)
    if head.startswith(b"GET /v1/models"):
        return _JSON % (len(_MODELS), _MODELS)
    return _MISSING


def instructions(door: str, *flags: str) -> int:
    """Return the processor's instructions in user mode of one request, in the thread of the event loop: the difference of two
    runs under valgrind."""

    def run(requests: int) -> int:
        with TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "--door", door, "--only-run", str(requests), *flags]
            # A file for each thread, because client and chat server are threads of the same process.
            options = ["--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/of"]
            subprocess.run(["valgrind", *options, *command], capture_output=True, check=True)
            return int(Path(folder, "of-01").read_text().rpartition("totals: ")[2])

    more = 200
    return (run(_WARM + more) - run(_WARM)) // more


def main() -> None:
    """Print what is counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--door", choices=list(_BODIES), default="responses")
    parser.add_argument("--store", action="store_true", help="store the response, in memory")
    parser.add_argument("--weak", action="store_true", help="with all that helps models that end early and make broken calls")
    parser.add_argument("--files", action="store_true", help="list the files")
    parser.add_argument("--functions", action="store_true", help="list the functions, the most called first")
    parser.add_argument("--instructions", action="store_true", help="count the processor's instructions, with valgrind")
    parser.add_argument("--only-run", type=int, metavar="N", help="count nothing, send N requests")
    arguments = parser.parse_args()
    more = WEAK if arguments.weak else _OFF
    if arguments.only_run is not None:
        uvloop.run(_run(arguments.door, store=arguments.store, more=more, requests=arguments.only_run, cost=None))
        return
    if arguments.instructions:
        flags = [f"--{name}" for name in ("store", "weak") if getattr(arguments, name)]
        print(f"{instructions(arguments.door, *flags):,} instructions per request")
        return
    cost = measured(arguments.door, store=arguments.store, more=more)
    print(f"{cost.calls_per_request:.0f} calls per request, {len(cost.files)} files")
    if arguments.files:
        print("\n".join(cost.files))
    if arguments.functions:
        for (file, name), number in cost.calls.most_common():
            if number >= cost.requests:
                print(f"{number / cost.requests:6.1f}  {name}  ({file.removeprefix(_PACKAGE)})")


if __name__ == "__main__":
    main()
