"""The scenarios by name: each turns a request into the script of its answer.

A scenario is a function of the request alone, so that a client may retry, resume or fork as it likes. To add one, write a
function and add it to `_ALL`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from responses_gateway.simulator.agent import SHELL_TOOLS, agent, final_text, parsed_result, patch, shell_call, wrong_patch
from responses_gateway.simulator.asked_fields import marked_fields, with_markers
from responses_gateway.simulator.chat_request import ChatRequest, Tool, message_text
from responses_gateway.simulator.research import research
from responses_gateway.simulator.schema import example
from responses_gateway.simulator.script import CallTool, Refuse, Say, Script, Think, call, script

Scenario = Callable[[ChatRequest], Script]

_KNOWN_TOOLS = ("get_weather", "weather", "get_time", "lookup_word", "add", "search", "read_file")
_WORDS = ("The", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "words", "keep", "on", "and", "on")
# Namespaced tools that manage agents or threads: calling them at random would have side effects.
_INTERNAL = re.compile(r"multi_agent|collaboration|clock|mcp__codex")
# How the gateway's question about a tool call begins, and what stands before the call.
_JUDGE_PROMPT = "You judge the tool calls"
_CALL_TO_JUDGE = "The call to judge:"
# What a call must not have that a simulated judge lets pass.
_DANGEROUS = re.compile(r"\brm -|\bsudo\b|\bcurl\b|\bgit push\b")
_POEM = "Tokens arrive\none by one —\na sentence forms."


def default(request: ChatRequest) -> Script:
    """Think briefly, then answer in Markdown and mention the question."""
    question = _quoted(request.question)
    return script(
        Think(f"The user says {question}. A short, friendly answer will do."),
        Say(
            f"You said {question}.\n\nI am a **simulated model**, so this answer is made up:\n\n"
            "- it streams token by token\n- it thinks before it speaks\n- it costs no GPU time\n\n"
            "Try `scenario: agent`, `scenario: parallel` or `fault: drop` in your message."
        ),
    )


def plain(request: ChatRequest) -> Script:
    """Answer with text alone."""
    return script(final_text(request, f"A plain answer to {_quoted(request.question)}."))


def reasoning(request: ChatRequest) -> Script:
    """Think in several paragraphs, then answer with a short text."""
    thoughts = (
        "**Considering the question**\n\nFirst, what is asked? "
        f"The user says {_quoted(request.question)}.\n\n"
        "**Weighing the options**\n\nOne could answer at length, or briefly. Brevity wins: 17 × 23 = 340 + 51 = 391.\n\n"
        "**Deciding**\n\nSo the answer is 391, and nothing else is needed."
    )
    return script(Think(thoughts), final_text(request, "The answer is **391**."))


def reasoning_only(request: ChatRequest) -> Script:
    """Think without giving an answer."""
    return script(Think(f"Thinking about {_quoted(request.question)}, and thinking on."))


def refusal(_request: ChatRequest) -> Script:
    """Refuse, in the field that OpenAI has for it."""
    return script(Refuse("I'm sorry, but I can't help with that."))


def empty(_request: ChatRequest) -> Script:
    """Say nothing at all: the end token comes first."""
    return script()


def demo(request: ChatRequest) -> Script:
    """Think, say something and call a tool in one answer."""
    offered = _known_tool(request)
    if request.tool_results or offered is None:
        return _conclusion(request)
    return script(
        Think(
            "The user wants to know about the weather. I cannot look out of a window, but there is a tool for that. "
            "I should say what I am about to do, and then call it."
        ),
        Say(
            "Let me check that for you. I am a **simulated** model, so:\n\n"
            "1. I think a little (you saw it, dimmed)\n2. I write some Markdown\n3. I call the tool\n"
        ),
        _by_schema(offered),
    )


def unicode(request: ChatRequest) -> Script:
    """Use characters of two to four bytes, right-to-left text, quotes and control characters; in a call too, with a tool."""
    offered = None if request.tool_results else _known_tool(request)
    calls = [] if offered is None else [_by_schema(offered, city="東京", location="東京", text="naïve 👍")]
    text = 'Grüße aus 東京! 👩‍🚀 שלום «"quoted"» \\ back\tslash\u2028line'
    return script(Think("Zürich, 東京, emoji."), Say(text), *calls)


def tool(request: ChatRequest) -> Script:
    """Call the first offered tool that looks harmless, then answer with its result."""
    offered = request.forced_tool or _known_tool(request)
    if request.tool_results or offered is None:
        return _conclusion(request)
    return script(Think(f"The tool {offered.name} knows that."), _call_of(offered))


def parallel(request: ChatRequest) -> Script:
    """Make two calls at once (one after the other if the client allows no parallel calls), then answer."""
    calls = _two_calls(request)
    done = len(request.tool_results)
    if done >= len(calls):
        return _conclusion(request)
    now = calls[done:] if request.parallel else calls[done : done + 1]
    return script(Think("Two things to find out; they do not depend on each other."), *now)


def text_after_call(request: ChatRequest) -> Script:
    """Say something, make a call, and say more after the call."""
    calls = _two_calls(request)[:1]
    if request.tool_results or not calls:
        return _conclusion(request)
    return script(Say("First I look."), *calls, Say("That is under way."))


def broken_arguments(request: ChatRequest) -> Script:
    """Make a call whose arguments are not JSON, as small models do."""
    offered = _known_tool(request)
    if request.tool_results or offered is None:
        return _conclusion(request)
    return script(CallTool(offered.name, '{"city": "Paris", "unit": '))


def mcp(request: ChatRequest) -> Script:
    """Call the first tool in a namespace; if tools must be searched for, search first."""
    namespaced = next((tool for tool in request.tools if "__" in tool.name and not _INTERNAL.match(tool.name)), None)
    search = request.tool("tool_search")
    done = len(request.tool_results)
    if namespaced is None and search is not None and done == 0:
        return script(Think("Let me search for a tool."), call(search.name, {"query": "add integers", "limit": 4}))
    if namespaced is None or done >= (1 if search is None else 2):
        return _conclusion(request)
    return script(Think(f"The tool {namespaced.name} fits."), _call_of(namespaced))


def _spawned(spawn: Tool) -> dict[str, Any]:
    """Return the arguments with which a client's tool begins a sub-agent."""
    task = "scenario: plain. Say hello in one sentence."
    if "prompt" in spawn.properties:  # Claude Code
        kind = {"subagent_type": "general-purpose", "run_in_background": False}
        return {"description": "Say hello", "prompt": task, **kind}
    extra = {"task_name": "say_hello"} if "task_name" in spawn.properties else {}
    return {"message": task, **extra}


