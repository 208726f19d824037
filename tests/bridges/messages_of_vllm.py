"""vLLM's own `/v1/messages`, and the gateway in front of the same vLLM, by what can be checked with a model that plays scripts.

What the model is asked is read in vLLM's log. The last two checks halt and kill its engine."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import signal
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tokenizers import Tokenizer

from tests.bridges import messages_checks as common
from tests.bridges.backend import Backend
from tests.bridges.document import row
from tests.bridges.messages_door import WEATHER, Door, user
from tests.real_servers import tiny_model
from tests.real_servers.conversation import sum_of_samples
from tests.real_servers.gateway import gateway
from tests.real_servers.programs import Server, engine, python_of, version_of
from tests.real_servers.settings import Setting

BEGIN = "<!-- messages of vLLM: written by `make bridges` -->"
END = "<!-- /messages of vLLM -->"
_SCRIPTS = {"again": "think_text_tool", "interleaved": "parallel", "think.0.cut-reasoning": "think", "endless": "long"}
_SAID: dict[str, list[tuple[Any, ...]]] = {
    "again": [
        ("reasoning", "First tell the user, then look at the clock."),
        ("text", "Let me check the time in Tokyo."),
        ("call", "get_time", {"timezone": "Asia/Tokyo"}),
    ],
    "interleaved": [
        ("text", "I will look up both cities."),
        ("call", "get_weather", {"city": "Rome", "unit": "celsius"}),
        ("call", "get_weather", {"city": "Lima", "unit": "fahrenheit"}),
    ],
}
_PROMPT = re.compile(r"details: prompt: .*?prompt_token_ids: (\[[\d, ]*\])")
_CAPTURED = tiny_model.FOLDER.parent / "claude" / "requests"
# An image, which this model cannot take, and a search that is not configured.
_NOT_HERE = ("07-", "11-")
_SILENCE = 17.0


@dataclass(frozen=True)
class VllmDoor(Door):
    """An endpoint behind which the model plays scripts; `server` is vLLM, `log` all that it prints."""

    server: Server | None = None
    log: Path = Path()

    def body(self, name: str, **fields: Any) -> dict[str, Any]:
        own = {
            "max_tokens": 8 if name.endswith("cut-reasoning") else 2000,
            "temperature": 0,
            "messages": [user(f"Please play scenario: {_SCRIPTS.get(name, 'hello')}")],
        }
        return super().body(name, **own | fields)

    async def prompt(self, **fields: Any) -> str:
        """Send a request, and return what the model was asked: nothing if it was not."""
        before = len(_PROMPT.findall(self.log.read_text(errors="replace")))
        await self.ask("hello", **fields)
        asked = _PROMPT.findall(self.log.read_text(errors="replace"))[before:]
        tokenizer = Tokenizer.from_file(str(tiny_model.FOLDER / "model" / "tokenizer.json"))
        return str(tokenizer.decode(ast.literal_eval(asked[-1]), skip_special_tokens=False)) if asked else ""

    async def running(self) -> bool:
        """Tell whether vLLM works on a request."""
        assert self.server is not None
        assert self.server.metrics is not None
        metrics = (await self.client.get(self.server.metrics)).text
        return sum_of_samples(metrics, "vllm:num_requests_running") > 0

    def signal_engine(self, number: int) -> None:
        """Send a signal to the processes with the model, not to the one that answers requests."""
        assert self.server is not None
        group = self.server.group
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(folder.name)) == group and b"VLLM::" in folder.joinpath("cmdline").read_bytes():
                    os.kill(int(folder.name), number)
            except (ProcessLookupError, FileNotFoundError):
                continue


Check = Callable[[VllmDoor], Awaitable[str]]


async def signature(door: VllmDoor) -> str:
    """Thinking is signed once, at its end"""
    return (await door.ask("again", tools=[WEATHER])).broken("signature")


async def all_that_was_said(door: VllmDoor) -> str:
    """Thinking, text and calls come out whole"""
    for name, said in _SAID.items():
        thinking = {"type": "adaptive" if said[0][0] == "reasoning" else "disabled"}
        blocks = (await door.ask(name, tools=[WEATHER], thinking=thinking)).blocks()
        if blocks != said:
            return f"{', '.join(block[0] for block in blocks) or 'nothing'}: not what was said"
    return ""


async def matched_stop(door: VllmDoor) -> str:
    """The stop sequence that matched is told"""
    stop = (await door.ask("hello", stop_sequences=["help"], thinking={"type": "disabled"})).stop()
    told = (stop.get("stop_reason"), stop.get("stop_sequence"))
    return "" if told == ("stop_sequence", "help") else f"`{told[0]}`, {told[1]}"


async def too_long(door: VllmDoor) -> str:
    """A prompt that is too long is refused in the words that make Claude Code compact"""
    heard = await door.ask("hello", messages=[user("word " * 40000)])
    text = str((heard.json().get("error") or {}).get("message"))
    worded = "prompt is too long" in text or "maximum context length" in text
    return "" if heard.status == 400 and worded else f"HTTP {heard.status}, {text[:60]!r}"


async def error_type(door: VllmDoor) -> str:
    """An error has Anthropic's body and type"""
    heard = await door.ask("hello", temperature=-1)
    kinds = (heard.json().get("type"), (heard.json().get("error") or {}).get("type"))
    return "" if (heard.status, *kinds) == (400, "error", "invalid_request_error") else f"HTTP {heard.status}, `{kinds[1]}`"


