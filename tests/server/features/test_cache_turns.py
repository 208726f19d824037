"""What a session lost of its prefix cache, turn by turn, and why: through the front door, with a real cache."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from responses_gateway.backend import block_sizes
from responses_gateway.simulator import CACHE, RECEIVED, CacheModel, SimulatorOptions, create_app, serving
from tests.hosted.websites import searched_web
from tests.log_lines import Line, log_lines
from tests.request.builders import function, user
from tests.server.running_gateway import Served, gateway, post, run, until

MODEL = "sim-agent"
INSTRUCTIONS = "You are an agent. " + "Be careful with every file. " * 20
Item = dict[str, Any]


@dataclass
class Client:
    """A client that sends the whole history each time, as Codex does."""

    served: Served
    lines: Callable[[str], list[Line]]
    session: str = "s1"
    instructions: str = INSTRUCTIONS
    tools: list[Item] = field(default_factory=lambda: [function("read_file"), function("write_file")])
    items: list[Item] = field(default_factory=list)

    async def turn(self, *items: Item, keep: bool = True, **fields: Any) -> Line:
        """Have the model answer once more, and return what the log says of that."""
        self.items += items
        asked = {"input": self.items, "instructions": self.instructions, "tools": self.tools, "store": False, **fields}
        headers = {"x-session-id": self.session, **asked.pop("headers", {})}
        answer = await post(self.served, model=asked.pop("model", "simulator"), headers=headers, **asked)
        output = answer.final["output"]
        if keep:
            self.items += output
        self.served.parts.metrics.flush()
        return self.lines("response")[-1]


def caused(line: Line) -> tuple[str | None, int | None]:
    return line.get("cache_cause"), line.get("cache_lost")


@asynccontextmanager
async def clients(*servers: web.Application, **settings: Any) -> AsyncIterator[Callable[..., Client]]:
    """Serve a gateway before simulated servers; yields what makes its clients."""
    with log_lines() as lines:
        async with serving(servers[0]) as first:
            if len(servers) == 1:
                async with gateway(first, access_log=True, **settings) as served:
                    yield lambda **fields: Client(served, lines, **fields)
            else:
                async with serving(servers[1]) as second, gateway(first, second, access_log=True, **settings) as served:
                    yield lambda **fields: Client(served, lines, **fields)


def server(**model: Any) -> web.Application:
    return create_app(SimulatorOptions(cache=CacheModel(**model)))


def telling(told: Mapping[str, str]) -> web.Application:
    """Return a server that tells of itself what is given, by path."""

    @web.middleware
    async def tell(request: web.Request, handler: Any) -> Any:
        return web.Response(text=told[request.path]) if request.path in told else await handler(request)

    app = server()
    app.middlewares.append(tell)
    return app


@pytest.mark.slow
def test_fifty_turns_of_a_loop_lose_nothing() -> None:
    async def test() -> None:
        async with clients(server()) as new:
            client = new()
            line = await client.turn(user("scenario: reasoning"))
            assert caused(line) == ("first", 0)
            for number in range(49):
                line = await client.turn(user(f"scenario: reasoning, and question {number}: {'why? ' * (number % 7)}"))
                assert caused(line) == (None, 0), line
                assert line["cached_tokens"] >= (line["cache_context"] - 1) // 16 * 16

    run(test())


CONFIG = '# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{mamba_block_size="8",block_size="%s",engine="0"} 1.0\n'


@pytest.mark.parametrize(
    ("path", "told", "block"),
    [
        ("/metrics", CONFIG % 64, 64),
        ("/metrics", CONFIG % 999999, 16),
        ("/metrics", CONFIG % ("x" * 100_000), 16),
        ("/server_info", '{"page_size": 4, "version": "0.5.23"}', 4),
        ("/get_server_info", '{"page_size": 32}', 32),
        ("/get_server_info", '{"page_size": -1}', 16),
        ("/get_server_info", '{"a":' * 100_000, 16),
    ],
)
def test_what_is_lost_is_counted_in_the_blocks_of_the_server(path: str, told: str, block: int) -> None:
    """The server is asked beside the first turn; one that tells nonsense has blocks of 16."""

    async def test() -> None:
        app = telling({path: told})
        async with clients(app) as new:
            client = new()
            await client.turn(user("scenario: plain"))
            await asked()
            app[CACHE].clear()
            line = await client.turn(user("scenario: plain, again"))
            assert caused(line) == ("evicted", line["cache_context"] // block * block)

    run(test())


def test_a_server_that_was_started_again_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that finds nothing has it asked; what was told before holds if it tells nothing now."""
    monkeypatch.setattr(block_sizes, "LEAST_INTERVAL", 0)
    told = {"/metrics": CONFIG % 64}

    async def test() -> None:
        app = telling(told)
        async with clients(app) as new:
            client = new()
            await client.turn(user("scenario: plain"))
            await asked()
            for text, before, after in ((CONFIG % 128, 64, 128), ("", 128, 128), (CONFIG % 32, 128, 32)):
                told["/metrics"] = text
                for block in (before, after):
                    app[CACHE].clear()
                    line = await client.turn(user("scenario: plain, again " + "and again " * 20))
                    assert caused(line) == ("evicted", line["cache_context"] // block * block)
                    await asked()

    run(test())


async def asked() -> None:
    """Wait until the servers that are asked for the size of their blocks have told it."""
    await asyncio.gather(*[task for task in asyncio.all_tasks() if task.get_name() == "block size"])


def test_each_change_of_a_client_is_named() -> None:
    async def test() -> None:
        async with clients(server()) as new:
            client = new()
            await client.turn(user("scenario: reasoning"))
            await client.turn(user("scenario: reasoning, again"))
            client.tools = [*client.tools, function("search")]
            line = await client.turn(user("scenario: plain"))
            assert caused(line) == ("tools_changed", lost(line))
            client.instructions += "Answer briefly."
            line = await client.turn(user("scenario: plain"))
            assert caused(line) == ("instructions_changed", lost(line))
            client.tools = client.tools[:1]
            client.instructions += "And truly."
            line = await client.turn(user("scenario: plain"))
            assert caused(line) == ("tools_changed", lost(line))  # the first of several
            client.items[0] = user("scenario: reasoning, edited " + "and so on " * 30)
            line = await client.turn(user("scenario: plain"))
            assert caused(line) == ("input_changed", lost(line))
            assert line["cache_item"] == "messages[1]"
            assert caused(await client.turn(user("scenario: plain"))) == (None, 0)
            name = "cache_lost_tokens_total"
            assert client.served.metric(name, model="simulator", cause="tools_changed") > 0
            assert client.served.metric(name, model="simulator", cause="template") == 0

    run(test())


@pytest.mark.parametrize("door", ["messages", "websocket", "chain"])
def test_turns_are_explained_however_a_session_is_asked_for(door: str) -> None:
    """A turn that only grows, one with another tool, and one with the earlier tools again."""

    async def test() -> None:
        async with clients(server(), store="memory") as new:
            client = new()
            served = client.served
            expected = [("first", 0), (None, 0), "tools_changed", "tools_changed"]
            async with (
                aiohttp.ClientSession(headers={"X-Session-Id": "s1"}) as session,
                turns_of(door, served, session) as turn,
            ):
                for number, cause in enumerate(expected):
                    await turn(f"scenario: reasoning, question {number} {'and so on ' * 20}", 1 + (number == 2))
                    served.parts.metrics.flush()
                    line = client.lines("response")[-1]
                    assert caused(line) == ((cause, lost(line)) if isinstance(cause, str) else cause), line
                    assert line["cache_possible"] >= line["cached_tokens"] // 16 * 16

    run(test())


Turn = Callable[[str, int], Awaitable[None]]


@asynccontextmanager
async def turns_of(door: str, served: Served, session: aiohttp.ClientSession) -> AsyncIterator[Turn]:
    """Yield what has a model answer to a question, given the number of its tools."""
    messages: list[Item] = []
    previous: Item = {}

    async def message(text: str, tools: int) -> None:
        messages.append({"role": "user", "content": text})
        offered = [{"name": f"f{number}", "input_schema": {"type": "object"}} for number in range(tools)]
        body = {"model": "simulator", "max_tokens": 2000, "system": INSTRUCTIONS, "messages": messages, "tools": offered}
        body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        async with session.post(f"{served.url}/v1/messages", json=body) as answer:
            messages.append({"role": "assistant", "content": (await answer.json())["content"]})

    def asked(text: str, tools: int) -> Item:
        offered = [function(f"f{number}") for number in range(tools)]
        return {"model": "simulator", "input": [user(text)], "instructions": INSTRUCTIONS, "tools": offered, **previous}

    async def response(text: str, tools: int) -> None:
        async with session.post(f"{served.url}/v1/responses", json=asked(text, tools)) as answer:
            previous["previous_response_id"] = (await answer.json())["id"]

    if door != "websocket":
        yield message if door == "messages" else response
        return
    async with session.ws_connect(f"{served.url}/v1/responses") as socket:

        async def create(text: str, tools: int) -> None:
            await socket.send_json({"type": "response.create", "store": False, **asked(text, tools)})
            async for received in socket:
                event = received.json()
                if event["type"] == "response.completed":
                    previous["previous_response_id"] = event["response"]["id"]
                    return

        yield create


@pytest.mark.parametrize(
    ("scenario", "settings", "cause"),
    [
        ("empty", {"continue_early_ends": "all"}, None),
        ("broken_arguments", {"continue_early_ends": "all"}, "input_changed"),
        ("broken_arguments", {}, "input_changed"),
    ],
)
def test_what_the_gateway_leaves_out_or_changes_is_not_blamed_on_the_template(
    scenario: str, settings: dict[str, Any], cause: str | None
) -> None:
    """What asks the model to go on is in no later request, and half a call is in none as it was."""

    async def test() -> None:
        async with clients(server(), **settings) as new:
            client = new()
            await client.turn(user(f"scenario: {scenario}"))
            causes = []
            for number in range(4):
                call = next((item for item in client.items[-2:] if item["type"] == "function_call"), None)
                result = {"type": "function_call_output", "call_id": call and call["call_id"], "output": "failed " * 40}
                line = await client.turn(result if call else user(f"scenario: {scenario}, the {number}. time"))
                causes.append(line.get("cache_cause"))
        assert set(causes) - {None} == {cause} - {None}, causes

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize(("store", "cause"), [("none", "input_changed"), ("memory", None)])
def test_results_of_the_gateway_s_tools_that_are_not_kept_are_not_blamed_on_the_template(store: str, cause: str | None) -> None:
    """A client that sends its history has no results of searches; the store has them."""

    async def test() -> None:
        async with searched_web() as searched, clients(server(), store=store, **searched.settings) as new:
            client = new(tools=[{"type": "web_search"}])
            lines = []
            for number in range(4):
                text = "research How high is the tower?" if number % 2 == 0 else "plain"
                lines.append(await client.turn(user(f"scenario: {text} {number}"), store=store != "none"))
        assert [line.get("cache_cause") for line in lines] == ["first", cause, None, cause]
        assert caused(lines[3]) == (cause, lost(lines[3]) if cause else 0)

    run(test())


def test_forks_of_a_response_lose_nothing_of_each_other() -> None:
    """No input was changed: each goes on from the response that it names, and the tokens of the others were not for it."""
    app = server()

    async def test() -> None:
        async with clients(app, store="memory") as new:
            client = new()

            async def turn(text: str, previous: str | None, **fields: Any) -> tuple[str, Line]:
                client.items = []
                line = await client.turn(user(f"scenario: plain {text}"), previous_response_id=previous, store=True, **fields)
                return str(line["response_id"]), line

            root, _ = await turn("to begin with", None)
            root, begun = await turn("before the fork", root)
            forks = [await turn(f"branch {number} {'and so on ' * 20}", root) for number in range(3)]
            ends = [await turn("on", fork) for fork, _ in forks]
            assert [caused(line) for _, line in (*forks, *ends)] == [(None, 0)] * 6
            context = begun["input_tokens"] + begun["output_tokens"]
            assert [line["cache_context"] for _, line in forks] == [context] * 3
            branches = [line["input_tokens"] + line["output_tokens"] for _, line in forks]
            assert [line["cache_context"] for _, line in ends] == branches  # all were begun before one went on
            app[CACHE].clear()
            _, line = await turn("another branch", root)
            assert caused(line) == ("evicted", context // 16 * 16)
            _, line = await turn("one with other tools", root, tools=[function("other")])
            assert caused(line) == ("tools_changed", lost(line))

    run(test())


def test_conversations_that_only_share_a_prompt_cache_key_begin_anew() -> None:
    async def test() -> None:
        async with clients(server()) as new:
            fields: dict[str, Any] = {"prompt_cache_key": "my-app", "headers": {"x-session-id": ""}}
            for place in range(3):
                client = new()
                for number in range(2):
                    question = user(f"scenario: plain, {place}, question {number} {'and so on ' * 20}")
                    line = await client.turn(question, **fields)
                    assert line["session"] == "my-app"
                    assert caused(line) == ((None, 0) if number else ("first", 0))
            line = await client.turn(user("scenario: plain"), tools=[function("other")], **fields)
            assert caused(line) == ("tools_changed", lost(line))

    run(test())


def test_another_conversation_of_a_named_session_begins_anew() -> None:
    """As behind a router that names its users: nothing is said to have changed, and each goes on from its own first turn."""

    async def test() -> None:
        async with clients(server()) as new:
            one, other = new(), new()
            for number in range(3):
                for client in (one, other):
                    question = user(f"scenario: plain, {client is one}, question {number} {'and so on ' * 20}")
                    assert caused(await client.turn(question)) == ((None, 0) if number else ("first", 0))

    run(test())


@pytest.mark.parametrize(("kind", "cause"), [("compaction", "input_changed"), ("main", "first")])
def test_a_summary_that_takes_the_place_of_a_conversation_has_changed_it(kind: str, cause: str) -> None:
    async def test() -> None:
        async with clients(server()) as new:
            client = new()
            hint = {"x-claude-code-session-id": "s1", "x-claude-code-request-class": kind}
            await client.turn(user("scenario: plain"))
            await client.turn(user("scenario: plain, sum it up"), keep=False, headers=hint)
            client.items = []
            line = await client.turn(user("scenario: plain, this is the summary"))
            assert caused(line) == (cause, lost(line) if kind == "compaction" else 0)
            assert caused(await client.turn(user("scenario: plain, go on"))) == (None, 0)

    run(test())


@pytest.mark.parametrize("whole", [False, True])
def test_what_an_automatic_compaction_loses_is_lost_by_its_own_turn(whole: bool) -> None:
    """The turn after it only grows. That the summary was asked for without tools is no change of the client's."""

    async def test() -> None:
        async with clients(server(), store="memory") as new:
            client = new()
            lines: list[Line] = []
            for number in range(6):
                if not whole:
                    client.items = []
                summaries = [place for place, item in enumerate(client.items) if item["type"] == "compaction"]
                client.items = client.items[summaries[-1] :] if summaries else client.items
                line = await client.turn(
                    user(f"scenario: plain {number} {'word ' * 300}"),
                    context_management=[{"type": "compaction", "compact_threshold": 1600}],
                    previous_response_id=None if whole or not lines else lines[-1]["response_id"],
                    store=not whole,
                )
                lines.append(line)
            (compacted,) = [line for line in lines if line.get("cache_item")]
            assert caused(compacted) == ("input_changed", lost(compacted))
            assert compacted["cache_context"] == lines[2]["input_tokens"] + lines[2]["output_tokens"]
            assert [line.get("cache_cause") for line in lines] == ["first", None, None, "input_changed", None, None]

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_conversations_in_one_thread_lose_nothing_of_each_other(whole: bool) -> None:
    """As in lanes of one connection: each goes on from its own last turn, however many others came between."""

    async def test() -> None:
        async with clients(server(), store="memory") as new:
            lanes = [new() for _ in range(12)]
            names: list[str | None] = [None] * len(lanes)
            for number in range(3):
                for place, client in enumerate(lanes):
                    if not whole:
                        client.items = []
                    question = user(f"scenario: plain, lane {place}, question {number} {'and so on ' * 20}")
                    line = await client.turn(question, previous_response_id=None if whole else names[place], store=not whole)
                    names[place] = str(line["response_id"])
                    if number:
                        assert caused(line) == (None, 0), (place, line)

    run(test())


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({}, None),
        ({"tools": [function("other")]}, "tools_changed"),
        ({"instructions": "Be quick. " * 30}, "instructions_changed"),
        ({"instructions": None}, "instructions_changed"),
        ({"reasoning": {"effort": "low"}}, None),  # a variable that this template does not read
    ],
)
def test_the_second_response_of_a_chain_is_compared_with_the_first(change: dict[str, Any], cause: str | None) -> None:
    """Nobody names a session, so that the first one is in none when it ends."""

    async def test() -> None:
        async with clients(server(), store="memory") as new:
            client = new()
            asked = {"model": "simulator", "instructions": INSTRUCTIONS, "tools": [function("f")]}
            first = await post(client.served, input=[user("scenario: reasoning")], **asked)
            again = {**asked, "input": [user("scenario: plain " + "and so on " * 30)], **change}
            second = await post(client.served, previous_response_id=first.final["id"], **again)
            await post(client.served, previous_response_id=second.final["id"], **{**again, "input": [user("Well?")]})
            client.served.parts.metrics.flush()
            begun, line, last = client.lines("response")
            assert caused(begun) == (None, None)
            usage = first.final["usage"]
            assert line["cache_context"] == usage["input_tokens"] + usage["output_tokens"]
            assert caused(line) == ((cause, lost(line)) if cause else (None, 0))
            assert caused(last) == (None, 0)

    run(test())


