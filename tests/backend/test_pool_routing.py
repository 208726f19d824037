"""Several backends behind one gateway: which one answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.backend.controlled_backends import Replica, pool, replicas, text_of
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Served, ask, assert_error, final_of, gateway, post, run, until


async def writer(served: Served, **fields: Any) -> str:
    """Return the name of the replica that answers."""
    return text_of((await post(served, **{"model": "m", **fields})).final)


# ---- by model ---------------------------------------------------------------------------------------------------------


def test_a_request_goes_where_its_model_is_served() -> None:
    async def test() -> None:
        async with pool(Replica("A", ("qwen", "shared")), Replica("B", ("llama", "shared"))) as (served, a, b):
            assert await writer(served, model="qwen") == "A"
            assert await writer(served, model="llama") == "B"
            assert {await writer(served, model="shared") for _ in range(4)} == {"A", "B"}
            answer = await post(served, model="gpt-5")
            said = assert_error(answer, 404, "model_not_found")
            assert "`gpt-5` does not exist" in said
            assert all(name in said for name in ("`qwen`", "`llama`", "`shared`"))
            assert len(a.asked) + len(b.asked) == 6

    run(test())


def test_an_alias_is_the_backends_own_name_on_the_way_and_the_clients_in_the_answer() -> None:
    async def test() -> None:
        aliases = {"A": {"aliases": {"gpt-5": "qwen"}}, "B": {"aliases": {"gpt-5-mini": "llama"}}}
        async with pool(Replica("A", ("qwen",)), Replica("B", ("llama",)), details=aliases) as (served, a, b):
            for stream in (True, False):
                answer = await post(served, model="gpt-5", stream=stream)
                final = answer.final if stream else answer.json
                assert (final["model"], text_of(final)) == ("gpt-5", "A")
            assert await writer(served, model="gpt-5-mini") == "B"
            assert [body["model"] for body in a.asked + b.asked] == ["qwen", "qwen", "llama"]
            assert a.asked[0]["messages"] == [{"role": "user", "content": "hi"}]

    run(test())


def test_one_backend_has_aliases_too_and_takes_any_other_name() -> None:
    async def test() -> None:
        async with pool(Replica("A", ("qwen",)), details={"A": {"aliases": {"gpt-5": "qwen"}}}) as (served, a):
            assert await writer(served, model="gpt-5") == "A"
            assert await writer(served, model="anything") == "A"
            assert [body["model"] for body in a.asked] == ["qwen", "anything"]
            relayed = await ask(served, "POST", "/v1/embeddings", json={"input": "x", "model": "gpt-5"})
            assert relayed.status == 200
            assert a.others == [("POST", "/v1/embeddings", b'{"input":"x","model":"qwen"}')]

    run(test())


def test_the_settings_may_say_what_a_backend_serves() -> None:
    async def test() -> None:
        async with pool(Replica("A", ("qwen", "hidden")), details={"A": {"models": ["QWEN*"]}}) as (served, _a):
            assert await writer(served, model="qwen") == "A"
            assert_error(await post(served, model="hidden"), 404, "model_not_found")
            listed = (await ask(served, "GET", "/v1/models")).json
            assert [model["id"] for model in listed["data"]] == ["qwen"]

    run(test())


def test_a_backend_that_does_not_say_what_it_serves_gets_what_nobody_else_does() -> None:
    async def test() -> None:
        silent = Replica("B", ())
        silent.lists = False
        async with pool(Replica("A", ("qwen",)), silent) as (served, *_):
            assert await writer(served, model="qwen") == "A"
            assert await writer(served, model="unheard-of") == "B"

    run(test())


def test_the_markup_of_a_model_is_known_by_the_name_behind_its_alias() -> None:
    async def test() -> None:
        a = Replica("<think>so</think>A", ("Qwen/Qwen3-8B",))
        details = {a.name: {"aliases": {"gpt-5": "Qwen/Qwen3-8B"}}}
        models = {"qwen/*": {"reasoning_parser": "auto", "opened_thinking": "no"}}
        async with replicas(a), gateway(backends={"A": {"url": a.url, **details[a.name]}}, models=models) as served:
            output = (await post(served, model="gpt-5")).final["output"]
            assert [item["type"] for item in output] == ["reasoning", "message"]

    run(test())


def test_the_log_line_of_a_response_names_its_backend(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with pool("A", "B", details={}, access_log=True) as (served, *_):
            with caplog.at_level("INFO", logger="responses_gateway"):
                await post(served, model="m")
                await until(lambda: not served.parts.in_flight.activities)
                served.parts.metrics.flush()
            [fields] = [vars(record)["fields"] for record in caplog.records if record.message == "response"]
            assert fields["backend"] in {"A", "B"}

    run(test())


# ---- lists of models --------------------------------------------------------------------------------------------------


def test_the_list_of_models_is_that_of_all_with_their_aliases() -> None:
    async def test() -> None:
        a = Replica("A", ("qwen", "shared"))
        b = Replica("B", ("llama", "shared"))
        async with pool(a, b, details={"A": {"aliases": {"gpt-5": "qwen"}}}) as (served, *_):
            listed = (await ask(served, "GET", "/v1/models")).json
            assert [model["id"] for model in listed["data"]] == ["qwen", "shared", "gpt-5", "llama"]
            assert [entry["slug"] for entry in listed["models"]] == ["qwen", "shared", "gpt-5", "llama"]
            alias = (await ask(served, "GET", "/v1/models/gpt-5")).json
            assert (alias["id"], alias["root"], alias["max_model_len"]) == ("gpt-5", "qwen", 1024)

    run(test())


def test_the_list_does_without_a_backend_that_is_down() -> None:
    async def test() -> None:
        async with pool(Replica("A", ("qwen",)), Replica("B", ("llama",))) as (served, a, b):
            await b.stop()
            listed = (await ask(served, "GET", "/v1/models")).json
            assert [model["id"] for model in listed["data"]] == ["qwen"]
            await a.stop()
        async with pool("A", "B") as (served, a, b):
            await a.stop()
            await b.stop()
            assert_error(await ask(served, "GET", "/v1/models"), 502)

    run(test())


# ---- keys -------------------------------------------------------------------------------------------------------------


def test_each_backend_gets_its_own_key_and_a_clients_key_only_if_it_may() -> None:
    async def test() -> None:
        several = [Replica(name, (name.lower(),)) for name in "ABC"]
        more = {"A": {"api_key": "key-of-a"}, "C": {"forward_authorization": False}}
        async with pool(*several, details=more, health_interval=3600) as (served, a, b, c):
            for one in (a, b, c):
                one.authorizations.clear()
                await post(served, model=one.name.lower(), headers={"Authorization": "Bearer of-the-client"})
            await ask(served, "GET", "/v1/models", headers={"Authorization": "Bearer of-the-client"})
            assert a.authorizations == ["Bearer key-of-a"] * 2
            assert b.authorizations == ["Bearer of-the-client"] * 2
            assert c.authorizations == [None] * 2

    run(test())


# ---- by what came before ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_requests_with_one_key_go_to_one_replica_and_keys_are_spread() -> None:
    async def test() -> None:
        async with pool("A", "B", "C") as (served, *_several):
            places = {}
            for number in range(30):  # ports are random: with fewer keys, a backend may well have none
                writers = {await writer(served, prompt_cache_key=f"key-{number}") for _ in range(3)}
                assert len(writers) == 1
                places[number] = writers.pop()
            assert len(set(places.values())) == 3

    run(test())


def test_another_gateway_chooses_alike() -> None:
    async def test() -> None:
        async with pool("A", "B", "C") as (served, a, b, c):
            first = [await writer(served, prompt_cache_key=str(number)) for number in range(8)]
            async with gateway(c.url, a.url, b.url) as two:
                assert [await writer(two, prompt_cache_key=str(number)) for number in range(8)] == first

    run(test())


def test_a_chain_of_responses_stays_on_the_replica_that_it_began_on() -> None:
    async def test() -> None:
        async with pool("A", "B", "C", store="memory") as (served, *_several):
            began = set()
            for number in range(8):
                final = (await post(served, model="m", input=f"question {number}")).final
                began.add(text_of(final))
                for _ in range(3):
                    following = (await post(served, model="m", previous_response_id=final["id"], input="go on")).final
                    assert text_of(following) == text_of(final)
                    final = following
            assert len(began) > 1

    run(test())


def test_a_conversation_stays_on_one_replica() -> None:
    async def test() -> None:
        async with pool("A", "B", "C", store="memory") as (served, *_several):
            for _ in range(4):
                made = (await ask(served, "POST", "/v1/conversations", json={})).json
                writers = {await writer(served, conversation=made["id"], input=str(turn)) for turn in range(4)}
                assert len(writers) == 1

    run(test())


@pytest.mark.parametrize("store", ["none", "memory"])
def test_a_session_over_a_websocket_stays_on_one_replica(store: str) -> None:
    async def test() -> None:
        async with pool("A", "B", "C", store=store) as (served, *_several):
            for number in range(3):
                async with connect(served) as socket:
                    final = await socket.ask(f"question {number}", model="m")
                    writers = {text_of(final)}
                    for _ in range(3):
                        final = await socket.ask("go on", model="m", previous_response_id=final["id"])
                        writers.add(text_of(final))
                    assert len(writers) == 1

    run(test())


def test_without_a_key_work_is_spread() -> None:
    async def test() -> None:
        async with pool("A", "B") as (served, a, _b):
            assert Counter([await writer(served, input="the same") for _ in range(10)]) == {"A": 5, "B": 5}
            a.does = "hang"
            slow = asyncio.create_task(writer(served))
            other = asyncio.create_task(writer(served))
            await until(lambda: a.active)
            assert {await writer(served) for _ in range(6)} == {"B"}  # A is busy
            a.go_on.set()
            assert sorted([await slow, await other]) == ["A", "B"]

    run(test())


def test_a_weight_is_a_share_of_the_work() -> None:
    async def test() -> None:
        async with pool("A", "B", details={"A": {"weight": 3}}) as (served, a, b):
            a.does = b.does = "hang"
            tasks = [asyncio.create_task(writer(served)) for _ in range(8)]
            await until(lambda: a.active + b.active == 8)
            assert (a.active, b.active) == (6, 2)
            a.go_on.set()
            b.go_on.set()
            await asyncio.gather(*tasks)

    run(test())


# ---- the relay --------------------------------------------------------------------------------------------------------


def test_the_relay_goes_by_the_model_of_a_json_body_and_else_anywhere() -> None:
    async def test() -> None:
        async with pool(Replica("A", ("qwen",)), Replica("B", ("llama",))) as (served, _a, _b):
            for model, name in (("qwen", "A"), ("llama", "B")):
                for path in ("/v1/embeddings", "/tokenize"):
                    answer = await ask(served, "POST", path, json={"input": "x" * 5000, "model": model})
                    assert answer.json == {"answered_by": name}
            assert_error(await ask(served, "POST", "/v1/embeddings", json={"model": "gpt"}), 404, "model_not_found")
            places = set()
            for sent in (
                {"data": b"{"},
                {"json": {"model": 1}},
                {"json": []},
                {"data": b"\xff", "headers": {"Content-Type": "x/y"}},
            ):
                answer = await ask(served, "POST", "/v1/anything", **sent)
                places.add(answer.json["answered_by"])
            assert places == {"A", "B"}
            assert (await ask(served, "GET", "/v1/files")).status == 200
            chat = await ask(served, "POST", "/v1/chat/completions", json={"model": "llama", "messages": []})
            assert b'"B"' in chat.body

    run(test())


def test_one_backend_gets_what_it_is_sent_and_is_asked_nothing_else() -> None:
    async def test() -> None:
        async with pool("A") as (served, a):
            answer = await post(served, model="any", prompt_cache_key="k")
            assert final_of(answer.body)["status"] == "completed"
            assert (len(a.asked), a.checks, a.authorizations) == (1, 0, [None])

    run(test())
