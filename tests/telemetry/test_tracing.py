"""Traces of our own: spans between the client's and the backend's, and what they may not cost."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest

from responses_gateway.settings import SettingsError
from responses_gateway.settings.load import load
from tests.hosted.mcp_peers import peer
from tests.log_lines import log_lines
from tests.server.fleet_of_simulators import ask as ask_fleet
from tests.server.fleet_of_simulators import fleet
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.running_gateway import RawClient, ask, gateway, post, run, until
from tests.server.scripted_backend import Backend, Connection, backend, chat_stream, refusing, streaming
from tests.waiting import PATIENCE

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra `otel` is not installed")

from tests.telemetry.collector import Collector, collector  # needs the extra
from tests.telemetry.test_trace_context import header

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
SERVER = 2
CLIENT = 3
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep this machine's own traces out, and restore the SDK's logger."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    theirs = logging.getLogger("opentelemetry")
    before = theirs.handlers, theirs.propagate
    yield
    theirs.handlers, theirs.propagate = before


# ---- with a collector -------------------------------------------------------------------------------------------------


def traced(ask_it: Callable[[Any], Any], play: Any, **settings: Any) -> tuple[Collector, Backend]:
    """Return what the collector has after some requests; the last spans leave when the gateway stops."""
    kept: list[Any] = []

    async def test() -> None:
        async with collector() as spans, backend(play) as behind:
            async with gateway(behind.url, otel_endpoint=spans.url, **settings) as served:
                await ask_it(served)
            kept.extend([spans, behind])

    run(test())
    return kept[0], kept[1]


def test_a_response_is_a_span_and_its_call_a_child() -> None:
    async def ask_it(served: Any) -> None:
        answer = await post(served, model="m", tools=[WEATHER], headers={"traceparent": PARENT, "X-Request-Id": "my-id"})
        assert answer.final["status"] == "completed"

    spans, behind = traced(ask_it, streaming(*chat_stream()))
    server = spans.one(SERVER)
    client = spans.one(CLIENT)
    assert (server.name, client.name) == ("POST /v1/responses", "chat m")
    assert (server.trace_id, server.parent_id) == (TRACE, SPAN)
    assert (client.trace_id, client.parent_id) == (TRACE, server.span_id)
    assert header(behind, "traceparent") == f"00-{TRACE}-{client.span_id}-01"
    assert server.began <= client.began <= client.events["first_token"] <= client.ended <= server.ended
    assert client.events["first_token"] <= client.events["first_visible_token"]
    url = behind.url.removeprefix("http://")
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "openai.api.type": "chat_completions",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "server.address": url.partition(":")[0],
        "server.port": int(url.partition(":")[2]),
    }
    assert client.attributes.items() >= expected.items()
    assert client.attributes["gen_ai.response.id"].startswith("resp_")
    assert server.attributes["responses_gateway.request_id"] == "my-id"
    assert server.attributes["responses_gateway.outcome"] == "completed"
    assert server.attributes["responses_gateway.delivery"] == "complete"
    assert server.attributes["http.response.status_code"] == 200
    assert server.resource["service.name"] == "responses-gateway"
    assert not server.failed
    assert not client.failed


def test_a_stored_response_that_is_fetched_is_a_span_without_tokens() -> None:
    ids: list[str] = []

    async def ask_it(served: Any) -> None:
        ids.append((await post(served, model="m")).final["id"])
        for path in (ids[0], f"{ids[0]}?stream=true", "resp_unknown"):
            await ask(served, "GET", f"/v1/responses/{path}", headers={"traceparent": PARENT})

    spans, _ = traced(ask_it, streaming(*chat_stream()), store="memory")
    fetched = [span for span in spans.spans if span.name == "fetch_response"]
    assert [span.attributes.get("gen_ai.response.id") for span in fetched] == [ids[0], ids[0], None]
    assert [span.attributes["http.response.status_code"] for span in fetched] == [200, 200, 404]
    for span in fetched:
        assert (span.kind, span.trace_id, span.parent_id, span.failed) == (SERVER, TRACE, SPAN, False)
        assert span.attributes["gen_ai.operation.name"] == "fetch_response"
        assert not [name for name in span.attributes if "usage" in name]


def test_nothing_of_the_conversation_is_in_a_span() -> None:
    async def ask_it(served: Any) -> None:
        await post(served, model="m", input="tell nobody", headers={"Authorization": "Bearer sk-client-key"})

    spans, _ = traced(ask_it, streaming(*chat_stream()))
    assert len(spans.spans) == 2
    assert [word for word in ("tell nobody", "sk-client-key", "Grüße") if word in repr(spans.spans)] == []


@pytest.mark.parametrize(
    ("play", "fields", "outcome", "server_failed", "client_failed"),
    [
        (refusing(500, b"{}"), {}, "failed", True, True),
        (refusing(400, b'{"error": {"message": "no"}}'), {}, "rejected", False, True),
        (streaming(*chat_stream()[:4]), {}, "failed", True, True),
        (streaming(), {"temperature": "hot"}, "rejected", False, None),
    ],
)
def test_what_fails_is_told(play: Any, fields: dict[str, Any], outcome: str, server_failed: bool, client_failed: Any) -> None:
    async def ask_it(served: Any) -> None:
        await post(served, model="m", **fields)

    spans, _ = traced(ask_it, play)
    server = spans.one(SERVER)
    assert server.attributes["responses_gateway.outcome"] == outcome
    assert server.failed is server_failed
    if client_failed is None:
        assert [span for span in spans.spans if span.kind == CLIENT] == []
    else:
        assert spans.one(CLIENT).failed is client_failed
        assert spans.one(CLIENT).attributes["error.type"]


def test_an_answer_that_broke_off_finished_with_an_error() -> None:
    async def ask_it(served: Any) -> None:
        await post(served, model="m")

    spans, _ = traced(ask_it, streaming(*chat_stream()[:4]))
    assert spans.one(CLIENT).attributes["gen_ai.response.finish_reasons"] == ["error"]


def test_a_client_that_leaves_is_not_an_error() -> None:
    async def held(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.send(*chat_stream()[:4])
        await connection.lost

    async def ask_it(served: Any) -> None:
        client = await RawClient.connect(served)
        await client.post(model="m")
        await client.read_until(b"output_text.delta")
        client.close()
        await until(lambda: not served.parts.in_flight.activities)

    spans, _ = traced(ask_it, held)
    server = spans.one(SERVER)
    assert server.attributes["responses_gateway.outcome"] == "cancelled"
    assert server.attributes["responses_gateway.delivery"] == "client_left"
    assert not server.failed


def test_a_name_that_is_no_text_spoils_no_other_span() -> None:
    async def ask_it(served: Any) -> None:
        await ask(served, "POST", "/v1/responses", data=b'{"model": "a\\ud800b", "input": "hi", "stream": true}')
        await post(served, model="m", tools=[WEATHER])

    spans, _ = traced(ask_it, streaming(*chat_stream()))
    assert {"chat m", "chat a\ufffdb"} >= {span.name for span in spans.spans if span.kind == CLIENT} >= {"chat m"}


def test_a_trace_that_is_not_sampled_is_carried_and_not_sent() -> None:
    async def ask_it(served: Any) -> None:
        await post(served, model="m", tools=[WEATHER], headers={"traceparent": PARENT[:-1] + "0"})

    spans, behind = traced(ask_it, streaming(*chat_stream()))
    assert spans.spans == []
    carried = header(behind, "traceparent")
    assert carried is not None
    assert carried.startswith(f"00-{TRACE}-")
    assert carried.endswith("-00")


def test_a_response_in_the_background_has_its_trace_too() -> None:
    async def ask_it(served: Any) -> None:
        await post(served, model="m", tools=[WEATHER], background=True, stream=False, headers={"traceparent": PARENT})
        await until(lambda: not served.parts.in_flight.activities)

    spans, _ = traced(ask_it, streaming(*chat_stream()), store="memory")
    assert spans.one(SERVER).attributes["responses_gateway.delivery"] == "detached"
    assert spans.one(CLIENT).parent_id == spans.one(SERVER).span_id


def test_a_response_that_has_waited_has_a_span_in_the_trace_of_its_client() -> None:
    async def ask_it(served: Any) -> None:
        fields = {"background": True, "background_options": {"completion_window": "8h"}, "store": True, "stream": False}
        name = (await post(served, model="m", headers={"traceparent": PARENT}, **fields)).json["id"]
        assert (await ask(served, "GET", f"/v1/responses/{name}?stream=true")).final["status"] == "completed"

    spans, behind = traced(ask_it, streaming(*chat_stream()), store="memory")
    (made,) = [span for span in spans.spans if span.attributes.get("responses_gateway.outcome") == "completed"]
    assert (made.name, made.parent_id) == ("POST /v1/responses", SPAN)
    assert spans.one(CLIENT).parent_id == made.span_id
    assert (header(behind, "traceparent") or "").startswith(f"00-{TRACE}-")


def test_every_response_on_a_websocket_has_a_span_of_its_own() -> None:
    async def ask_it(served: Any) -> None:
        url = f"{served.url}/v1/responses"
        async with aiohttp.ClientSession() as session, session.ws_connect(url, headers={"traceparent": PARENT}) as socket:
            for _ in range(2):
                await socket.send_json({"type": "response.create", "model": "m", "input": "hi", "tools": [WEATHER]})
                while (await socket.receive_json())["type"] != "response.completed":
                    pass

    spans, _ = traced(ask_it, streaming(*chat_stream()))
    servers = [span for span in spans.spans if span.kind == SERVER]
    assert [(span.name, span.parent_id) for span in servers] == [("WS /v1/responses", SPAN)] * 2
    assert {span.parent_id for span in spans.spans if span.kind == CLIENT} == {span.span_id for span in servers}


def test_a_collector_that_is_gone_costs_nobody_anything(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with backend(streaming(*chat_stream())) as behind:
            async with gateway(behind.url, otel_endpoint="http://127.0.0.1:9") as served:
                for _ in range(3):
                    assert (await post(served, tools=[WEATHER])).final["status"] == "completed"
                stopping = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - stopping < 5

    with caplog.at_level(logging.WARNING, logger="responses_gateway"):
        run(test())
    complaints = [record for record in caplog.records if record.getMessage() == "traces not sent"]
    assert len(complaints) == 1
    assert complaints[0].levelname == "WARNING"


def test_a_collector_that_hangs_does_not_hold_up_the_end() -> None:
    async def test() -> None:
        # Connections to it are made by the kernel, and nobody ever takes them.
        with socket.create_server(("127.0.0.1", 0)) as hanging:
            url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
            async with backend(streaming(*chat_stream())) as behind:
                async with gateway(behind.url, otel_endpoint=url) as served:
                    assert (await post(served, tools=[WEATHER])).final["status"] == "completed"
                    stopping = asyncio.get_running_loop().time()
                assert asyncio.get_running_loop().time() - stopping < 4

    run(test())


# ---- what was asked ---------------------------------------------------------------------------------------------------


def test_a_call_tells_what_the_backend_was_asked_for() -> None:
    async def ask_it(served: Any) -> None:
        sampling = {"temperature": 0.5, "top_p": 0.25, "max_output_tokens": 50, "frequency_penalty": 0.5, "presence_penalty": 1}
        more = {"seed": 7, "stop": ["END"], "reasoning": {"effort": "low"}, "service_tier": "priority"}
        await post(served, model="m", text={"format": {"type": "json_object"}}, **sampling, **more)

    spans, _ = traced(ask_it, streaming(*chat_stream()), service_tier_priorities={"priority": -5})
    expected = {
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.25,
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.frequency_penalty": 0.5,
        "gen_ai.request.presence_penalty": 1,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stop_sequences": ["END"],
        "gen_ai.request.reasoning.level": "low",
        "gen_ai.output.type": "json",
        "openai.request.service_tier": "priority",
    }
    assert spans.one(CLIENT).attributes.items() >= expected.items()
    assert "gen_ai.response.model" not in spans.one(CLIENT).attributes
    assert spans.one(SERVER).attributes["openai.request.service_tier"] == "priority"
    assert spans.one(SERVER).attributes["openai.response.service_tier"] == "priority"


def test_what_was_not_asked_for_is_not_told() -> None:
    async def ask_it(served: Any) -> None:
        await post(served, model="m", service_tier="auto", prompt_cache_key="a-session", store=False)

    spans, _ = traced(ask_it, streaming(*chat_stream()), store="memory")
    told = set(spans.one(CLIENT).attributes) | set(spans.one(SERVER).attributes)
    assert {name for name in told if name.startswith(("gen_ai.request.", "gen_ai.conversation", "gen_ai.output"))} == {
        "gen_ai.request.model",
        "gen_ai.request.stream",
    }
    assert {name for name in told if "tier" in name} == set()


def test_a_number_that_no_collector_takes_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def ask_it(served: Any) -> None:
        assert (await post(served, model="m", seed=2**64)).final["status"] == "completed"

    with caplog.at_level(logging.WARNING, logger="responses_gateway"):
        spans, _ = traced(ask_it, streaming(*chat_stream()))
    assert "gen_ai.request.seed" not in spans.one(CLIENT).attributes
    assert [record for record in caplog.records if record.getMessage() == "traces not sent"] == []


def test_the_backends_own_name_of_a_model_is_told() -> None:
    kept: list[Any] = []

    async def test() -> None:
        async with collector() as spans, backend(streaming(*chat_stream())) as behind:
            named = {"gpu": {"url": behind.url, "aliases": {"m": "org/model-70b"}}}
            async with gateway(backends=named, otel_endpoint=spans.url) as served:
                await post(served, model="m")
            kept.append(spans)

    run(test())
    call = kept[0].one(CLIENT)
    assert (call.name, call.attributes["gen_ai.request.model"]) == ("chat m", "m")
    assert call.attributes["gen_ai.response.model"] == "org/model-70b"


def test_a_conversation_and_the_response_before_are_told_by_their_ids() -> None:
    named: list[str] = []

    async def ask_it(served: Any) -> None:
        conversation = (await ask(served, "POST", "/v1/conversations", json={})).json["id"]
        first = (await post(served, model="m", conversation=conversation)).final["id"]
        await post(served, model="m", previous_response_id=first)
        assert (await post(served, model="m", conversation="conv_unknown", stream=False)).status == 404
        named.extend([conversation, first])

    spans, _ = traced(ask_it, streaming(*chat_stream()), store="memory")
    for kind in (SERVER, CLIENT):
        found = sorted((span for span in spans.spans if span.kind == kind), key=lambda span: span.began)
        assert [span.attributes.get("gen_ai.conversation.id") for span in found[:2]] == [named[0], None]
        assert [span.attributes.get("gen_ai.request.previous_response.id") for span in found[:2]] == [None, named[1]]
        assert all("gen_ai.conversation.id" not in span.attributes for span in found[2:])


def test_the_requests_of_agents_are_linked_as_a_tree() -> None:
    child = {"x-session-id": "child", "x-parent-session-id": "root"}

    async def ask_it(served: Any) -> None:
        for headers in ({"x-session-id": "root"}, child, child, {"x-session-id": "root"}):
            await post(served, model="m", headers=headers)

    spans, _ = traced(ask_it, streaming(*chat_stream()))
    servers = sorted((span for span in spans.spans if span.kind == SERVER), key=lambda span: span.began)
    first, second, third, fourth = (span.span_id for span in servers)
    relation = "responses_gateway.relation"
    assert [span.links for span in servers] == [
        {},
        {first: {relation: "parent"}},
        {second: {relation: "previous"}},
        {first: {relation: "previous"}},
    ]
    assert {span.attributes["gen_ai.conversation.id"] for span in spans.spans} == {"root"}
    assert [span.attributes["gen_ai.agent.id"] for span in servers] == ["root", "child", "child", "root"]
    assert len({first, second, third, fourth}) == 4


# ---- settings ---------------------------------------------------------------------------------------------------------


def test_the_standard_variables_name_the_collector() -> None:
    standard = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    assert load({}, None, standard).otel_endpoint == "http://collector:4318"
    assert load({"otel_endpoint": "http://other:4318"}, None, standard).otel_endpoint == "http://other:4318"
    assert load({}, None, {**standard, "OTEL_TRACES_EXPORTER": "none"}).otel_endpoint is None
    with pytest.raises(SettingsError, match=r"otel_endpoint.*OTEL_EXPORTER_OTLP_HEADERS"):
        load({}, None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:secret@collector"})


def test_without_the_extra_the_gateway_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from responses_gateway.cli import main\n"
        "sys.exit(main(['serve', '--backend', 'http://127.0.0.1:9', '--port', '0', '--store', 'none',"
        " '--otel-endpoint', 'http://127.0.0.1:9']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 2
    assert "pip install '.[otel]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_of_opentelemetry_is_imported_for_those_who_do_not_want_it() -> None:
    script = "import sys, responses_gateway.server; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=PATIENCE).returncode == 0


# ---- hosted tools -------------------------------------------------------------------------------------------------------


def test_each_turn_and_each_hosted_call_is_a_span() -> None:
    kept: list[Any] = []
    shown: list[str] = []

    async def test() -> None:
        made = calls(("docs__add", {"a": 1, "b": 2}), ("docs__fail", {}))
        async with collector() as spans:
            async with model(made, says("Ok."), mcp_servers=DOCS, otel_endpoint=spans.url) as (served, _):
                answer = await post(served, model="m", tools=[MCP])
                shown.extend(item["id"] for item in answer.final["output"] if item["type"] == "mcp_call")
            kept.append(spans)

    run(test())
    (spans,) = kept
    server = spans.one(SERVER)
    first, second = sorted((span for span in spans.spans if span.name == "chat m"), key=lambda span: span.began)
    tools = {span.name: span for span in spans.spans if span.name.startswith("execute_tool")}
    assert set(tools) == {"execute_tool add", "execute_tool fail"}
    for tool in tools.values():
        assert tool.parent_id == server.span_id
        assert first.ended <= tool.began + 1e7
        assert tool.ended <= second.began + 1e7
    outcomes = [tools[name].attributes["responses_gateway.outcome"] for name in sorted(tools)]
    assert outcomes == ["completed", "failed"]
    assert {tool.attributes["gen_ai.tool.type"] for tool in tools.values()} == {"extension"}
    assert {tool.attributes["mcp.method.name"] for tool in tools.values()} == {"tools/call"}
    assert {tool.attributes["network.transport"] for tool in tools.values()} == {"pipe"}
    assert all(tool.attributes["mcp.protocol.version"].startswith("20") for tool in tools.values())
    assert [tools[name].attributes.get("error.type") for name in sorted(tools)] == [None, "tool_error"]
    assert [tools[name].attributes["gen_ai.tool.call.id"] for name in sorted(tools)] == shown
    assert [span.attributes["gen_ai.usage.input_tokens"] for span in (first, second, server)] == [10, 10, 20]
    assert first.events["first_token"] <= first.ended


def test_each_answer_of_a_response_tells_its_own_tokens_whyever_there_are_several() -> None:
    kept: list[Any] = []

    async def test() -> None:
        settings: dict[str, Any] = {"continue_early_ends": "certain", "access_log": True}
        async with collector() as spans:
            async with model(says(""), says("Done."), otel_endpoint=spans.url, **settings) as (served, _):
                await post(served, model="m", tools=[{"type": "function", "name": "read_file"}])
            kept.extend([spans, lines("response")])

    with log_lines() as lines:
        run(test())
    spans, (line,) = kept
    own = {"input_tokens": 10, "output_tokens": 5}
    assert (line["turns"], line["usage_by_turn"], line["input_tokens"]) == (2, [own, own], 20)
    assert "hosted_calls" not in line
    calls_of_model = [span for span in spans.spans if span.name == "chat m"]
    assert [span.attributes["gen_ai.usage.input_tokens"] for span in calls_of_model] == [10, 10]
    assert [span.attributes["gen_ai.usage.output_tokens"] for span in calls_of_model] == [5, 5]
    assert spans.one(SERVER).attributes["gen_ai.usage.output_tokens"] == 10


def test_the_session_with_a_server_over_http_is_told() -> None:
    kept: list[Any] = []

    async def test() -> None:
        async with collector() as spans, peer() as theirs:
            allowed = [theirs.url.removeprefix("http://").removesuffix("/mcp")]
            turns = calls(("theirs__echo", {"a": "tell nobody"})), says("Ok.")
            async with model(*turns, mcp_allowed_hosts=allowed, otel_endpoint=spans.url) as (served, _):
                tool = {"type": "mcp", "server_label": "theirs", "server_url": theirs.url, "require_approval": "never"}
                await post(served, model="m", tools=[tool])
            kept.extend([spans, theirs.sessions])

    run(test())
    spans, sessions = kept
    (tool,) = [span for span in spans.spans if span.name == "execute_tool echo"]
    assert {tool.attributes["mcp.session.id"]} == sessions
    assert tool.attributes["network.transport"] == "tcp"
    assert "tell nobody" not in repr(spans.spans)


def test_an_approved_call_has_the_id_that_was_approved() -> None:
    kept: list[Any] = []

    async def test() -> None:
        docs = {"docs": {**DOCS["docs"], "require_approval": None}}
        always = {**MCP, "require_approval": "always"}
        turns = calls(("docs__add", {"a": 1, "b": 2})), says("3.")
        async with collector() as spans:
            async with model(*turns, mcp_servers=docs, store="memory", otel_endpoint=spans.url) as (served, _):
                first = (await post(served, model="m", tools=[always])).final
                asked = first["output"][-1]["id"]
                said = {"type": "mcp_approval_response", "approval_request_id": asked, "approve": True}
                await post(served, model="m", tools=[always], input=[said], previous_response_id=first["id"])
            kept.extend([spans, asked])

    run(test())
    spans, asked = kept
    (tool,) = [span for span in spans.spans if span.name == "execute_tool add"]
    assert tool.attributes["gen_ai.tool.call.id"] == asked


# ---- answers that broke off ---------------------------------------------------------------------------------------------


def test_an_answer_that_another_backend_continued_shows_both_calls() -> None:
    kept: list[Any] = []

    async def test() -> None:
        async with collector() as spans:
            async with fleet("vllm", otel_endpoint=spans.url) as served:
                assert (await ask_fleet(served, "demo", "drop=text,times=1")).final["status"] == "completed"
            kept.append(spans)

    run(test())
    broken, other = sorted((span for span in kept[0].spans if span.kind == CLIENT), key=lambda span: span.began)
    assert broken.attributes["gen_ai.response.finish_reasons"] == ["error"]
    assert (broken.failed, broken.attributes["error.type"]) == (True, "broke")
    assert other.attributes["gen_ai.response.finish_reasons"] != ["error"]
    assert not other.failed
    assert not kept[0].one(SERVER).failed