@pytest.mark.parametrize("ui", ["open", "off"])
@pytest.mark.parametrize(("tools", "cause"), [(1, None), (2, "tools_changed")])
def test_the_second_response_of_a_chain_that_only_a_connection_has_is_compared_with_the_first(
    tools: int, cause: str | None, ui: str
) -> None:
    async def test() -> None:
        async with (
            clients(server(), store="memory", ui=ui) as new,
            aiohttp.ClientSession() as session,
            turns_of("websocket", (client := new()).served, session) as turn,
        ):
            for number, offered in enumerate((1, tools, tools)):
                await turn(f"scenario: reasoning, question {number} {'and so on ' * 20}", offered)
            client.served.parts.metrics.flush()
            begun, line, last = client.lines("response")
            assert caused(begun) == (None, None)
            assert line["cache_context"] == begun["input_tokens"] + begun["output_tokens"]
            assert caused(line) == ((cause, lost(line)) if cause else (None, 0))
            assert caused(last) == (None, 0)

    run(test())


@pytest.mark.parametrize("ui", ["open", "off"])
def test_another_backend_is_named_for_the_second_response_of_a_chain_where_the_first_one_is_remembered(ui: str) -> None:
    async def test() -> None:
        async with clients(server(), server(), store="memory", ui=ui) as new:
            client = new()
            first = await post(client.served, input=[user("scenario: plain")], instructions=INSTRUCTIONS)
            client.served.parts.metrics.flush()
            used = client.lines("response")[-1]["backend"]
            client.served.parts.pool.members.by_name[used].draining = True
            again = [user("scenario: plain, again")]
            fields = {"instructions": INSTRUCTIONS, "previous_response_id": first.final["id"]}
            await post(client.served, input=again, **fields)
            client.served.parts.metrics.flush()
            line = client.lines("response")[-1]
            assert line["cache_cause"] == ("other_backend" if ui == "open" else "first")

    run(test())


