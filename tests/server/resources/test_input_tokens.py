"""`POST /v1/responses/input_tokens`: the backend counts, or else the gateway's own tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from responses_gateway.backend.tokenizer.conversion import TokenizerError
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.request import translate
from responses_gateway.simulator import DIALECTS, SimulatorOptions
from responses_gateway.wire.requests import parse_request
from tests.server.running_gateway import LOOPS, Answer, Served, ask, assert_error, gateway, post, run, simulated
from tests.server.scripted_backend import Backend, Connection, Play, answering, backend, refusing
from tests.stream.vocabularies import vocabulary

PATH = "/v1/responses/input_tokens"
REQUEST: dict[str, Any] = {
    "model": "simulator",
    "instructions": "Be brief.",
    "input": "How is the weather?",
    "tools": [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}],
}
NOTHING_THERE = refusing(404, b'{"detail":"Not Found"}')
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{{ tools | tojson }}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model's tokenizer and template."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "tokenizer.json").write_text(vocabulary("llama3").to_str(), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


def counting(status: int, body: object) -> Play:
    """Return a backend whose /tokenize gives this answer."""
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return answering(head.encode(), data)


async def count(served: Served, request: dict[str, Any] = REQUEST, **headers: str) -> Answer:
    return await ask(served, "POST", PATH, json=request, headers=headers)


def asked(behind: Backend) -> tuple[str, dict[str, Any]]:
    """Head and body of the last request that the backend got."""
    head, _, body = behind.requests[-1].partition(b"\r\n\r\n")
    return head.decode(), json.loads(body)


def own_count(folder: Path, request: dict[str, Any] = REQUEST) -> int:
    return ModelTokenizer(folder / "tokenizer.json").count_input(translate(parse_request(request)).body)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_count_is_that_of_a_real_request(loop: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            counted = await count(served)
            assert counted.status == 200
            assert set(counted.json) == {"object", "input_tokens"}
            assert counted.json["object"] == "response.input_tokens"
            real = await post(served, REQUEST, stream=False)
            assert counted.json["input_tokens"] == real.json["usage"]["input_tokens"]

    run(test(), loop)


def test_the_official_client_reads_it() -> None:
    async def test() -> None:
        async with simulated() as served, openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="k") as client:
            counted = await client.responses.input_tokens.count(model="simulator", input="How is the weather?")
            more = await client.responses.input_tokens.count(model="simulator", input="How is the weather? And tomorrow?")
            assert 0 < counted.input_tokens < more.input_tokens

    run(test())


def test_the_backend_is_asked_with_everything_that_makes_the_prompt() -> None:
    async def test() -> None:
        async with backend(counting(200, {"count": 42, "tokens": [1, 2], "max_model_len": 8})) as behind:
            async with gateway(behind.url) as served:
                request = {**REQUEST, "reasoning": {"effort": "none"}, "temperature": 0.5, "stream": True}
                answer = await count(served, request, Authorization="Bearer client-key")
                assert answer.json == {"object": "response.input_tokens", "input_tokens": 42}
            head, body = asked(behind)
            assert head.startswith("POST /tokenize HTTP/1.1")
            assert "Authorization: Bearer client-key" in head
            assert body.pop("messages") == [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How is the weather?"},
            ]
            assert [tool["function"]["name"] for tool in body.pop("tools")] == ["get_weather"]
            kwargs = {"enable_thinking": False, "reasoning_effort": "none"}
            assert body == {"model": "simulator", "add_generation_prompt": True, "chat_template_kwargs": kwargs}

    run(test())


def test_the_clients_key_stays_here_if_the_operator_says_so() -> None:
    async def test() -> None:
        async with backend(counting(200, {"count": 1})) as behind:
            async with gateway(behind.url, forward_authorization=False) as served:
                assert (await count(served, Authorization="Bearer client-key")).status == 200
            assert "client-key" not in asked(behind)[0]

    run(test())


@pytest.mark.parametrize(
    "play",
    [
        NOTHING_THERE,
        refusing(404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),
        refusing(422, b'{"detail":[{"loc":["body","prompt"],"msg":"Field required"}]}'),
        refusing(400, b'{"error":{"message":"prompt: Field required","type":"Bad Request","code":400}}'),
        counting(200, {"tokens": []}),
        answering(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n", b"<hi>"),
    ],
    ids=["none", "llama.cpp", "prompt only", "prompt only 400", "without a count", "no JSON"],
)
def test_where_the_backend_cannot_the_own_tokenizer_counts(play: Play, folder: Path) -> None:
    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, tokenizer=str(folder)) as served:
            assert (await count(served)).json == {"object": "response.input_tokens", "input_tokens": own_count(folder)}

    run(test())


@pytest.mark.parametrize("play", [NOTHING_THERE, counting(200, {"tokens": []})])
def test_where_nobody_can_the_error_says_what_to_configure(play: Play) -> None:
    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            message = assert_error(await count(served), 400, "input_tokens_unavailable")
            assert "the setting `tokenizer`" in message

    run(test())


def test_refusals_of_the_backend_are_told() -> None:
    unknown = b'{"error":{"message":"The model `x` does not exist.","type":"NotFoundError","param":"model","code":404}}'
    wrong = b'{"error":{"message":"Conversation roles must alternate","type":"BadRequestError","param":null,"code":400}}'

    async def test() -> None:
        async with backend(refusing(404, unknown)) as behind, gateway(behind.url) as served:
            assert_error(await count(served), 404, "model_not_found")
        async with backend(refusing(400, wrong)) as behind, gateway(behind.url) as served:
            assert "alternate" in assert_error(await count(served), 400)
        async with backend(refusing(503, b"busy")) as behind, gateway(behind.url) as served:
            assert_error(await count(served), 503, "server_error")

    run(test())


def test_a_backend_that_is_silent_or_breaks_off() -> None:
    async def silent(connection: Connection) -> None:
        await connection.lost

    cut = answering(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n", b'{"count"')

    async def test() -> None:
        async with backend(silent) as behind, gateway(behind.url, idle_timeout=0.05) as served:
            assert_error(await count(served), 504, "server_error")
        async with backend(cut) as behind, gateway(behind.url) as served:
            assert_error(await count(served), 502, "server_error")

    run(test())


def test_a_request_that_is_wrong_is_refused_like_a_real_one() -> None:
    async def test() -> None:
        async with simulated(strict=True) as served:
            assert_error(await count(served, {"model": "simulator"}), 400, "missing_required_parameter")
            assert_error(await count(served, {**REQUEST, "previous_response_id": "resp_1"}), 400, "previous_response_not_found")
            assert_error(await count(served, {**REQUEST, "truncation": "auto", "nonsense": 1}), 400)
            not_allowed = await ask(served, "GET", PATH)
            assert_error(not_allowed, 405, "method_not_allowed")
            assert not_allowed.headers["allow"] == "POST"

    run(test())


def test_pictures_are_for_backends_that_can_count_them(folder: Path) -> None:
    content = [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]
    request = {**REQUEST, "input": [{"role": "user", "content": content}]}

    async def test() -> None:
        async with backend(NOTHING_THERE) as behind, gateway(behind.url, tokenizer=str(folder)) as served:
            assert "image_url" in assert_error(await count(served, request), 400, "unsupported_value")

    run(test())


def test_a_tokenizer_that_is_not_there_stops_the_start() -> None:
    async def test() -> None:
        with pytest.raises(TokenizerError, match="no file or folder /nowhere/at/all"):
            async with gateway("http://127.0.0.1:9", tokenizer="/nowhere/at/all"):
                pytest.fail("it started")

    run(test())


def test_llamacpp_renders_the_prompt_first() -> None:
    # Its /tokenize ignores messages, and answers 200 all the same.
    async def test() -> None:
        llamacpp = SimulatorOptions(dialect=DIALECTS["llamacpp"])
        async with simulated(llamacpp) as served:
            counted = await count(served)
            assert counted.status == 200, counted.body
            answer = await post(served, {**REQUEST, "stream": True})
            assert counted.json["input_tokens"] == answer.final["usage"]["input_tokens"]

    run(test())


def test_a_server_that_cannot_render_either_needs_a_tokenizer(folder: Path) -> None:
    async def play(connection: Connection) -> None:
        path = connection.requests[-1].split(b" ", 2)[1]
        answers = {b"/tokenize": (200, b'{"tokens":[]}')}
        status, body = answers.get(path, (404, b"{}"))
        head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        connection.write(head + body)

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, adapt=False) as served:
            assert_error(await count(served), 400, "input_tokens_unavailable")
        async with backend(play) as behind, gateway(behind.url, adapt=False, tokenizer=str(folder)) as served:
            assert (await count(served)).json["input_tokens"] == own_count(folder)

    run(test())
