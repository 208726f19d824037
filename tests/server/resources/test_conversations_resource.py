"""Conversations: made, filled by responses and by hand, and taken apart."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.simulator import RECEIVED, create_app, serving
from tests.server.running_gateway import Answer, Served, ask, assert_error, gateway, post, run, simulated

KEY = {"Authorization": "Bearer key-a"}
OTHER = {"Authorization": "Bearer key-b"}


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


async def call(served: Served, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
    return await ask(served, method, f"/v1/conversations{path}", json=body, headers=headers)


async def texts(served: Served, name: str) -> list[str]:
    listed = (await call(served, "GET", f"/{name}/items?order=asc")).json
    assert listed["object"] == "list"
    return [item["content"][0]["text"] for item in listed["data"] if item["type"] == "message"]


def test_a_conversation_from_beginning_to_end() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            made = (await call(served, "POST", "", {"metadata": {"topic": "x"}, "items": [user("one")]})).json
            name = made["id"]
            assert (made["object"], made["metadata"]) == ("conversation", {"topic": "x"})
            assert (await call(served, "GET", f"/{name}")).json == made
            added = (await call(served, "POST", f"/{name}/items", {"items": [user("two"), user("three")]})).json["data"]
            assert [item["content"][0]["text"] for item in added] == ["two", "three"]
            assert await texts(served, name) == ["one", "two", "three"]
            assert (await call(served, "GET", f"/{name}/items/{added[0]['id']}")).json == added[0]
            assert (await call(served, "DELETE", f"/{name}/items/{added[0]['id']}")).json["id"] == name
            assert await texts(served, name) == ["one", "three"]
            assert_error(await call(served, "GET", f"/{name}/items/{added[0]['id']}"), 404, "item_not_found")
            assert_error(await call(served, "DELETE", f"/{name}/items/{added[0]['id']}"), 404, "item_not_found")
            assert (await call(served, "POST", f"/{name}", {"metadata": {"topic": "y"}})).json["metadata"] == {"topic": "y"}
            gone = (await call(served, "DELETE", f"/{name}")).json
            assert gone == {"id": name, "object": "conversation.deleted", "deleted": True}
            assert_error(await call(served, "GET", f"/{name}"), 404, "conversation_not_found")

    run(test())


@pytest.mark.parametrize("removed", ["item", "conversation"])
def test_what_is_removed_while_a_conversation_is_read_takes_nothing_else_with_it(
    removed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            table = served.parts.store.histories
            made = (await call(served, "POST", "", {"items": [user("one"), user("two"), user("three")]})).json["id"]
            first = (await call(served, "GET", f"/{made}/items?order=asc")).json["data"][0]["id"]

            def remove_before(method: str) -> None:
                """Have something removed once, after the end of the conversation was looked up, and before its items are."""
                read = getattr(table, method)

                async def reading(*arguments: Any) -> Any:
                    monkeypatch.setattr(table, method, read)
                    last = (await call(served, "GET", f"/{made}/items")).json["last_id" if method == "items" else "first_id"]
                    path = f"/{made}/items/{last}" if removed == "item" else f"/{made}"
                    assert (await call(served, "DELETE", path)).status == 200
                    return await read(*arguments)

                monkeypatch.setattr(table, method, reading)

            if removed == "conversation":
                remove_before("items")
                assert_error(await post(served, input="four", conversation=made), 404, "conversation_not_found")
                return
            remove_before("page")
            assert await texts(served, made) == ["one", "two"]
            remove_before("page")
            page = (await call(served, "GET", f"/{made}/items?order=asc&after={first}")).json
            assert (page["data"], page["has_more"]) == ([], False)
            await call(served, "POST", f"/{made}/items", {"items": [user("two"), user("three")]})
            remove_before("items")
            await post(served, input="four", conversation=made)
            assert [message["content"] for message in backend[RECEIVED][-1]["body"]["messages"]] == ["two", "three", "four"]

    run(test())


def test_responses_add_to_their_conversation() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            name = (await call(served, "POST", "")).json["id"]
            first = await post(served, input="one", conversation=name)
            assert first.final["conversation"] == {"id": name}
            second = await post(served, input="two", conversation={"id": name}, stream=False)
            told = [message["content"] for message in backend[RECEIVED][-1]["body"]["messages"]]
            said = [answer["output"][-1]["content"][0]["text"] for answer in (first.final, second.json)]
            assert told == ["one", said[0], "two"]
            assert await texts(served, name) == ["one", said[0], "two", said[1]]
            await post(served, input="three", conversation=name, store=False)
            assert len(await texts(served, name)) == 4  # one was not to be stored

    run(test())


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("background", [True, False])
def test_a_message_whose_answer_fails_stays_in_the_conversation_once(background: bool, again: bool) -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url, store="memory", retries=0) as served:
            name = (await call(served, "POST", "", {"items": [user("one")]})).json["id"]
            breaks = "scenario: plain fault: drop=text,times=1"
            failed = await post(served, input=[user("two"), user(breaks)], conversation=name, background=background)
            assert (failed.final["status"], await texts(served, name)) == ("failed", ["one", "two", breaks])
            # Its user asks again, or goes on.
            answer = await post(served, input=[user("two"), user(breaks)] if again else "four", conversation=name)
            told = ["one", "two", breaks, *([] if again else ["four"])]
            assert [message["content"] for message in backend[RECEIVED][-1]["body"]["messages"]] == told
            assert await texts(served, name) == [*told, answer.final["output"][-1]["content"][0]["text"]]

    run(test())


def test_what_cannot_be_done() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            assert_error(await post(served, conversation="conv_x"), 404, "conversation_not_found")
            response = (await post(served)).final["id"]
            name = (await call(served, "POST", "")).json["id"]
            both = await post(served, conversation=name, previous_response_id=response)
            assert_error(both, 400, "mutually_exclusive_parameters")
            assert_error(await post(served, conversation={"name": name}), 400, "invalid_type")
            for items in ("x", [1], [user("x")] * 21, [{}], [{"type": "item_reference", "id": "x"}]):
                assert_error(await call(served, "POST", "", {"items": items}), 400)
            for metadata in ("x", {"a": 1}, {"a" * 65: "b"}, {str(n): "" for n in range(17)}):
                assert_error(await call(served, "POST", "", {"metadata": metadata}), 400)

    run(test())


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"role": "robot", "content": "x"}, "items[1].role"),
        ({"type": "message", "role": "user", "content": 5}, "items[1].content"),
        ({"role": "user", "content": [{"type": "input_image"}]}, "items[1].content[0].image_url"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "items[1].call_id"),
        ({"type": "function_call_output", "call_id": "c", "output": 5}, "items[1].output"),
        ({"type": "function_call_output", "output": "x"}, "items[1].call_id"),
        ({"type": "reasoning", "summary": 5}, "items[1].summary"),
        ({"type": "compaction", "encrypted_content": 5}, "items[1].encrypted_content"),
        ({"type": "additional_tools", "tools": [{"type": "function"}]}, "items[1].tools[0].name"),
        ({"type": "compaction_trigger"}, "items[1].type"),
        ({"type": "item_reference", "id": "x"}, "items[1].type"),
    ],
)
def test_what_no_response_could_build_on_is_refused_at_once(item: dict[str, Any], param: str) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            name = (await call(served, "POST", "")).json["id"]
            for path in ("", f"/{name}/items"):
                refused = await call(served, "POST", path, {"items": [user("x"), item]})
                assert_error(refused, 400)
                assert refused.json["error"]["param"] == param
            assert (await call(served, "GET", f"/{name}/items")).json["data"] == []

    run(test())


@pytest.mark.parametrize("item", [{"role": "assistant"}, {"role": "user", "content": None}])
def test_an_empty_message_may_be_kept(item: dict[str, Any]) -> None:
    """Responses build on it: a request with it is not refused either."""

    async def test() -> None:
        async with simulated(store="memory") as served:
            name = (await call(served, "POST", "", {"items": [user("x"), item]})).json["id"]
            kept = (await call(served, "GET", f"/{name}/items?order=asc")).json["data"]
            assert [entry["content"] for entry in kept][1] == []
            assert (await post(served, conversation=name)).status == 200

    run(test())


def test_a_call_and_its_output_may_come_at_different_times() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            call_item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
            name = (await call(served, "POST", "", {"items": [user("x"), call_item]})).json["id"]
            output = {"type": "function_call_output", "call_id": "c", "output": "42"}
            assert (await call(served, "POST", f"/{name}/items", {"items": [output]})).status == 200
            assert (await post(served, input="go on", conversation=name)).final["status"] == "completed"

    run(test())


def test_metadata_is_not_lost_by_accident() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            name = (await call(served, "POST", "", {"metadata": {"topic": "x"}})).json["id"]
            assert_error(await call(served, "POST", f"/{name}", {}), 400, "missing_required_parameter")
            assert (await call(served, "GET", f"/{name}")).json["metadata"] == {"topic": "x"}
            assert (await call(served, "POST", f"/{name}", {"metadata": None})).json["metadata"] == {}

    run(test())


def test_what_is_included_is_known() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            name = (await call(served, "POST", "")).json["id"]
            query = "include[]=reasoning.encrypted_content"
            added = (await call(served, "POST", f"/{name}/items?{query}", {"items": [user("x")]})).json["data"][0]
            assert (await call(served, "GET", f"/{name}/items/{added['id']}?{query}")).json == added
            assert_error(await call(served, "POST", f"/{name}/items?include=thoughts", {"items": [user("x")]}), 400)
            assert_error(await call(served, "GET", f"/{name}/items/{added['id']}?include=thoughts"), 400)

    run(test())


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "", "POST"),
        ("PUT", "/x", "DELETE, GET, POST"),
        ("DELETE", "/x/items", "GET, POST"),
        ("POST", "/x/items/y", "DELETE, GET"),
    ],
)
def test_no_other_method_reaches_the_backend(method: str, path: str, allowed: str) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            refused = await call(served, method, path)
            assert_error(refused, 405, "method_not_allowed")
            assert refused.headers["allow"] == allowed

    run(test())


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/items"), ("POST", "/items")])
def test_a_conversation_belongs_to_one_key(method: str, path: str) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            name = (await call(served, "POST", "", {"items": [user("secret")]}, KEY)).json["id"]
            body = {"metadata": {}, "items": [user("x")]} if method == "POST" else None
            assert_error(await call(served, method, f"/{name}{path}", body, OTHER), 404, "conversation_not_found")
            assert_error(await post(served, conversation=name, headers=OTHER), 404, "conversation_not_found")
            assert (await call(served, "GET", f"/{name}", headers=KEY)).status == 200

    run(test())
