"""The endpoints of a service are followed by list and watch, whatever the API server and the network do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.backend.discovery import kubernetes
from responses_gateway.backend.discovery.kubernetes import KubernetesSource
from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from tests.backend.controlled_backends import Replica, replicas, text_of
from tests.backend.discovery.api_server import ApiServer, Object, api_server, endpoint
from tests.backend.discovery.followed import READY, Followed, following
from tests.server.running_gateway import Served, ask, assert_error, final_of, gateway, post, run, until
from tests.thoroughness import examples

STARTING = {"ready": False, "serving": False, "terminating": False}
LEAVING = {"ready": False, "serving": True, "terminating": True}
DYING = {"ready": False, "serving": False, "terminating": True}
UNKNOWN: dict[str, bool] = {}
PUBLISHED_LEAVING = {"ready": True, "serving": True, "terminating": True}
# As the table of the API's documentation has it: gets requests, is drained, or is none.
MEANINGS = [(READY, "use"), (STARTING, ""), (LEAVING, "drain"), (DYING, ""), (UNKNOWN, "use"), (PUBLISHED_LEAVING, "drain")]


def truth(server: ApiServer) -> dict[str, bool]:
    """Return the members that the objects mean, and whether each is drained."""
    found: dict[str, bool] = {}
    for (namespace, _), each in server.objects.items():
        if namespace == "models" and each["metadata"]["labels"]["kubernetes.io/service-name"] == "vllm":
            for one in each["endpoints"]:
                meaning = next(meaning for state, meaning in MEANINGS if state == one["conditions"])
                place = f"{one['addresses'][0]}:8000"
                if meaning:
                    found[place] = found.get(place, True) and meaning == "drain"
    return found


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits for the next attempt be short."""
    monkeypatch.setattr(kubernetes, "FIRST_WAIT", 0.005)
    monkeypatch.setattr(kubernetes, "LONGEST_WAIT", 0.02)
    monkeypatch.setattr(kubernetes, "BRIEF", 0.0)
    monkeypatch.setattr(kubernetes, "GRACE", 0.1)


ENDPOINTS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from([state for state, _ in MEANINGS])), max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(["a", "b", "c"]), ENDPOINTS),
        st.tuples(st.just("other"), ENDPOINTS),
        st.tuples(st.just("delete"), st.sampled_from(["a", "b", "c"])),
        st.tuples(st.just("fault"), st.sampled_from(["reset", "twice", "gone", "end"])),
        st.tuples(st.just("refuse"), st.sampled_from([500, 429, 403])),
        st.tuples(st.sampled_from(["forget", "bookmark", "token", "rest"])),
    ),
    min_size=5,
    max_size=30,
)


@given(steps=STEPS)
@settings(max_examples=examples(25), deadline=None, database=None, derandomize=True)
def test_at_rest_the_members_are_what_the_objects_say(steps: list[Any]) -> None:
    async def test() -> None:
        with TemporaryDirectory() as name:
            folder = Path(name)
            async with api_server(folder, window=8) as server, following(server, folder) as found:
                for step in steps:
                    await do(server, folder, found, *step)
                await until(lambda: found.members == truth(server), "the members are those of the objects")

    run(test())


async def do(server: ApiServer, folder: Path, found: Followed, step: str, *given: Any) -> None:
    if step == "put":
        server.put(given[0], "vllm", [endpoint(f"10.0.0.{number}", **state) for number, state in given[1]])
    elif step == "other":
        server.put("other", "other", [endpoint(f"10.0.1.{number}", **state) for number, state in given[0]])
    elif step == "delete":
        server.delete(given[0])
    elif step == "fault":
        server.fault(given[0])
    elif step == "refuse":
        server.refusals.append((given[0], {"Retry-After": "0"} if given[0] == 429 else {}))
    elif step == "token":
        server.token += "x"
        (folder / "token").write_text(server.token)
    elif step == "rest":
        await until(lambda: server.open and found.members == truth(server))
    else:
        getattr(server, step)()
    await asyncio.sleep(0)


def test_a_failed_list_is_not_an_empty_one_and_each_refusal_says_what_to_do(tmp_path: Path) -> None:
    async def test() -> None:
        async with api_server(tmp_path) as server:
            server.put("a", "vllm", [endpoint("10.0.0.1", "0", **READY)])
            async with following(server, tmp_path) as found:
                await until(lambda: found.members == {"10.0.0.1:8000": False})
                assert found.targets[0].pod == "vllm-0"
                for status, words in ((403, "list and watch of endpointslices"), (500, "HTTP 500"), (429, "HTTP 429")):
                    server.refusals += [(status, {"Retry-After": "0"} if status == 429 else {})] * 2
                    server.fault("end")
                    await until(lambda words=words: any(words in problem for problem in found.problems))  # type: ignore[misc]
                    await until(lambda: found.problem == "")
                server.token = "rotated"
                server.fault("end")
                await until(lambda: "(401)" in (found.problem or ""))
                assert set(found.members) == {"10.0.0.1:8000"}
                (tmp_path / "token").write_text("rotated")
                await until(lambda: found.problem == "")
                (forbidden,) = {problem for problem in found.problems if "403" in problem or "forbidden" in problem}
                assert "in the namespace models" in forbidden
                server.delete("a")
                await until(lambda: found.members == {})

    run(test())


