"""Where a thought begins and ends, without a setting: what the gateway learns of a model, and what a client gets meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.parsers import PromptEnd
from responses_gateway.probing.known_models import KnownModel
from responses_gateway.request import Policy
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.settings import Settings
from tests.probing.conftest import lines as lines  # noqa: PLC0414  (a fixture)
from tests.probing.simulated_backend import SimulatedBackend, adapted
from tests.server.running_gateway import Served, gateway, post, run, until
from tests.server.scripted_backend import Connection, backend, chunk, streaming, text_stream
from tests.stream.stream_player import finish, play, text
from tests.thoroughness import examples

THOUGHT = "<think>\nThey greet.\n</think>\n\n"
OPENED = "They greet.\n</think>\n\n"
FORMAT = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}}
# Without ids the backend is not asked what it is, which would take one of its answers.
RAW: dict[str, Any] = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "token_ids": "off"}
AUTO: dict[str, Any] = {"reasoning_parser": "auto", "tool_call_parser": "auto", "token_ids": "off"}


class Model:
    """A backend that answers each request with the next of some texts."""

    def __init__(self, *answers: str | list[bytes]) -> None:
        self._answers = list(answers)

    async def __call__(self, connection: Connection) -> None:
        answer = self._answers.pop(0)
        await streaming(*(text_stream(answer) if isinstance(answer, str) else answer))(connection)


async def said(served: Served, **asked: Any) -> list[tuple[str, str]]:
    """Return the type and text of each item of an answer."""
    answer = await post(served, {"model": "m", "stream": False, **asked})
    return [(item["type"], item["content"][0]["text"]) for item in answer.json["output"]]


# ---- nothing is known ------------------------------------------------------------------------------------------------------


def test_the_first_thought_in_the_text_is_reasoning_already(lines: list[str]) -> None:
    async def test() -> None:
        model = Model("Hello!", THOUGHT + "Hello!", THOUGHT + "Yes.")
        async with backend(model) as raw, gateway(raw.url) as served:
            assert await said(served) == [("message", "Hello!")]
            assert await said(served) == [("reasoning", "They greet."), ("message", "Hello!")]
            assert await said(served) == [("reasoning", "They greet."), ("message", "Yes.")]
            assert [line for line in lines if "learned" in line] == [
                "learned that the model marks its reasoning in the text model=m"
            ]

    run(test())


def test_text_of_a_backend_that_parses_is_left_alone() -> None:
    async def test() -> None:
        parsed = [chunk({"reasoning": "Hm."}), *text_stream("Yes.")]
        async with backend(Model(parsed, THOUGHT)) as parsing, gateway(parsing.url) as served:
            await said(served)
            assert await said(served) == [("message", THOUGHT)]

    run(test())


@pytest.mark.parametrize(
    "given", [{"adapt": False}, {"reasoning_parser": "none"}, {"models": {"*": {"tool_call_parser": "none"}}}]
)
def test_what_is_settled_by_the_settings_is_left_alone(given: dict[str, Any]) -> None:
    async def test() -> None:
        async with backend(Model(THOUGHT)) as raw, gateway(raw.url, **given) as served:
            assert await said(served) == [("message", THOUGHT)]

    run(test())


def test_a_raw_vllm_that_answered_the_probe_at_once(lines: list[str]) -> None:
    def change(body: dict[str, Any]) -> None:
        if "scenario" not in body["messages"][-1]["content"]:
            body["messages"] = [{"role": "user", "content": "scenario: plain"}]

    async def test() -> None:
        async with adapted(SimulatedBackend("vllm-raw", change)) as served:
            settings = served.parts.live.current.settings
            assert (settings.reasoning_parser, settings.tool_call_parser) == ("auto", "auto")
            answer = await post(served, input="scenario: reasoning")
            assert [item["type"] for item in answer.final["output"]] == ["reasoning", "message"]

    run(test())


# ---- where the prompt ends -------------------------------------------------------------------------------------------------


def test_a_model_that_thinks_at_times_opens_its_thought_itself() -> None:
    """Give an answer without a thought as a message, though the probe has seen a thought."""

    async def test() -> None:
        async with adapted(SimulatedBackend("vllm-raw")) as served:
            assert served.parts.live.current.settings.reasoning_parser == "qwen3"
            kinds = {}
            for scenario in ("plain", "reasoning"):
                answer = await post(served, input=f"scenario: {scenario}")
                kinds[scenario] = [item["type"] for item in answer.final["output"]]
            assert kinds == {"plain": ["message"], "reasoning": ["reasoning", "message"]}
            assert served.metric("repairs_total", kind="reasoning_as_message") == 0

    run(test())


def prompt_of(*ids: int) -> bytes:
    return chunk({"role": "assistant", "content": ""}, prompt_token_ids=list(ids))


@pytest.mark.parametrize("learned", [True, False, None])
def test_the_ids_of_the_prompt_decide_for_their_own_answer(learned: bool | None) -> None:
    async def test() -> None:
        opened = [prompt_of(7, 8, 1, 5), *text_stream(OPENED + "Yes.")]
        closed = [prompt_of(7, 1, 5, 2, 5), *text_stream("Yes, </think> is a tag.")]
        async with backend(Model(opened, closed, opened)) as raw, gateway(raw.url, **RAW) as served:
            prompt_end = PromptEnd({"<think>": 1}, frozenset({5}))
            served.parts.autoconfiguration.known_models.learn("m", KnownModel(opens=learned, prompt_end=prompt_end))
            assert await said(served) == [("reasoning", "They greet."), ("message", "Yes.")]
            assert (await said(served))[0][0] == "message"
            assert await said(served) == [("reasoning", "They greet."), ("message", "Yes.")]
            assert (
                served.parts.autoconfiguration.known_models["m"].opens is learned
            )  # such an answer proves nothing about others

    run(test())


def test_a_vllm_whose_prompt_opens_the_thought_is_known_before_the_first_answer(lines: list[str]) -> None:
    async def test() -> None:
        async with adapted(SimulatedBackend("vllm-raw-opened")) as served:
            assert "learned that the prompt opens the model's reasoning model=simulator" in lines
            await until(
                lambda: served.parts.responses.preparation.translator.asks_for_token_ids("simulator", served.parts.live.current)
            )
            for scenario, kinds in {"reasoning": ["reasoning", "message"], "plain": ["message"]}.items():
                answer = await post(served, input=f"scenario: {scenario}")
                assert [item["type"] for item in answer.final["output"]] == kinds
                assert "think>" not in json.dumps(answer.final["output"])

    run(test())


def test_a_lone_end_marker_shows_that_the_prompt_opens_the_thought(lines: list[str]) -> None:
    """Leave text that was sent, and know the model from then on, until it answers without a thought."""

    async def test() -> None:
        model = Model(OPENED + "Yes.", OPENED + "Yes.", "No thought at all.", "Nor now.")
        async with backend(model) as raw, gateway(raw.url, **AUTO) as served:
            assert [kind for kind, _ in await said(served)] == ["message"]
            assert served.metric("repairs_total", kind="stray_end") == 1
            assert "learned that the prompt opens the model's reasoning model=m" in lines
            assert await said(served) == [("reasoning", "They greet."), ("message", "Yes.")]
            assert await said(served) == [("reasoning", "No thought at all."), ("message", "No thought at all.")]
            assert served.metric("repairs_total", kind="reasoning_as_message") == 1
            assert await said(served) == [("message", "Nor now.")]

    run(test())


def test_a_model_that_opens_its_thoughts_itself_may_write_about_the_end_marker() -> None:
    async def test() -> None:
        model = Model(THOUGHT + "Hi.", "It ends with </think> in its text.", "Plain.")
        async with backend(model) as raw, gateway(raw.url, **AUTO) as served:
            for _ in range(3):
                items = await said(served)
            assert items == [("message", "Plain.")]

    run(test())


def test_a_thought_that_is_opened_twice_proves_nothing() -> None:
    async def test() -> None:
        model = Model(OPENED + "Yes.", THOUGHT + "Yes.", OPENED + "Yes.")
        async with backend(model) as raw, gateway(raw.url, **AUTO) as served:
            for _ in range(3):
                items = await said(served)
            assert items == [("reasoning", "They greet."), ("message", "Yes.")]

    run(test())


def test_requests_that_turn_thinking_on_or_off_are_known_apart() -> None:
    async def test() -> None:
        model = Model(OPENED + "Yes.", "Plain.", OPENED + "Yes.", "Plain.")
        settings = {**AUTO, "forward": ["chat_template_kwargs"]}
        on = {"chat_template_kwargs": {"thinking": True}}
        async with backend(model) as raw, gateway(raw.url, **settings) as served:
            await said(served, **on)
            assert await said(served) == [("message", "Plain.")]
            assert await said(served, **on) == [("reasoning", "They greet."), ("message", "Yes.")]
            assert await said(served, reasoning={"effort": "none"}) == [("message", "Plain.")]

    run(test())


# ---- a parser is named -----------------------------------------------------------------------------------------------------


def items_of(choice: ParserChoice, answer: str, reason: str) -> list[Any]:
    """Return the items of an answer, of which the choice learns."""
    body = {"model": "m"}
    start = choice.start_without_template(body)
    markup = choice.markup(body, start)
    played = play(text(answer), finish(reason), markup=markup)
    assert markup is not None
    choice.learn(body, start, markup.evidence, completed=played.response["status"] == "completed")
    return played.said


pieces_of_answers = st.lists(st.sampled_from(["<think>", "</think>", "So. ", "\n", "Yes."]), min_size=1, max_size=5).map(
    "".join
)
answers_of_models = st.tuples(pieces_of_answers, st.sampled_from(["stop", "length"]))


@pytest.mark.parametrize("name", ["deepseek_r1", "qwen3", "glm45", "kimi_k2", "mistral"])
@given(before=st.lists(answers_of_models, max_size=4), answer=answers_of_models)
@settings(max_examples=examples(40), deadline=None)
def test_with_a_named_parser_an_answer_depends_on_itself_alone(
    name: str, before: list[tuple[str, str]], answer: tuple[str, str]
) -> None:
    def choice() -> ParserChoice:
        return ParserChoice(Settings(backend=["http://b"], reasoning_parser=name), Policy())

    used = choice()
    for earlier in before:
        items_of(used, *earlier)
    assert items_of(used, *answer) == items_of(choice(), *answer)


def test_a_thought_that_never_closes_is_read_by_the_named_parser_whatever_came_before(lines: list[str]) -> None:
    async def test() -> None:
        model = Model("No thought.", THOUGHT + "Hi.", "They greet", "They greet")
        async with backend(model) as raw, gateway(raw.url, **{**RAW, "reasoning_parser": "deepseek_r1"}) as served:
            found = [await said(served) for _ in range(4)]
            assert found[0] == [("reasoning", "No thought."), ("message", "No thought.")]
            assert found[2] == found[3] == [("reasoning", "They greet"), ("message", "They greet")]
        assert not [line for line in lines if "learned" in line]

    run(test())


# ---- a grammar is in force -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [RAW, {**RAW, "reasoning_parser": "deepseek_r1"}, {**RAW, "opened_thinking": "yes"}])
def test_structured_output_of_a_raw_server_is_text_from_its_first_token(given: dict[str, Any]) -> None:
    async def test() -> None:
        answer = '{"a": "<think>"}'
        async with backend(Model(answer)) as raw, gateway(raw.url, **given) as served:
            assert await said(served, text=FORMAT) == [("message", answer)]

    run(test())


@pytest.mark.parametrize("dialect", ["vllm-raw", "vllm-raw-opened", "sglang-raw-opened"])
def test_structured_output_without_a_setting(dialect: str) -> None:
    async def test() -> None:
        async with adapted(SimulatedBackend(dialect)) as served:
            answer = await post(served, input="hi", text=FORMAT)
            assert [item["type"] for item in answer.final["output"]] == ["message"]
            assert isinstance(json.loads(answer.final["output"][0]["content"][0]["text"]), dict)

    run(test())


# ---- reasoning alone -------------------------------------------------------------------------------------------------------


def test_an_answer_that_a_server_took_for_reasoning_is_a_message_too() -> None:
    async def test() -> None:
        alone = [chunk({"reasoning": "Hello!"}), chunk({}, "stop"), b"data: [DONE]\n\n"]
        async with backend(Model(alone)) as parsing, gateway(parsing.url) as served:
            assert await said(served) == [("reasoning", "Hello!"), ("message", "Hello!")]
            assert served.metric("repairs_total", kind="reasoning_as_message") == 1

    run(test())


# ---- calls in the text -----------------------------------------------------------------------------------------------------

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
QUOTES = [
    f"A call looks like this: {CALL}",
    f"```\n{CALL}\n```",
    f"Like so:\n{CALL}\nDo not forget the end.",
    f"Like so:\n`{CALL}`",
    CALL.replace("get_weather", "some_tool"),
    CALL.replace('"city": "Paris"', '"key": "value"'),
    CALL.replace('"city": "Paris"', ""),
    CALL.replace("}}", "}"),
]


async def kinds(served: Served, **asked: Any) -> list[str]:
    """Return the types of the items of an answer to a request with a tool."""
    answer = await post(served, {"model": "m", "stream": False, "tools": [WEATHER], **asked})
    return [item["type"] for item in answer.json["output"]]


@pytest.mark.parametrize("before", ["", THOUGHT, "Let me see.\n\n"])
def test_a_model_whose_calls_nobody_parses_is_known_after_two(lines: list[str], before: str) -> None:
    async def test() -> None:
        answers = [before + CALL, "Hello!", before + CALL, before + CALL, CALL, "Hello!", '{"a": "<tool_call>"}']
        async with backend(Model(*answers)) as raw, gateway(raw.url) as served:
            found = [await kinds(served) for _ in range(3)]
            assert not any("function_call" in items for items in found)
            assert [line for line in lines if "calls" in line] == ["learned that the model's calls come in its text model=m"]
            assert (await kinds(served))[-1] == "function_call"
            assert (await kinds(served, tools=[]))[-1] == "message"
            assert (await kinds(served))[-1] == "message"
            assert (await kinds(served, text=FORMAT))[-1] == "message"

    run(test())


def test_a_model_that_thinks_in_a_field_may_call_in_the_text() -> None:
    async def test() -> None:
        thought = [chunk({"reasoning": "Hm."}), *text_stream(CALL)]
        async with backend(Model(thought, thought, thought)) as raw, gateway(raw.url) as served:
            assert [(await kinds(served))[-1] for _ in range(3)] == ["message", "message", "function_call"]

    run(test())


def test_calls_are_learned_where_a_parser_of_reasoning_was_found_out() -> None:
    choice = ParserChoice(Settings(backend=["http://b"], reasoning_parser="qwen3"), Policy(), explicit_names=frozenset())
    body = {"model": "m", "tools": [{"type": "function", "function": {**WEATHER, "type": None}}]}
    for expected in ("none", "none", "auto"):
        start = choice.start_without_template(body)
        assert (start.reasoning, start.tools) == ("qwen3", expected)
        played = play(text(THOUGHT + CALL), finish(), markup=choice.markup(body, start))
        choice.learn_calls(body, start, played.translator.response.output)
    assert choice.start_without_template({**body, "guided_regex": "x"}).tools == "none"


@pytest.mark.parametrize("quote", QUOTES)
def test_a_model_that_quotes_a_call_has_not_called(quote: str) -> None:
    async def test() -> None:
        async with backend(Model(*[quote] * 3, CALL, CALL)) as raw, gateway(raw.url) as served:
            assert [await kinds(served) for _ in range(4)] == [["message"]] * 4

    run(test())


@pytest.mark.parametrize("given", [{"adapt": False}, {"tool_call_parser": "none"}])
def test_calls_in_the_text_are_not_learned_against_the_settings(given: dict[str, Any]) -> None:
    async def test() -> None:
        async with backend(Model(*[CALL] * 4)) as raw, gateway(raw.url, **given) as served:
            assert [await kinds(served) for _ in range(4)] == [["message"]] * 4

    run(test())


def test_a_server_that_parses_calls_is_left_to_it() -> None:
    async def test() -> None:
        function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
        parsed = [chunk({"tool_calls": [{"index": 0, "id": "a", "function": function}]}), *text_stream()]
        async with backend(Model(CALL, parsed, CALL, CALL)) as parsing, gateway(parsing.url) as served:
            assert [(await kinds(served))[-1] for _ in range(4)] == ["message", "function_call", "message", "message"]
            assert served.parts.autoconfiguration.known_models["m"].calls_field

    run(test())