def test_what_a_sub_agent_could_have_had_is_what_its_session_has_read() -> None:
    async def test() -> None:
        async with clients(server()) as new:
            parent = new()
            await parent.turn(user("scenario: plain"))
            child = new(session="s1-child")
            line = await child.turn(user("scenario: plain, for a child"), headers={"x-parent-session-id": "s1"})
            assert caused(line) == ("first", 0)
            assert line["session"] == "s1"
            assert line["cache_possible"] >= line["cached_tokens"] // 16 * 16 > 100

    run(test())


def lost(line: Line) -> int:
    """Return what the rule of the log's field says: the context before less what was cached, in whole blocks."""
    return int((line["cache_context"] - line["cached_tokens"]) // 16 * 16)


@pytest.mark.slow
def test_a_template_that_leaves_out_thoughts_is_named_and_told_from_eviction() -> None:
    """Fifty turns of work: tools are called, and now and then the user speaks, when the thoughts before that are left out."""
    app = server(drops_thoughts=True)

    async def test() -> None:
        async with clients(app) as new:
            client = new()
            assert caused(await client.turn(user("scenario: tool"))) == ("first", 0)
            for number in range(49):
                evicts = number % 11 == 7
                if evicts:
                    app[CACHE].clear()
                call = next((item for item in client.items[-3:] if item["type"] == "function_call"), None)
                if call is not None:
                    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "some result " * 40}
                    line = await client.turn(result)
                else:
                    text = "a long description of the next task, " * (number % 5 * 20)
                    line = await client.turn(user(f"scenario: {'tool' if number % 3 else 'reasoning'} {text}"))
                expected = "evicted" if evicts else "template" if call is None else None
                assert caused(line) == (expected, lost(line) if expected else 0), line
                item = f"messages[{left_out(app)}]" if expected == "template" else None
                assert line.get("cache_item") == item

    run(test())


