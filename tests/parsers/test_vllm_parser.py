"""The plug-in of vLLM's parsers, with a stand-in for vLLM: what it is told, and what becomes of its answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from responses_gateway.parsers.vllm import VllmMissing, VllmParser, VllmParsers, is_vllm, load
from responses_gateway.wire.deltas import Delta, Reasoning, Text, ToolArguments, ToolCall

SCHEMAS = {"get_weather": {"type": "object", "properties": {"city": {"type": "string"}}}}


class Letters:
    """A tokenizer with one token for each byte, and one for `<think>`."""

    THINK = 256

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        before, marker, after = text.partition("<think>")
        return [*before.encode(), *([self.THINK] if marker else []), *after.encode()]

    def decode(self, token_ids: list[int]) -> str:
        if token_ids == [self.THINK]:
            return "<think>"
        return bytes(token_ids).decode("utf-8", "replace")


def message(reasoning: str | None = None, content: str | None = None, calls: Sequence[Any] = ()) -> Any:
    return SimpleNamespace(reasoning=reasoning, content=content, tool_calls=list(calls))


def call(index: int, name: str | None = None, arguments: str | None = None, id: str | None = None) -> Any:
    return SimpleNamespace(index=index, id=id, function=SimpleNamespace(name=name, arguments=arguments))


@dataclass
class Machine:
    """Stands for a `vllm.parser.Parser`: answers from a script, or calls what it is fed text."""

    script: list[Any] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)
    fed: list[tuple[str, list[int], bool]] = field(default_factory=list)
    prompts: list[list[int] | None] = field(default_factory=list)
    reasoning_parser: Any = field(default_factory=lambda: SimpleNamespace(reasoning_start_str="<think>"))

    def adjust_request(self, request: Any) -> Any:
        return request

    def parse_delta(self, text: str, ids: list[int], request: Any, prompt: list[int] | None, *, finished: bool) -> Any:
        self.fed.append((text, ids, finished))
        self.prompts.append(prompt)
        if self.script:
            return self.script.pop(0)
        return message(content=text) if text else None


def parser_of(machine: Machine) -> VllmParser:
    return VllmParser(machine, request=None, tokenizer=Letters(), prompt_ids=None)


def answers(*script: Any) -> list[Delta]:
    """Return the deltas of a parser that gives these answers, one for each token."""
    parser = parser_of(Machine(list(script)))
    return [delta for _ in script for delta in parser.feed("x")]


# What it is fed


def test_each_token_is_fed_alone_with_its_id() -> None:
    machine = Machine()
    parser_of(machine).feed("ab<think>c", [97, 98, 256, 99])
    assert machine.fed == [("a", [97], False), ("b", [98], False), ("<think>", [256], False), ("c", [99], False)]


def test_without_ids_the_text_is_tokenized() -> None:
    machine = Machine()
    parser_of(machine).feed("a<think>")
    assert machine.fed == [("a", [97], False), ("<think>", [256], False)]


def test_tokens_of_one_character_stay_together() -> None:
    machine = Machine()
    parser_of(machine).feed("a好b", [97, *"好".encode(), 98])
    assert machine.fed == [("a", [97], False), ("好", [*"好".encode()], False), ("b", [98], False)]


def test_ids_that_do_not_spell_the_text_are_fed_as_they_came() -> None:
    machine = Machine()
    parser_of(machine).feed("other", [97, 98])
    assert machine.fed == [("other", [97, 98], False)]


def test_ids_may_come_again() -> None:
    parser = parser_of(Machine())
    parser.feed("", [97])
    parser.rewind([97])
    assert parser.feed("ab", [97, 98]) == [Text("a"), Text("b")]


def test_it_reports_neither_plain_text_nor_held_text() -> None:
    parser = parser_of(Machine())
    parser.feed("a")
    assert (parser.holds, parser.text_kind, parser.plain("b"), parser.first_marker) == (False, None, False, "none")


def test_an_end_token_has_no_text() -> None:
    machine = Machine()
    assert [type(delta) for delta in parser_of(machine).feed("a", [97, 256])] == [Text]
    assert machine.fed == [("a", [97], False), ("", [256], False)]


def test_the_end_is_told_once() -> None:
    machine = Machine([message(content="a"), message(content=" held")])
    parser = parser_of(machine)
    parser.feed("a")
    assert parser.finish("stop") == [Text(" held")]
    assert parser.finish("stop") == []
    assert machine.fed[-1] == ("", [], True)
    assert parser.repairs == {}


# What becomes of its answers


def test_the_parts_of_an_answer_come_in_the_order_in_which_a_model_writes_them() -> None:
    deltas = answers(
        message(calls=[call(0, "get_weather", id="a")]),
        message("Hm.", "Two.", [call(0, arguments="{}"), call(1, "get_weather", '{"city": "Rome"}')]),
    )
    assert deltas == [
        ToolCall(0, "a", "get_weather"),
        ToolArguments(0, "{}"),
        Reasoning("Hm."),
        Text("Two."),
        ToolCall(1, "", "get_weather"),
        ToolArguments(1, '{"city": "Rome"}'),
    ]


def test_calls_are_counted_from_zero_whatever_their_index() -> None:
    deltas = answers(message(calls=[call(3, "f"), call(3, arguments="{}")]), message(calls=[call(7, "g")]))
    assert deltas == [ToolCall(0, "", "f"), ToolArguments(0, "{}"), ToolCall(1, "", "g")]


def test_an_empty_answer_is_none() -> None:
    assert answers(None, message(), message("", "", [])) == []


# Loading


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    """Install a vLLM that knows every name but "unknown"; return the parsers that it made."""
    made: list[Machine] = []

    def compose(**asked: Any) -> Callable[..., Machine]:
        if "unknown" in asked.values():
            raise TypeError("reasoning_parser_name='unknown' has not been registered")

        def machine(tokenizer: Any, tools: Any, **told: Any) -> Machine:
            reader = SimpleNamespace(reasoning_start_str="<think>") if asked["reasoning_parser_name"] else None
            made.append(Machine(told={**asked, **told, "tokenizer": tokenizer, "tools": tools}, reasoning_parser=reader))
            return made[-1]

        return machine

    modules = {
        "vllm": {},
        "vllm.parser": {"ParserManager": SimpleNamespace(get_parser=compose)},
        "vllm.entrypoints": {},
        "vllm.entrypoints.openai": {},
        "vllm.entrypoints.openai.chat_completion": {},
        "vllm.entrypoints.openai.chat_completion.protocol": {"ChatCompletionRequest": SimpleNamespace},
        "vllm.tokenizers": {"get_tokenizer": lambda name: Letters()},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return made


def loaded(reasoning: str | None = "vllm:qwen3", tools: str | None = "vllm:hermes") -> VllmParsers:
    return load(reasoning, tools, Letters())


def test_the_parsers_that_are_named_are_composed(machines: list[Machine]) -> None:
    loaded().parser(schemas=SCHEMAS, template_kwargs={"enable_thinking": False})
    (machine,) = machines
    told = machine.told
    assert (told["reasoning_parser_name"], told["tool_parser_name"], told["is_harmony"]) == ("qwen3", "hermes", False)
    assert told["enable_auto_tools"] is True
    assert told["chat_template_kwargs"] == {"enable_thinking": False}
    assert told["tools"] == [
        {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMAS["get_weather"]}},
    ]


@pytest.mark.parametrize(("reasoning", "tools"), [("vllm:openai_gptoss", "vllm:openai"), (None, "vllm:openai")])
def test_harmony_is_told_apart(machines: list[Machine], reasoning: str | None, tools: str) -> None:
    loaded(reasoning, tools).parser(schemas={})
    assert machines[0].told["is_harmony"] is True


def test_a_tokenizer_may_be_named(machines: list[Machine]) -> None:
    load(None, "vllm:hermes", "a/model").parser(schemas={})
    assert isinstance(machines[0].told["tokenizer"], Letters)


def test_the_ids_of_the_prompt_are_passed_on(machines: list[Machine]) -> None:
    loaded().parser(schemas={}, prompt_ids=(1, 2)).feed("a")
    assert machines[0].prompts == [[1, 2]]


def test_reasoning_that_the_prompt_opened_is_told_in_every_way(machines: list[Machine]) -> None:
    loaded().parser(schemas={}, thinking_open=True).feed("a")
    assert machines[0].prompts == [[256]]
    kwargs = machines[0].told["chat_template_kwargs"]
    assert kwargs == {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled"}


@pytest.mark.parametrize("thinking_open", [None, False])
def test_an_unknown_prompt_is_left_to_the_family(machines: list[Machine], thinking_open: bool | None) -> None:
    loaded().parser(schemas={}, thinking_open=thinking_open).feed("a")
    assert machines[0].prompts == [None]
    assert machines[0].told["chat_template_kwargs"] == {}


def test_without_a_reasoning_parser_calls_are_looked_for_at_once(machines: list[Machine]) -> None:
    """vLLM looks for calls only behind a prompt that it has seen."""
    loaded(None).parser(schemas={}).feed("a")
    assert machines[0].prompts == [[]]


@pytest.mark.parametrize(
    ("reasoning", "tools", "words"),
    [
        ("vllm:unknown", None, "'unknown' has not been registered"),
        ("vllm:qwen3", "hermes", "'hermes' is not vLLM's"),
        (None, None, "at least one vllm:NAME"),
        ("none", "", "at least one vllm:NAME"),
    ],
)
def test_a_wrong_name_is_said(machines: list[Machine], reasoning: str | None, tools: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        loaded(reasoning, tools)


def test_a_missing_vllm_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(VllmMissing, match=r"pip install '\.\[vllm\]'"):
        loaded()


def test_names_with_the_prefix_are_vllms() -> None:
    assert is_vllm("vllm:qwen3")
    assert not is_vllm("qwen3")
    assert not is_vllm(None)


def test_vllm_is_not_imported_before_it_is_asked_for() -> None:
    program = "import sys, responses_gateway.parsers.vllm; sys.exit('vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