async def large_limit(door: VllmDoor) -> str:
    """`max_tokens` above the context is reduced to what fits"""
    return "" if (status := (await door.ask("hello", max_tokens=64000)).status) == 200 else f"HTTP {status}"


async def counted(door: VllmDoor) -> str:
    """`count_tokens` gives the usage of the same body"""
    body = door.body("again", tools=[WEATHER])
    usage = (await door.ask("again", tools=[WEATHER])).usage()
    fields = {name: value for name, value in body.items() if name not in ("max_tokens", "stream")}
    answer = await door.client.post("/v1/messages/count_tokens", json=fields)
    charged = sum(usage.get(name) or 0 for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"))
    count = answer.json().get("input_tokens")
    return "" if count == charged else f"{count}, charged {charged}"


async def cached_tokens(door: VllmDoor) -> str:
    """`input_tokens` leaves out what came from the cache"""
    usages = [(await door.ask("again", tools=[WEATHER])).usage() for _ in range(2)]
    read = usages[1].get("cache_read_input_tokens") or 0
    totals = [sum(usage.get(f"{kind}input_tokens") or 0 for kind in ("", "cache_read_", "cache_creation_")) for usage in usages]
    return "" if read and totals[0] == totals[1] else f"{read} read, {totals}"


async def system_in_the_middle(door: VllmDoor) -> str:
    """A `system` message in the middle keeps its place"""
    messages = [user("first"), {"role": "system", "content": "in between"}, user("then")]
    text = await door.prompt(messages=messages)
    return "" if -1 < text.find("first") < text.find("in between") < text.find("then") else "refused, lost or moved"


async def system_forms(door: VllmDoor) -> str:
    """A `system` message is rendered alike as a string and as a list"""
    texts = [{"type": "text", "text": "in between", "cache_control": {"type": "ephemeral"}}]
    asked = [await door.prompt(messages=[user("first"), {"role": "system", "content": c}]) for c in ("in between", texts)]
    return "" if "in between" in asked[0] and asked[0] == asked[1] else "refused, lost or unlike"


async def billing_block(door: VllmDoor) -> str:
    """Claude Code's billing block does not reach the prompt"""
    system = [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"}, {"type": "text", "text": "Be brief."}]
    text = await door.prompt(system=system)
    return "" if "Be brief." in text and "billing" not in text else "the prefix cache is lost"


async def results_in_order(door: VllmDoor) -> str:
    """Results follow in the order of the calls"""
    calls = [{"type": "tool_use", "id": f"toolu_{n}", "name": "get_weather", "input": {}} for n in "ab"]
    results = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"of {n}"} for n in "ba"]
    turns = [user("both"), {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    text = await door.prompt(messages=turns, tools=[WEATHER])
    return "" if -1 < text.find("of a") < text.find("of b") else "not so"


async def thinking_history(door: VllmDoor) -> str:
    """Thinking in the history reaches the template, with an empty signature too"""
    thought = {"type": "thinking", "thinking": "Hm, so.", "signature": ""}
    past = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
    return "" if "Hm, so." in await door.prompt(messages=[user("one"), past, user("two")]) else "lost"


async def thinking_disabled(door: VllmDoor) -> str:
    """Thinking that is disabled does not come"""
    heard = await door.ask("think.0.cut-reasoning", thinking={"type": "disabled"}, max_tokens=200)
    return "" if [block[0] for block in heard.blocks()] == ["text"] else "not so"


async def tool_choices(door: VllmDoor) -> str:
    """`tool_choice` none, any and tool are kept"""
    for choice, script, calls in (("none", "again", False), ("any", "hello", True), ("tool", "hello", True)):
        given = {"type": choice} | ({"name": "get_weather"} if choice == "tool" else {})
        thinking = {"type": "adaptive" if script == "again" else "disabled"}
        heard = await door.ask(script, tools=[WEATHER], tool_choice=given, thinking=thinking, max_tokens=300)
        if (heard.status, any(block[0] == "call" for block in heard.blocks())) != (200, calls):
            return f"`{choice}` is not"
    return ""


async def requests_of_claude_code(door: VllmDoor) -> str:
    """Requests of the real Claude Code are answered"""
    wrong = []
    for file in sorted(_CAPTURED.glob("*.json")):
        body = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(body, dict) or file.name.startswith(_NOT_HERE):
            continue
        own = {**body["body"], "model": door.model, "max_tokens": 200}
        answer = await door.client.post("/v1/messages", json=own, headers={"anthropic-version": "2023-06-01"})
        wrong += [file.name[:2]] if answer.status_code != 200 or b'"error"' in answer.content else []
    return f"not {', '.join(wrong)}" if wrong else ""


async def leaving(door: VllmDoor) -> str:
    """The backend is stopped when the client leaves"""
    async with door.client.stream("POST", "/v1/messages", json=door.body("endless")) as response:
        async for _ in response.aiter_bytes():
            break
    async with asyncio.timeout(20):
        while await door.running():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return ""


async def ping(door: VllmDoor) -> str:
    """A `ping` comes while the first token takes 17 s"""
    door.signal_engine(signal.SIGSTOP)
    try:
        asked = asyncio.create_task(door.ask("hello"))
        await asyncio.sleep(_SILENCE)
    finally:
        door.signal_engine(signal.SIGCONT)
    return "" if "ping" in (await asked).kinds else "none"


async def broken_text(door: VllmDoor) -> str:
    """A broken connection becomes an `error` event, not an end"""
    kinds: list[object] = []
    async with door.client.stream("POST", "/v1/messages", json=door.body("endless")) as response:
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                kinds.append(line.removeprefix("event: "))
                if kinds.count("content_block_delta") == 3 and kinds[-1] == "content_block_delta":
                    door.signal_engine(signal.SIGKILL)
    return "" if "error" in kinds and "message_stop" not in kinds else "no `error`, or a whole message"


CHECKS: tuple[Check, ...] = (
    common.blocks_in_turn, common.event_lines, common.one_beginning_and_end, common.usage_twice, common.empty_starts, signature,
    common.message_ids, common.call_ids, all_that_was_said, common.stop_after_a_call, common.cut_by_length, matched_stop,
    too_long, error_type, large_limit, common.request_id, common.versions, common.unknown_betas, system_in_the_middle,
    system_forms, billing_block, results_in_order, tool_choices, thinking_disabled, thinking_history, counted, cached_tokens,
    leaving, common.unknown_model, common.models, requests_of_claude_code, ping, broken_text,
)  # fmt: skip


def measured() -> dict[str, dict[str, str]] | None:
    """Return what came of both, by their names; None where vLLM is not installed."""
    if not (tiny_model.is_there() and python_of("vLLM").exists()):
        return None
    found = {}
    with tempfile.TemporaryDirectory(prefix="bridges-") as folder:
        for name in (f"vLLM {version_of('vLLM')}", "the gateway in front of it"):
            own = not found
            place = Path(folder) / ("own" if own else "behind")
            with engine(_setting(Path(folder)), place) as server:
                if own:
                    found[name] = asyncio.run(_judged(server.url, server, place))
                else:
                    # Else the gateway asks the model about strict tools meanwhile, and the log has that prompt as the last one.
                    flags = ("--store", "none", "--strict-calls", "off")
                    with gateway(place / "gateway", "--backend", server.url, *flags) as url:
                        found[name] = asyncio.run(_judged(url, server, place))
            print(name, *(f"  {sentence}: {outcome}" for sentence, outcome in found[name].items() if outcome), sep="\n")
    return found


def table(found: Mapping[str, Mapping[str, str]], day: str) -> str:
    """Return the markdown between the two marker comments, both included."""
    seen = {check.__name__: [one[str(check.__doc__)] for one in found.values()] for check in CHECKS}
    kept = [f"{sum(not outcome for outcome in outcomes)} of {len(CHECKS)}" for outcomes in zip(*seen.values(), strict=True)]
    lines = [BEGIN, "", f"Measured on {day}.", "", row(["", *found]), "|---|" + "---|" * len(found), row(["kept", *kept])]
    lines += [row([f"`{name}`", *(outcome or "✓" for outcome in outcomes)]) for name, outcomes in seen.items() if any(outcomes)]
    return "\n".join([*lines, "", END])


def _setting(folder: Path) -> Setting:
    """Return how vLLM is started: with a template that has system messages in their places, and a log that has the prompts."""
    template = folder / "in_place.jinja"
    text = tiny_model.chat_template(questions=False)
    text = text.replace('m.role in ["system", "developer"] and', 'loop.first and m.role in ["system", "developer"] and')
    later = '{%- if m.role == "system" and not loop.first %}{{- "<|im_start|>system\\n" + text + "<|im_end|>\\n" }}{%- elif'
    template.write_text(text.replace('{%- if m.role == "user" %}', later + ' m.role == "user" %}', 1), encoding="utf-8")
    parsers = ("--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    seen = ("--enable-log-requests", "--log-level", "DEBUG")
    return Setting("vllm-messages", "vLLM", (*parsers, *seen, "--chat-template", str(template)), questions=False)


async def _judged(url: str, server: Server, folder: Path) -> dict[str, str]:
    headers = {"authorization": "Bearer none"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=90, trust_env=False) as client:
        door = VllmDoor(client, Backend(), server.model, server, folder / "vllm.log")
        return await common.judged(door, CHECKS)