@pytest.mark.parametrize("flood", ["list", "watch"])
def test_an_answer_or_a_line_without_end_is_given_up(flood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "LARGEST", 1_000_000)

    async def test() -> None:
        async with api_server(tmp_path) as server:
            server.put("a", "vllm", [endpoint("10.0.0.1", "0", **READY)])
            server.floods = flood
            async with following(server, tmp_path) as found:
                await until(lambda: any("too long" in problem for problem in found.problems))
                server.floods = ""
                await until(lambda: found.problem == "" and set(found.members) == {"10.0.0.1:8000"})

    run(test())


def test_slices_of_other_services_are_not_taken_even_if_the_server_sends_them(tmp_path: Path) -> None:
    async def test() -> None:
        async with api_server(tmp_path) as server:
            server.selects = False
            server.put("a", "vllm", [endpoint("10.0.0.1", "0", **READY)])
            server.put("b", "database", [endpoint("10.0.0.2", "1", **READY)])
            async with following(server, tmp_path) as found:
                await until(lambda: set(found.members) == {"10.0.0.1:8000"})
                server.put("c", "database", [endpoint("10.0.0.3", "2", **READY)])
                server.put("d", "vllm", [endpoint("10.0.0.4", "3", **READY)])
                await until(lambda: set(found.members) == {"10.0.0.1:8000", "10.0.0.4:8000"})
                server.put("d", "database", [endpoint("10.0.0.4", "3", **READY)])
                await until(lambda: set(found.members) == {"10.0.0.1:8000"})

    run(test())


def test_a_watch_that_falls_silent_is_begun_again_where_it_was(tmp_path: Path) -> None:
    async def test() -> None:
        async with api_server(tmp_path) as server, following(server, tmp_path, watch_seconds=1) as found:
            await until(lambda: server.open)
            server.fault("silence")
            await until(lambda: not server.faults)
            server.put("a", "vllm", [endpoint("10.0.0.1", **READY)])
            server.put("b", "vllm", [endpoint("10.0.0.2", **LEAVING)])
            await until(lambda: found.members == truth(server) and len(found.members) == 2)
            assert (server.lists, server.watches) == (1, 2)

    run(test())


