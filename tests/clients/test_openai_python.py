"""The official SDK against the gateway: what its user does and sees."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from responses_gateway.request.input.call_matching import PENDING_OUTPUT
from responses_gateway.simulator import RECEIVED, SimulatorOptions, create_app, serving
from tests.judges import judge_stream
from tests.server.running_gateway import LOOPS, gateway, run

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Service:
    """Gateway and simulator in a thread with an event loop of its own."""

    def __init__(self) -> None:
        self.backend = create_app(SimulatorOptions())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = AsyncExitStack()
        self._thread.start()
        self.url = self._run(self._start())

    def _run(self, work: Coroutine[Any, Any, str | None]) -> str:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20) or ""

    async def _start(self) -> str:
        url = await self._stack.enter_async_context(serving(self.backend))
        return (await self._stack.enter_async_context(gateway(url))).url

    def close(self) -> None:
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def received(self) -> dict[str, Any]:
        """Return the body of the last chat request."""
        body: dict[str, Any] = self.backend[RECEIVED][-1]["body"]
        return body


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


@pytest.fixture
def client(service: Service) -> Iterator[OpenAI]:
    """Return an SDK client whose streamed bodies are judged."""
    bodies: list[bytearray] = []

    def watch(response: httpx2.Response) -> None:
        streamed = response.headers.get("content-type", "").startswith("text/event-stream")
        if streamed and response.request.url.path.endswith("/responses"):
            body = bytearray()
            bodies.append(body)
            response.stream = _Recorded(response.stream, body)

    http = httpx2.Client(event_hooks={"response": [watch]}, trust_env=False)
    with OpenAI(base_url=f"{service.url}/v1", api_key="sk-test", max_retries=0, http_client=http) as client:
        yield client
    for body in bodies:
        assert judge_stream(bytes(body)) == []


class _Recorded(httpx2.SyncByteStream):
    def __init__(self, inner: Any, body: bytearray) -> None:
        self._inner = inner
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        for data in self._inner:
            self._body += data
            yield data

    def close(self) -> None:
        self._inner.close()


def output(response: Response) -> list[dict[str, Any]]:
    """Return the output without what differs from run to run."""
    items = [item.model_dump(exclude_none=True) for item in response.output]
    return [{key: value for key, value in item.items() if key not in {"id", "call_id", "parsed_arguments"}} for item in items]


# ---- text -------------------------------------------------------------------------------------------------------------


def test_a_text(client: OpenAI) -> None:
    response = client.responses.create(model="simulator", input="scenario: plain")
    assert response.status == "completed"
    assert response.output_text.startswith("A plain answer")
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_stream(client: OpenAI) -> None:
    with client.responses.create(model="simulator", input="hi", stream=True) as stream:
        events = list(stream)
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == last.response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize("scenario", ["default", "reasoning", "unicode", "code", "demo", "parallel", "tool", "refusal"])
def test_streamed_and_whole_are_the_same(client: OpenAI, scenario: str) -> None:
    request: dict[str, Any] = {"model": "simulator", "input": f"scenario: {scenario}", "tools": [WEATHER]}
    whole = client.responses.create(**request)
    with client.responses.stream(**request) as stream:
        streamed = stream.get_final_response()
    assert output(streamed) == output(whole)
    assert whole.output


def test_the_stream_helper(client: OpenAI) -> None:
    with client.responses.stream(model="simulator", input="hi", reasoning={"summary": "auto"}) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert {"response.output_text.delta", "response.reasoning_summary_text.delta", "response.completed"} <= kinds
    assert final.output_text
    assert final.output[0].type == "reasoning"


def test_a_conversation_goes_on(client: OpenAI, service: Service) -> None:
    first = client.responses.create(model="simulator", input="hi", instructions="Be brief.")
    history: list[Any] = [{"role": "user", "content": "hi"}, *first.output, {"role": "user", "content": "scenario: plain"}]
    second = client.responses.create(model="simulator", input=history, instructions="Be brief.")
    assert second.status == "completed"
    roles = [message["role"] for message in service.received["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert service.received["messages"][2]["reasoning"]


def test_a_structured_answer(client: OpenAI) -> None:
    class City(BaseModel):
        name: str
        population: int

    response = client.responses.parse(model="simulator", input="Which city?", text_format=City)
    assert isinstance(response.output_parsed, City)
    with client.responses.stream(model="simulator", input="Which city?", text_format=City) as stream:
        assert stream.get_final_response().output_parsed == response.output_parsed


def test_an_image(client: OpenAI) -> None:
    content: Any = [{"type": "input_text", "text": "scenario: image"}, {"type": "input_image", "image_url": PIXEL}]
    response = client.responses.create(model="simulator", input=[{"role": "user", "content": content}])
    assert "1 image part(s): image/png" in response.output_text


def test_an_answer_that_is_cut(client: OpenAI) -> None:
    response = client.responses.create(model="simulator", input="tokens: 500", max_output_tokens=20)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


# ---- tools ------------------------------------------------------------------------------------------------------------


def test_a_function_call_and_its_result(client: OpenAI) -> None:
    question: Any = {"role": "user", "content": "scenario: tool"}
    first = client.responses.create(model="simulator", input=[question], tools=[WEATHER])
    call = first.output[-1]
    assert call.type == "function_call"
    assert call.name == "get_weather"
    assert set(json.loads(call.arguments)) == {"city"}
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}
    history: list[Any] = [question, *first.output, result]
    second = client.responses.create(model="simulator", input=history, tools=[WEATHER])
    assert "22 degrees" in second.output_text


def test_a_tool_whose_result_comes_later(client: OpenAI, service: Service) -> None:
    """The items go back as the SDK has parsed them: it then calls `async` `async_`."""
    asked: Any = [{"role": "user", "content": "scenario: tool"}]
    tools: Any = [{**WEATHER, "async": True}]
    with client.responses.stream(model="simulator", input=asked, tools=tools) as stream:
        response = stream.get_final_response()
    call = next(item for item in response.output if item.type == "function_call")
    assert (call.async_, call.status, response.output[-1].type) == (True, "completed", "message")
    asked += [*response.output, {"role": "user", "content": "scenario: plain"}]
    again = client.responses.create(model="simulator", input=asked, tools=[WEATHER])
    assert again.output_text == "A plain answer to “scenario: plain”."
    asked += [*again.output, {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}]
    assert client.responses.create(model="simulator", input=asked, tools=[WEATHER]).status == "completed"
    told = [message["content"] for message in service.received["messages"] if message["role"] == "tool"]
    assert told == [PENDING_OUTPUT.text, "22 degrees"]


def test_parallel_calls(client: OpenAI) -> None:
    question: Any = {"role": "user", "content": "scenario: parallel"}
    with client.responses.stream(model="simulator", input=[question], tools=[WEATHER]) as stream:
        first = stream.get_final_response()
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Rome", "Lima"]
    assert calls[0].call_id != calls[1].call_id
    results: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"{call.name} {place}"}
        for place, call in enumerate(calls)
    ]
    history: list[Any] = [question, *first.output, *results]
    second = client.responses.create(model="simulator", input=history, tools=[WEATHER])
    assert "get_weather 0" in second.output_text
    assert "get_weather 1" in second.output_text
    one: Any = client.responses.create(model="simulator", input=[question], tools=[WEATHER], parallel_tool_calls=False)
    assert [item.type for item in one.output].count("function_call") == 1


def test_a_custom_tool(client: OpenAI) -> None:
    tool: Any = {"type": "custom", "name": "write_poem", "description": "Writes down a poem."}
    question: Any = {"role": "user", "content": "scenario: tool"}
    with client.responses.stream(model="simulator", input=[question], tools=[tool]) as stream:
        kinds = [event.type for event in stream]
        first = stream.get_final_response()
    assert "response.custom_tool_call_input.done" in kinds
    call = first.output[-1]
    assert call.type == "custom_tool_call"
    assert call.name == "write_poem"
    result: Any = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "written"}
    history: Any = [question, *first.output, result]
    second = client.responses.create(model="simulator", input=history, tools=[tool])
    assert "written" in second.output_text


# ---- errors and headers -----------------------------------------------------------------------------------------------

ERRORS: list[tuple[str, type[openai.APIStatusError], int, str]] = [
    ("fault: status=400", openai.BadRequestError, 400, "invalid_prompt"),
    ("fault: overflow=vllm", openai.BadRequestError, 400, "context_length_exceeded"),
    ("fault: status=401", openai.AuthenticationError, 401, "invalid_api_key"),
    ("fault: status=403", openai.PermissionDeniedError, 403, "permission_denied"),
    ("fault: status=429,retry-after=7", openai.RateLimitError, 429, "rate_limit_exceeded"),
    ("fault: status=500", openai.InternalServerError, 502, "server_error"),
    ("fault: status=503", openai.InternalServerError, 503, "server_error"),
    ("fault: reset", openai.InternalServerError, 502, "server_error"),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("spec", "kind", "status", "code"), ERRORS, ids=[error[0] for error in ERRORS])
def test_error_classes(
    client: OpenAI, spec: str, kind: type[openai.APIStatusError], status: int, code: str, stream: bool
) -> None:
    with pytest.raises(kind) as caught:
        client.responses.create(model="simulator", input=spec, stream=stream)
    error = caught.value
    assert (error.status_code, error.code) == (status, code)
    assert error.request_id
    if status == 429:
        assert error.response.headers["retry-after"] == "7"


def test_a_model_that_does_not_exist() -> None:
    async def test() -> None:
        async with serving(create_app(SimulatorOptions(strict_models=True))) as url, gateway(url) as served:  # noqa: SIM117
            async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client:
                with pytest.raises(openai.NotFoundError) as caught:
                    await client.responses.create(model="nope", input="hi")
                assert (caught.value.code, caught.value.param) == ("model_not_found", "model")

    run(test())


def test_the_sdk_tries_again_and_succeeds(service: Service) -> None:
    with OpenAI(base_url=f"{service.url}/v1", api_key="x", max_retries=2, http_client=httpx2.Client(trust_env=False)) as client:
        request = "scenario: plain fault: status=503,once,retry-after=0"
        assert client.responses.create(model="simulator", input=request).status == "completed"


def test_a_stream_that_fails(client: OpenAI) -> None:
    with client.responses.create(model="simulator", input="fault: drop=text", stream=True) as stream:
        last = list(stream)[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.code == "server_error"


def test_raw_headers(client: OpenAI) -> None:
    headers = {"X-Request-Id": "mine"}
    raw = client.responses.with_raw_response.create(model="simulator", input="hi", extra_headers=headers)
    assert raw.headers["x-request-id"] == "mine"
    assert raw.parse().status == "completed"
    assert client.responses.create(model="simulator", input="hi")._request_id


def test_other_endpoints(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["simulator"]
    assert len(client.embeddings.create(model="simulator", input=["a"]).data[0].embedding) > 0
    chat = client.chat.completions.create(model="simulator", messages=[{"role": "user", "content": "hi"}], stream=True)
    assert [one.choices[0].finish_reason for one in chat if one.choices][-1] == "stop"


# ---- asynchronous -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_the_async_client(loop: str) -> None:
    async def one(client: AsyncOpenAI, number: int) -> None:
        question = f"scenario: plain number {number}"
        async with client.responses.stream(model="simulator", input=question) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert kinds[-1] == "response.completed"
        assert f"number {number}" in final.output_text

    async def test() -> None:
        async with serving(create_app()) as url, gateway(url) as served:  # noqa: SIM117
            async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as client:
                await asyncio.gather(*(one(client, number) for number in range(20)))
                async with await client.responses.create(
                    model="simulator", input="tokens: 5000 tps: 50", stream=True
                ) as stream:
                    async for event in stream:
                        if event.type == "response.output_text.delta":
                            break  # leaves in the middle

    run(test(), loop)
