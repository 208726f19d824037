"""Compaction and sealed reasoning: what the client keeps for us, it can neither read nor change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from responses_gateway.server.generation.preparation.encrypted_content import Encryption
from responses_gateway.simulator import RECEIVED, create_app, serving
from responses_gateway.wire.errors import ApiError
from tests.server.reports.chat_server import serving as chat_server
from tests.server.running_gateway import Answer, Served, ask, assert_error, gateway, post, run, simulated

KEY = {"Authorization": "Bearer key-a"}
OTHER = {"Authorization": "Bearer key-b"}
TRIGGER = {"type": "compaction_trigger"}
SEALED = ["reasoning.encrypted_content"]


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


async def compact(served: Served, headers: dict[str, str] | None = None, **body: Any) -> Answer:
    asked = {"model": "simulator", "input": [user("remember the number 7")], **body}
    return await ask(served, "POST", "/v1/responses/compact", json=asked, headers=headers)


async def compaction(served: Served, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a compaction item."""
    answer = await compact(served, headers)
    assert answer.status == 200, answer.body
    item: dict[str, Any] = answer.json["output"][0]
    return item


def changed(sealed: str) -> str:
    at = len(sealed) // 2
    return sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]


@pytest.mark.parametrize("stream", [True, False])
def test_a_trigger_brings_exactly_one_compaction_item(stream: bool) -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            tools = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
            answer = await post(served, input=[user("scenario: reasoning"), TRIGGER], stream=stream, tools=tools)
            response = answer.final if stream else answer.json
            (item,) = response["output"]
            assert set(item) == {"type", "id", "encrypted_content"}
            assert (response["status"], item["type"], response["usage"]["output_tokens"] > 0) == (
                "completed",
                "compaction",
                True,
            )
            chat = backend[RECEIVED][-1]["body"]
            assert "tools" not in chat
            assert "summary" in chat["messages"][-1]["content"]
            if stream:
                kinds = [event["type"].removeprefix("response.") for event in answer.events]
                begun = ["created", "in_progress", "output_item.added", "compaction.compacting"]
                assert kinds == [*begun, "output_item.done", "completed"]

    run(test())


def test_the_model_reads_the_summary_instead_of_the_history() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            answer = await compact(served, instructions="Be brief.")
            assert (answer.json["object"], len(answer.json["output"])) == ("response.compaction", 1)
            assert answer.json["usage"]["total_tokens"] > 0
            await post(served, input=[*answer.json["output"], user("scenario: plain")])
            first, second = backend[RECEIVED][-1]["body"]["messages"]
            assert "replaced by this summary" in first["content"]
            assert second["content"] == "scenario: plain"

    run(test())


def test_a_chain_goes_on_from_its_compaction() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            first = await post(served, input="remember the number 7")
            second = await post(served, input=[TRIGGER], previous_response_id=first.final["id"])
            assert [item["type"] for item in second.final["output"]] == ["compaction"]
            await post(served, input="scenario: plain", previous_response_id=second.final["id"])
            messages = backend[RECEIVED][-1]["body"]["messages"]
            assert len(messages) == 2
            assert "replaced by this summary" in messages[0]["content"]

    run(test())


def test_what_was_changed_or_belongs_to_another_is_refused() -> None:
    async def test() -> None:
        async with simulated() as served:
            item = await compaction(served, KEY)
            tampered = {**item, "encrypted_content": changed(item["encrypted_content"])}
            refused = await post(served, input=[user("x"), tampered], headers=KEY)
            assert_error(refused, 400, "invalid_encrypted_content")
            assert refused.json["error"]["param"] == "input[1].encrypted_content"
            assert_error(await post(served, input=[item, user("x")], headers=OTHER), 400, "invalid_encrypted_content")
            assert (await post(served, input=[item, user("x")], headers=KEY)).status == 200
            foreign = {**item, "encrypted_content": "gAAAA-of-another-server"}
            passed = await post(served, input=[foreign, user("x")], headers=KEY)
            assert "compaction" in passed.headers["x-responses-gateway-losses"]

    run(test())