def test_a_version_that_is_gone_behind_a_failed_watch_is_listed_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the API server was away, it may have forgotten the version: the pods that came and went meanwhile are news."""
    monkeypatch.setattr(kubernetes, "BRIEF", 0.0)
    monkeypatch.setattr(kubernetes, "FIRST_WAIT", 3600.0)
    monkeypatch.setattr(kubernetes, "LONGEST_WAIT", 3600.0)

    async def test() -> None:
        async with api_server(tmp_path) as server, following(server, tmp_path) as found:
            for lists in (2, 3):  # the server tells it in both ways
                await until(lambda: server.open)
                server.forget()
                server.refusals.append((429, {"Retry-After": "0"}))
                server.put("a", "vllm", [endpoint(f"10.0.0.{lists}", **READY)])
                server.forget()
                server.fault("end")
                await until(lambda lists=lists: server.lists == lists)  # type: ignore[misc]
                await until(lambda: found.members == truth(server))

    run(test())


def test_without_a_service_account_it_is_said_what_is_missing(tmp_path: Path) -> None:
    async def test() -> None:
        source = KubernetesSource("vllm", api="https://127.0.0.1:9", credentials=tmp_path)
        found = Followed()
        task = asyncio.create_task(source.watch(found))
        await until(lambda: "is this a pod with a service account?" in (found.problem or ""))
        task.cancel()

    run(test())


@pytest.mark.parametrize(
    ("ports", "wanted", "members", "problem"),
    [
        ([("http", 8000), ("metrics", 9090)], "http", {"10.0.0.1:8000"}, ""),
        ([("http", 8000), ("metrics", 9090)], "9090", {"10.0.0.1:9090"}, ""),
        ([("http", 8000), ("metrics", 9090)], "", set(), "http, metrics"),
        ([("http", 8000)], "https", set(), "no port https, but http"),
        ([(None, 8000)], "", {"10.0.0.1:8000"}, ""),
    ],
)
def test_the_port_is_chosen_by_name_or_number(
    tmp_path: Path, ports: list[tuple[str | None, int]], wanted: str, members: set[str], problem: str
) -> None:
    async def test() -> None:
        async with api_server(tmp_path) as server:
            several: list[Object] = [{"name": name, "port": number, "protocol": "TCP"} for name, number in ports]
            several.append({"name": "dns", "port": 53, "protocol": "UDP"})
            server.put("a", "vllm", [endpoint("10.0.0.1", **READY)], ports=several)
            async with following(server, tmp_path, port=wanted) as found:
                await until(lambda: set(found.members) == members and problem in (found.problem or ""))

    run(test())


def test_a_pod_with_addresses_of_both_families_is_one_member(tmp_path: Path) -> None:
    async def test() -> None:
        async with api_server(tmp_path) as server:
            server.put("six", "vllm", [endpoint("fd00::1", "0", **READY)], addressType="IPv6")
            async with following(server, tmp_path) as found:
                await until(lambda: set(found.members) == {"[fd00::1]:8000"})
                server.put("four", "vllm", [endpoint("10.0.0.1", "0", **READY)])
                await until(lambda: set(found.members) == {"10.0.0.1:8000"})

    run(test())


# ---- through the front door -------------------------------------------------------------------------------------------


@asynccontextmanager
async def clustered(server: ApiServer, folder: Path, **settings: Any) -> AsyncIterator[Served]:
    pool = {"kubernetes": "models/vllm", "api": server.url, "credentials": str(folder)}
    wanted = {"admin_key": "an-administrators-key", "queue_timeout": 0.2, "adapt": False, **settings}
    async with gateway(pools={"gpu": pool}, **wanted) as served:
        yield served


def put(server: ApiServer, url: str, uid: str, **state: bool) -> None:
    """Create or replace the slice of one backend on this machine."""
    ports = [{"name": "http", "port": int(url.rpartition(":")[2]), "protocol": "TCP"}]
    server.put(uid, "vllm", [endpoint("127.0.0.1", uid, **state)], ports=ports)


async def states(served: Served) -> dict[str, str]:
    headers = {"Authorization": "Bearer an-administrators-key"}
    answer = await ask(served, "GET", "/admin/backends", headers=headers)
    return {one["pod"]: one["state"] for one in answer.json["data"] if one["models"]}


async def stands(served: Served, **wanted: str) -> None:
    async with asyncio.timeout(60):
        while await states(served) != {f"vllm-{uid}": state for uid, state in wanted.items()}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_pod_that_terminates_keeps_its_stream_and_gets_requests_only_while_no_other_is_left(tmp_path: Path) -> None:
    async def test() -> None:
        async with api_server(tmp_path) as server, replicas(Replica("A"), Replica("B")) as (a, b):
            put(server, a.url, "a", **READY)
            async with clustered(server, tmp_path) as served:
                await stands(served, a="ready")
                a.does = "hang"
                slow = asyncio.create_task(post(served, model="m"))
                await until(lambda: a.active)
                put(server, a.url, "a", **LEAVING)
                put(server, b.url, "b", **READY)
                await stands(served, a="draining", b="ready")
                assert {text_of((await post(served, model="m", input=str(one))).final) for one in range(8)} == {"B"}
                server.delete("b")
                await stands(served, a="draining")
                last = asyncio.create_task(post(served, model="m"))
                await until(lambda: a.active == 2)
                server.delete("a")
                await until(lambda: not served.parts.pool.members.by_name)
                assert a.active == 2
                a.go_on.set()
                assert {text_of((await task).final) for task in (slow, last)} == {"A"}
                assert_error(await post(served, model="m"), 503)
                assert (await ask(served, "GET", "/ready")).status == 503

    run(test())


def test_the_stream_of_a_pod_that_is_gone_and_dies_is_continued_by_another(tmp_path: Path) -> None:
    async def test() -> None:
        options = SimulatorOptions(dialect=DIALECTS["vllm"])
        async with api_server(tmp_path) as server, serving(create_app(options)) as second:
            asked: list[web.Request] = []

            @web.middleware
            async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
                asked.extend([request] if request.method == "POST" else [])
                return await handler(request)

            app = create_app(options)
            app.middlewares.append(note)
            async with serving(app) as first, clustered(server, tmp_path) as served:
                put(server, first, "a", **READY)
                await stands(served, a="ready")
                begun = asyncio.create_task(post(served, input="scenario: plain tps: 5"))
                await until(lambda: any(each.chunks > 2 for each in served.parts.in_flight.activities))
                put(server, second, "b", **READY)
                server.delete("a")
                await stands(served, a="draining", b="ready")
                assert asked[-1].transport is not None
                asked[-1].transport.abort()
                final = final_of((await begun).body)
                assert (final["status"], text_of(final)) == ("completed", "A plain answer to “scenario: plain tps: 5”.")
                assert served.metric("continuations_total", outcome="continued", reason="broke") == 1

    run(test())


def test_a_server_that_wants_to_be_asked_at_once_is_not_asked_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "LONGEST_WAIT", 15.0)

    async def test() -> None:
        async with api_server(tmp_path) as server:
            server.refusals = [(429, {"Retry-After": "0"})] * 6
            began = asyncio.get_running_loop().time()
            async with following(server, tmp_path):
                await until(lambda: server.open)
                assert asyncio.get_running_loop().time() - began > 0.5

    run(test())


def test_a_token_of_several_lines_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        async with api_server(tmp_path) as server:
            (tmp_path / "token").write_text("one\ntwo")
            async with following(server, tmp_path) as found:
                await until(lambda: found.problem == f"{tmp_path / 'token'} is not one line of text")

    run(test())