def left_out(app: web.Application) -> int:
    """Return the place of the first message whose thought the template leaves out for the first time."""
    messages = app[RECEIVED][-1]["body"]["messages"]
    users = [place for place, message in enumerate(messages) if message["role"] == "user"]
    return next(place for place in range(users[-2], users[-1]) if messages[place].get("reasoning"))


def test_another_backend_is_named() -> None:
    async def test() -> None:
        async with clients(server(), server()) as new:
            client = new()
            line = await client.turn(user("scenario: plain"), prompt_cache_key="s1")
            line = await client.turn(user("scenario: plain"), prompt_cache_key="s1")
            assert caused(line) == (None, 0)
            members = client.served.parts.pool.members.by_name
            members[line["backend"]].draining = True
            app_line = await client.turn(user("scenario: plain"), prompt_cache_key="s1")
            assert app_line["backend"] != line["backend"]
            assert caused(app_line) == ("other_backend", lost(app_line))
            assert caused(await client.turn(user("scenario: plain"), prompt_cache_key="s1")) == (None, 0)

    run(test())


def test_a_near_backend_that_is_too_busy_is_passed_over_and_that_is_the_cause() -> None:
    """It has the session's cache, but twice the requests that are its share; the session stays where it then is."""

    async def test() -> None:
        async with clients(server(), server()) as new, aiohttp.ClientSession() as session:
            clients_of = {name: new(session=name) for name in (f"s{number}" for number in range(12))}
            near = {name: (await each.turn(user("scenario: plain")))["backend"] for name, each in clients_of.items()}
            client = clients_of["s0"]
            beside = [name for name in near if name != "s0" and near[name] == near["s0"]][:2]
            slow = []
            for number, name in enumerate(beside):
                line = await client.turn(user(f"scenario: plain {number}"))
                assert (line["backend"], *caused(line)) == (near["s0"], None, 0)
                body = {"model": "simulator", "input": "tokens: 5000 tps: 50", "stream": True, "store": False}
                slow.append(await session.post(client.served.url + "/v1/responses", json=body, headers={"x-session-id": name}))
            members = client.served.parts.pool.members.by_name
            # A client has the headers before the server is asked.
            await until(lambda: sorted(member.load.in_flight for member in members.values()) == [0, 2], "two answers are slow")
            line = await client.turn(user("scenario: plain"))
            assert line["backend"] != near["s0"]
            assert caused(line) == ("other_backend", lost(line))
            assert client.served.metric("cache_lost_tokens_total", model="simulator", cause="other_backend") == lost(line) > 0
            again = await client.turn(user("scenario: plain"))
            assert (again["backend"], *caused(again)) == (line["backend"], None, 0)
            for answer in slow:
                answer.close()

    run(test())