def subagent(request: ChatRequest) -> Script:
    """Spawn a sub-agent, wait for it, and report what it said."""
    spawn = request.tool("spawn_agent", "Agent")
    wait = request.tool("wait_agent", "wait")
    results = request.tool_results
    if spawn is None or len(results) >= (1 if wait is None else 2):
        return _conclusion(request)
    if not results:
        return script(Think("A sub-agent can do this."), call(spawn.name, _spawned(spawn)))
    if wait is None:
        return _conclusion(request)
    known = {"timeout_ms": 10000, "targets": [str(parsed_result(results[0]).get("agent_id", ""))]}
    return script(call(wait.name, {key: known[key] for key in known if key in wait.properties}))


def approval(request: ChatRequest) -> Script:
    """Run a command that needs an approval. A reviewer, which is asked for JSON, approves."""
    if request.schema is not None:
        return schema(request)
    shell = request.tool(*SHELL_TOOLS)
    if shell is None or request.tool_results:
        return _conclusion(request)
    wanted = {"sandbox_permissions": "require_escalated", "justification": "May I write a file?"}
    permission = {name: value for name, value in wanted.items() if name in shell.properties}
    return script(call(shell.name, {"cmd": "touch approved.txt", **permission}))


def image(request: ChatRequest) -> Script:
    """Say how many images arrived and of what type."""
    images = request.images
    matches = (re.match(r"data:([^;,]+)", url) for url in images)
    types = ", ".join(match[1] if match else "remote URL" for match in matches) or "none"
    return script(Think("Looking at the images."), Say(f"I received {len(images)} image part(s): {types}."))


def schema(request: ChatRequest) -> Script:
    """Answer with JSON that fits the schema of `response_format` (any small object without one)."""
    wanted = request.schema if request.schema is not None else {"type": "object", "required": ["answer"]}
    return script(Think("The answer must be JSON."), Say(json.dumps(example(wanted), ensure_ascii=False)))


def fields(request: ChatRequest) -> Script:
    """Answer with the fields that the prompt asks for, each behind a marker with its name."""
    values = example(marked_fields(request.question) or {"type": "object"})
    return script(Think("The fields must be filled in."), Say(with_markers(values)))


def title(_request: ChatRequest) -> Script:
    """Answer with a thread title as JSON."""
    return script(Say(json.dumps({"title": "Simulated conversation"})))


def compaction(request: ChatRequest) -> Script:
    """Write the summary that a client asks for before it drops the history."""
    turns = sum(message.get("role") == "user" for message in request.messages)
    calls = sum(message.get("role") == "tool" for message in request.messages)
    return script(
        Say(f"## Summary\n\nSo far: {turns} user messages and {calls} tool results.\n\n## Next\n\nNothing is left to do.")
    )


def continued(_request: ChatRequest) -> Script:
    """Answer after a compaction."""
    return script(Say("I have read the summary; everything in it is done."))


def long(_request: ChatRequest, tokens: int = 2000) -> Script:
    """Say `tokens` tokens of text: every word is one token of the simulator's tokenizer."""
    words = ("Once", *(f" {_WORDS[number % len(_WORDS)]}" for number in range(1, tokens)))
    return script(Say("".join(words[:tokens])))


def code(_request: ChatRequest) -> Script:
    """Answer with Markdown that has a fenced program."""
    return script(
        Think("A small program shows it best."),
        Say(f"Here is a poem and a program.\n\n> {_POEM.replace(chr(10), chr(10) + '> ')}\n\n```python\nprint('hello')\n```\n"),
    )