def test_no_character_of_a_sealed_text_can_be_changed() -> None:
    seal = Encryption(b"key")
    for text in ("a", "ab", "abc", "abcd"):  # all lengths of the padding
        sealed = seal.encrypt("reasoning", "", "m", text)
        assert seal.decrypt("reasoning", "", sealed, "input") == ("m", text)
        body = sealed.rstrip("=")
        for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/":
            tampered = body[:-1] + other + sealed[len(body) :]
            if tampered != sealed:
                with pytest.raises(ApiError):
                    seal.decrypt("reasoning", "", tampered, "input")


@pytest.mark.parametrize("kind", ["compaction", "reasoning"])
def test_what_is_sealed_is_a_text(kind: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            refused = await post(served, input=[user("x"), {"type": kind, "summary": [], "encrypted_content": ["x"]}])
            assert_error(refused, 400, "invalid_type")
            assert refused.json["error"]["param"] == "input[1].encrypted_content"

    run(test())


def test_what_cannot_be_compacted() -> None:
    async def test() -> None:
        async with simulated() as served:
            assert_error(await compact(served, model=None), 400, "missing_required_parameter")
            assert_error(await compact(served, previous_response_id="resp_x"), 400, "previous_response_not_found")
            assert_error(await compact(served, model="sim-plain+status=429"), 429)
            assert_error(await compact(served, model="sim-plain+drop=text"), 502)
            assert_error(await ask(served, "GET", "/v1/responses/compact"), 405)

    run(test())


def test_the_key_is_kept_with_the_store_or_given(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(create_app()) as url:
            for settings in ({"store": str(tmp_path / "x.sqlite3")}, {"seal_key": "a secret"}):
                async with gateway(url, **settings) as served:
                    item = await compaction(served)
                async with gateway(url, **settings) as served:
                    answer = await post(served, input=[item, user("x")])
                    assert "compaction" not in answer.headers.get("x-responses-gateway-losses", "")
                async with gateway(url) as served:
                    answer = await post(served, input=[item, user("x")])
                    assert "compaction" in answer.headers["x-responses-gateway-losses"]

    run(test())


def test_an_empty_secret_is_none_which_anybody_would_know() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, seal_key="") as served:
            item = await compaction(served)
            assert Encryption(b"").decrypt("compaction", "", item["encrypted_content"], "input") is None

    run(test())


def removed(response: dict[str, Any]) -> dict[str, str]:
    """Return what the model did not get: the ids of the items, with the reasons."""
    parsed = Response.model_validate(response).input_transformations or []
    return {entry.id: entry.reason for entry in parsed if (entry.type, entry.action) == ("reasoning", "removed")}


def test_reasoning_of_another_key_or_gateway_is_removed_and_told() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served, gateway(url) as elsewhere:
            answer = await post(served, input="scenario: reasoning", include=SEALED, headers=KEY)
            thought, said = answer.final["output"]
            bare = {name: value for name, value in thought.items() if name != "content"}
            nameless = {name: value for name, value in bare.items() if name != "id"}
            given = [user("scenario: plain"), bare, nameless, said, user("scenario: plain")]
            for where, headers in ((served, OTHER), (elsewhere, KEY)):
                again = await post(where, input=given, headers=headers)
                assert "reasoning" not in backend[RECEIVED][-1]["body"]["messages"][1]
                assert removed(again.final) == {thought["id"]: "organization_mismatch"}
            read = await post(served, input=given, headers=KEY)
            assert "input_transformations" not in read.final
            shown = await post(served, input=[user("x"), thought, said, user("x")], headers=OTHER)
            assert "input_transformations" not in shown.final

    run(test())


def test_sealed_reasoning_goes_back_to_the_model_that_thought_it() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            answer = await post(served, input="scenario: reasoning", include=SEALED)
            thought, said = answer.final["output"]
            text = thought["content"][0]["text"]
            assert thought["encrypted_content"]
            assert text not in thought["encrypted_content"]
            bare = {"type": "reasoning", "id": thought["id"], "summary": [], "encrypted_content": thought["encrypted_content"]}
            again = [user("scenario: reasoning"), bare, said, user("scenario: plain")]
            await post(served, input=again)
            assert backend[RECEIVED][-1]["body"]["messages"][1]["reasoning"] == text
            other_model = (await post(served, input=again, model="sim-plain")).final
            assert "reasoning" not in backend[RECEIVED][-1]["body"]["messages"][1]
            assert removed(other_model) == {thought["id"]: "model_mismatch"}
            for changed_item in (bare, thought):
                tampered = {**changed_item, "encrypted_content": changed(thought["encrypted_content"])}
                assert_error(await post(served, input=[tampered, said, user("x")]), 400, "invalid_encrypted_content")
                malformed = {**changed_item, "encrypted_content": thought["encrypted_content"] + "!"}
                assert_error(await post(served, input=[malformed, said, user("x")]), 400, "invalid_encrypted_content")
            without = await post(served, input="scenario: reasoning")
            assert "encrypted_content" not in json.dumps(without.final)

    run(test())


def test_a_thought_that_qwen_code_did_not_ask_for_goes_back_as_a_thought() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            asked: dict[str, Any] = {"store": False, "headers": {"User-Agent": "QwenCode/0.24.4 (linux; x64)"}}
            answer = await post(served, input="scenario: reasoning", **asked)
            thought, said = answer.final["output"]
            assert thought["content"] == []
            (part,) = thought["summary"]
            kept = {name: thought[name] for name in ("type", "id", "summary", "encrypted_content")}
            await post(served, input=[user("scenario: reasoning"), kept, said, user("scenario: plain")], **asked)
            (_, spoken, _) = backend[RECEIVED][-1]["body"]["messages"]
            assert spoken["reasoning"] == part["text"]
            assert spoken["content"] == said["content"][0]["text"]

    run(test())


# ---- what a server wants back ------------------------------------------------------------------------------------------

DETAILS = [{"type": "reasoning.encrypted", "data": "QUJD", "id": "r1", "format": "google-gemini-v1", "index": 0}]
F = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
SIGNED = {"google": {"thought_signature": "U2ln"}}
# What Codex keeps of an item.
KNOWN = {
    "reasoning": {"type", "id", "summary", "content", "encrypted_content"},
    "function_call": {"type", "id", "call_id", "name", "arguments"},
    "message": {"type", "id", "role", "content"},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model", ["m", "another"])
def test_what_belongs_to_thoughts_and_calls_comes_back_from_a_client_that_knows_nothing_of_it(stream: bool, model: str) -> None:
    function = {"name": "f", "arguments": "{}"}
    call = {"index": 0, "id": "c", "type": "function", "function": function, "extra_content": SIGNED}
    deltas = [{"reasoning": "hm", "reasoning_details": DETAILS}, {"tool_calls": [call]}]
    played = {"answers": [{"events": [*({"delta": delta} for delta in deltas), {"finish": "tool_calls"}, "DONE"]}]}

    async def test() -> None:
        async with (
            chat_server(played, {"m": "someone", "another": "someone"}, 1) as behind,
            gateway(behind.url + "/v1", store="none") as served,
        ):
            asked: dict[str, Any] = {"stream": stream, "store": False, "include": SEALED, "tools": [F], "input": [user("hi")]}
            answer = await post(served, model="m", **asked)
            output = (answer.final if stream else answer.json)["output"]
            kept = [{name: value for name, value in item.items() if name in KNOWN[item["type"]]} for item in output]
            for item in kept:
                if item["type"] == "reasoning":
                    del item["content"]
            result = {"type": "function_call_output", "call_id": kept[-1]["call_id"], "output": "done"}
            await post(served, model=model, **{**asked, "input": [user("hi"), *kept, result]})
            said = next(message for message in behind.requests[-1]["messages"] if message["role"] == "assistant")
            back = (said.get("reasoning"), said.get("reasoning_details"), said["tool_calls"][0].get("extra_content"))
            assert back == (("hm", DETAILS, SIGNED) if model == "m" else (None, None, None))  # another model wants none of it

    run(test())


def test_a_server_that_refuses_details_of_thoughts_gets_none() -> None:
    refusal = {"error": {"message": "property 'messages[1].reasoning_details' is unsupported", "type": "invalid_request_error"}}
    rule = {"if": {"has": "messages[].reasoning_details"}, "answer": {"status": 400, "json": refusal}}

    async def test() -> None:
        async with (
            chat_server({"rules": [rule]}, {"m": "someone", "n": "someone"}, 1) as behind,
            gateway(behind.url + "/v1") as served,
        ):
            thought = {"type": "reasoning", "summary": [], "reasoning_details": DETAILS}
            said = {"type": "message", "role": "assistant", "content": "Hi"}
            answer = await post(served, model="m", input=[user("hi"), thought, said, user("and?")])
            assert answer.status == 200
            assert len(behind.requests) == 2

    run(test())
