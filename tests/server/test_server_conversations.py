"""Conversations: made, filled by responses and by hand, and taken apart."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.simulator import RECEIVED, create_app, serving
from tests.server.harness import Answer, Served, ask, assert_error, gateway, post, run, simulated

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
            await post(served, input="scenario: plain fault: drop=text", conversation=name)
            assert len(await texts(served, name)) == 4  # one was not to be stored, one failed

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