def judge(request: ChatRequest) -> Script:
    """Say whether a tool call is safe, by a list of words."""
    call_to_judge = request.question.rpartition(_CALL_TO_JUDGE)[2]
    dangerous = _DANGEROUS.search(call_to_judge)
    return script(Say(f"unsafe\nThe call has “{dangerous[0]}” in it." if dangerous else "safe"))


_ALL: tuple[Scenario, ...] = (
    default, plain, reasoning, reasoning_only, demo, refusal, empty, unicode, tool, parallel, text_after_call, broken_arguments,
    patch, wrong_patch, mcp, subagent, approval, image, schema, fields, title, compaction, continued, long, code, agent,
    research, judge,
)  # fmt: skip
SCENARIOS: dict[str, Scenario] = {scenario.__name__: scenario for scenario in _ALL}

_KEYWORDS: tuple[tuple[str, str], ...] = (
    (r"\b(?:create|build|implement|fix|refactor|edit|write)\b.*\b(?:file|function|program|script|bug|code|tests?)\b", "agent"),
    (r"\b(?:sub-?agent)\b", "subagent"),
    (r"\b(?:weather|temperature)\b", "tool"),
    (r"\b(?:think|reason|puzzle)\b", "reasoning"),
    (r"\b(?:poem|snippet)\b", "code"),
)
_SUMMARY_REQUEST = re.compile(
    r"context checkpoint|handoff summary|summari[sz]e (?:the|this|our) (?:conversation|history)", re.IGNORECASE
)
_NEEDS_TOOLS = ("agent", "subagent", "tool")


def choose(request: ChatRequest) -> str:
    """Choose a scenario for a request that does not name one."""
    question = request.question
    if is_judgement(request):
        return "judge"
    if is_title_request(request):
        return "title"
    if _SUMMARY_REQUEST.search(question):
        return "compaction"
    if question.startswith("The input of a call of the tool"):
        return "wrong_patch"
    if question.startswith(("Another language model started", "The conversation up to here was replaced")):
        return "continued"
    if request.forced_tool is not None and not request.tool_results:
        return "tool"
    if marked_fields(question) is not None:
        return "fields"
    asked_for = _asked_for(request)
    if request.schema is not None and asked_for not in _NEEDS_TOOLS:
        return "schema"
    return asked_for or ("image" if request.images else "default")


def _asked_for(request: ChatRequest) -> str | None:
    """Return the scenario that the user's words ask for, if the tools for it are there."""
    names = (name for pattern, name in _KEYWORDS if re.search(pattern, request.question, re.IGNORECASE | re.DOTALL))
    asked_for = next(names, None)
    missing_tools = asked_for in _NEEDS_TOOLS and not request.tools
    missing_shell = asked_for == "agent" and request.tool(*SHELL_TOOLS) is None
    return None if missing_tools or missing_shell else asked_for


def is_title_request(request: ChatRequest) -> bool:
    """Tell whether a client asks for a thread title: no tools, and a schema with the one property `title`."""
    wanted = request.schema
    properties = (wanted or {}).get("properties")
    return not request.tools and isinstance(properties, dict) and list(properties) == ["title"]


def is_judgement(request: ChatRequest) -> bool:
    """Tell whether the gateway asks what to think of a tool call."""
    return bool(request.messages) and message_text(request.messages[0]).startswith(_JUDGE_PROMPT)


def _two_calls(request: ChatRequest) -> list[CallTool]:
    shell = request.tool(*SHELL_TOOLS)
    if shell is not None:
        return [shell_call(shell, "echo first"), shell_call(shell, "echo second")]
    offered = _known_tool(request)
    if offered is None:
        return []
    return [_by_schema(offered, city="Rome", location="Rome"), _by_schema(offered, city="Lima", location="Lima")]


def _known_tool(request: ChatRequest) -> Tool | None:
    return request.tool(*_KNOWN_TOOLS) or (request.tools[0] if request.tools else None)


def _call_of(offered: Tool) -> CallTool:
    if offered.name.split("__")[-1] in SHELL_TOOLS:
        return shell_call(offered, "echo hello")
    return _by_schema(offered)


def _by_schema(offered: Tool, **preferred: str) -> CallTool:
    value = example(offered.parameters or {"type": "object"})
    arguments = value if isinstance(value, dict) else {}
    changed = {key: preferred[key] for key in arguments if key in preferred and isinstance(arguments[key], str)}
    return call(offered.name, {**arguments, **changed})


def _conclusion(request: ChatRequest) -> Script:
    results = request.tool_results
    if not results:
        return script(final_text(request, "No tool that I know was offered, so I answer by myself."))
    lines = "\n".join(f"- {_last_line(result)}" for result in results)
    return script(Think("The results are in."), final_text(request, f"The tools answered:\n\n{lines}"))


def _last_line(result: str) -> str:
    lines = result.strip().splitlines()
    return lines[-1][:200] if lines else "(nothing)"


def _quoted(question: str) -> str:
    line = " ".join(question.split())
    return f"“{line[:120]}…”" if len(line) > 120 else f"“{line}”" if line else "nothing"