def test_another_server_behind_a_router_is_named() -> None:
    """The router tells with a token which of its servers it has chosen."""
    app = server()
    pods = ["one", "one", "two", "two"]

    async def choose(request: web.Request, response: web.StreamResponse) -> None:
        if request.path.endswith("/chat/completions"):
            response.headers["x-session-token"] = base64.b64encode(pods.pop(0).encode()).decode()

    app.on_response_prepare.append(choose)

    async def test() -> None:
        async with clients(app) as new:
            client = new()
            lines = []
            for number in range(len(pods)):
                if number == 2:
                    app[CACHE].clear()  # the other one has a cache of its own
                lines.append(await client.turn(user(f"scenario: plain {number}")))
        assert [line.get("cache_cause") for line in lines] == ["first", None, "other_backend", None]

    run(test())


def test_what_is_not_reported_is_not_zero() -> None:
    async def test() -> None:
        async with clients(server(reports=False)) as new:
            client = new()
            assert caused(await client.turn(user("scenario: plain"))) == ("first", 0)
            line = await client.turn(user("scenario: plain"))
            assert caused(line) == ("unreported", None)

    run(test())


def test_an_answer_that_went_on_elsewhere_is_in_the_cache_there() -> None:
    """The second server gets the prompt as ids, and the next turn as messages."""

    async def test() -> None:
        async with clients(server(), server()) as new:
            client = new()
            await client.turn(user("scenario: plain"))
            broken = await client.turn(user("scenario: plain fault: drop=text,times=1"))
            line = await client.turn(user("scenario: plain, and on"))
            assert broken["continued"] == 1
            assert caused(line) == (None, 0)

    run(test())
