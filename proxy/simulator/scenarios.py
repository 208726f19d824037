"""The scenarios by name: each turns a conversation into the script of the next answer.

A scenario is a function of the conversation alone, so that a client may retry, resume or fork as it likes. Add one by writing
a function and giving it a name in `SCENARIOS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from proxy.simulator.agent import SHELL_TOOLS, agent, final_text, parsed_result, patch, shell_call, wrong_patch
from proxy.simulator.conversation import Conversation, Tool
from proxy.simulator.schema import example
from proxy.simulator.script import Call, Reasoning, Refusal, Script, Step, Text, call, script

Scenario = Callable[[Conversation], Script]

_KNOWN_TOOLS = ("get_weather", "weather", "get_time", "lookup_word", "add", "search", "read_file")
_WORDS = ("The", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "words", "keep", "on", "and", "on")
_POEM = "Tokens arrive\none by one —\na sentence forms."


def default(conversation: Conversation) -> Script:
    """A short thought and a Markdown answer that mentions the question."""
    question = _quoted(conversation.question)
    return script(
        Reasoning(f"The user says {question}. A short, friendly answer will do."),
        Text(
            f"You said {question}.\n\nI am a **simulated model**, so this answer is made up:\n\n"
            "- it streams token by token\n- it thinks before it speaks\n- it costs no GPU time\n\n"
            "Try `scenario: agent`, `scenario: parallel` or `fault: drop` in your message."
        ),
    )


def plain(conversation: Conversation) -> Script:
    """Text alone."""
    return script(final_text(conversation, f"A plain answer to {_quoted(conversation.question)}."))


def reasoning(conversation: Conversation) -> Script:
    """Longer thinking, in several paragraphs, then a short text."""
    thoughts = (
        "**Considering the question**\n\nFirst, what is asked? "
        f"The user says {_quoted(conversation.question)}.\n\n"
        "**Weighing the options**\n\nOne could answer at length, or briefly. Brevity wins: 17 × 23 = 340 + 51 = 391.\n\n"
        "**Deciding**\n\nSo the answer is 391, and nothing else is needed."
    )
    return script(Reasoning(thoughts), final_text(conversation, "The answer is **391**."))


def reasoning_only(conversation: Conversation) -> Script:
    """Thinking that never becomes an answer."""
    return script(Reasoning(f"Thinking about {_quoted(conversation.question)}, and thinking on."))


def refusal(conversation: Conversation) -> Script:
    """A refusal in the field that OpenAI has for it."""
    return script(Refusal("I'm sorry, but I can't help with that."))


def empty(conversation: Conversation) -> Script:
    """Nothing at all: the end token comes first."""
    return script()


def demo(conversation: Conversation) -> Script:
    """Thinking, text and a call in one answer: something of everything to look at."""
    offered = _known_tool(conversation)
    if conversation.tool_results or offered is None:
        return _conclusion(conversation)
    return script(
        Reasoning(
            "The user wants to know about the weather. I cannot look out of a window, but there is a tool for that. "
            "I should say what I am about to do, and then call it."
        ),
        Text(
            "Let me check that for you. I am a **simulated** model, so:\n\n"
            "1. I think a little (you saw it, dimmed)\n2. I write some Markdown\n3. I call the tool\n"
        ),
        _by_schema(offered),
    )


def unicode(conversation: Conversation) -> Script:
    """Characters of two to four bytes, right-to-left text, quotes and control characters; in a call too, if a tool is there."""
    offered = None if conversation.tool_results else _known_tool(conversation)
    calls = [] if offered is None else [_by_schema(offered, city="東京", location="東京", text="naïve 👍")]
    text = 'Grüße aus 東京! 👩‍🚀 שלום «"quoted"» \\ back\tslash\u2028line'
    return script(Reasoning("Zürich, 東京, emoji."), Text(text), *calls)


def tool(conversation: Conversation) -> Script:
    """One call of the first offered tool that looks harmless, then an answer with its result."""
    offered = conversation.forced_tool or _known_tool(conversation)
    if conversation.tool_results or offered is None:
        return _conclusion(conversation)
    return script(Reasoning(f"The tool {offered.name} knows that."), _call_of(offered))


def parallel(conversation: Conversation) -> Script:
    """Two calls at once (one after the other where the client wants no parallel calls), then an answer."""
    calls = _two_calls(conversation)
    done = len(conversation.tool_results)
    if done >= len(calls):
        return _conclusion(conversation)
    now = calls[done:] if conversation.parallel else calls[done : done + 1]
    return script(Reasoning("Two things to find out; they do not depend on each other."), *now)


def text_after_call(conversation: Conversation) -> Script:
    """Text, a call, and more text behind the call."""
    calls = _two_calls(conversation)[:1]
    if conversation.tool_results or not calls:
        return _conclusion(conversation)
    return script(Text("First I look."), *calls, Text("That is under way."))


def broken_arguments(conversation: Conversation) -> Script:
    """A call whose arguments are no JSON, as small models write them."""
    offered = _known_tool(conversation)
    if conversation.tool_results or offered is None:
        return _conclusion(conversation)
    return script(Call(offered.name, '{"city": "Paris", "unit": '))


def mcp(conversation: Conversation) -> Script:
    """A call of the first tool in a namespace; where tools hide behind a search, the search comes first."""
    namespaced = next((tool for tool in conversation.tools if "__" in tool.name and not _is_internal(tool)), None)
    search = conversation.tool("tool_search")
    done = len(conversation.tool_results)
    if namespaced is None and search is not None and done == 0:
        return script(Reasoning("Let me search for a tool."), call(search.name, {"query": "add integers", "limit": 4}))
    if namespaced is None or done >= (1 if search is None else 2):
        return _conclusion(conversation)
    return script(Reasoning(f"The tool {namespaced.name} fits."), _call_of(namespaced))


def subagent(conversation: Conversation) -> Script:
    """Spawns a sub-agent, waits for it, and reports what it said."""
    spawn, wait = conversation.tool("spawn_agent"), conversation.tool("wait_agent", "wait")
    results = conversation.tool_results
    if spawn is None or len(results) >= (1 if wait is None else 2):
        return _conclusion(conversation)
    if not results:
        message = {"message": "scenario: plain. Say hello in one sentence."}
        extra = {"task_name": "say_hello"} if "task_name" in spawn.properties else {}
        return script(Reasoning("A sub-agent can do this."), call(spawn.name, {**message, **extra}))
    if wait is None:
        return _conclusion(conversation)
    known = {"timeout_ms": 10000, "targets": [str(parsed_result(results[0]).get("agent_id", ""))]}
    return script(call(wait.name, {key: known[key] for key in known if key in wait.properties}))


def image(conversation: Conversation) -> Script:
    """Says how many images arrived and of what type."""
    images = conversation.images
    types = ", ".join(_media_type(url) for url in images) or "none"
    return script(Reasoning("Looking at the images."), Text(f"I received {len(images)} image part(s): {types}."))


def schema(conversation: Conversation) -> Script:
    """JSON that fits the schema of `response_format` (any small object without one)."""
    wanted = conversation.schema if conversation.schema is not None else {"type": "object", "required": ["answer"]}
    return script(Reasoning("The answer must be JSON."), Text(json.dumps(example(wanted), ensure_ascii=False)))


def title(conversation: Conversation) -> Script:
    """A thread title as JSON."""
    return script(Text(json.dumps({"title": "Simulated conversation"})))


def compaction(conversation: Conversation) -> Script:
    """The summary that a client asks for before it drops the history."""
    turns = sum(message.get("role") == "user" for message in conversation.messages)
    calls = sum(message.get("role") == "tool" for message in conversation.messages)
    return script(
        Text(f"## Summary\n\nSo far: {turns} user messages and {calls} tool results.\n\n## Next\n\nNothing is left to do.")
    )


def continued(conversation: Conversation) -> Script:
    """The first answer after a compaction."""
    return script(Text("I have read the summary; everything in it is done."))


def long(conversation: Conversation, tokens: int = 2000) -> Script:
    """`tokens` tokens of text: every word is one token of the simulator's tokenizer."""
    words = ("Once", *(f" {_WORDS[number % len(_WORDS)]}" for number in range(1, tokens)))
    return script(Text("".join(words[:tokens])))


def code(conversation: Conversation) -> Script:
    """Markdown with a fenced program."""
    return script(
        Reasoning("A small program shows it best."),
        Text(
            f"Here is a poem and a program.\n\n> {_POEM.replace(chr(10), chr(10) + '> ')}\n\n```python\nprint('hello')\n```\n"
        ),
    )


SCENARIOS: dict[str, Scenario] = {
    "default": default,
    "plain": plain,
    "reasoning": reasoning,
    "reasoning_only": reasoning_only,
    "demo": demo,
    "refusal": refusal,
    "empty": empty,
    "unicode": unicode,
    "tool": tool,
    "parallel": parallel,
    "text_after_call": text_after_call,
    "broken_arguments": broken_arguments,
    "patch": patch,
    "wrong_patch": wrong_patch,
    "mcp": mcp,
    "subagent": subagent,
    "image": image,
    "schema": schema,
    "title": title,
    "compaction": compaction,
    "continued": continued,
    "long": long,
    "code": code,
    "agent": agent,
}

_WISHES: tuple[tuple[str, str], ...] = (
    (
        r"\b(?:create|build|implement|fix|refactor|edit|write)\b.*\b(?:file|function|program|script|bug|code|tests?)\b",
        "agent",
    ),
    (r"\b(?:sub-?agent)\b", "subagent"),
    (r"\b(?:weather|temperature)\b", "tool"),
    (r"\b(?:think|reason|puzzle)\b", "reasoning"),
    (r"\b(?:poem|snippet)\b", "code"),
)
_SUMMARY_WISH = re.compile(
    r"context checkpoint|handoff summary|summari[sz]e (?:the|this|our) (?:conversation|history)", re.IGNORECASE
)
_NEEDS_TOOLS = ("agent", "subagent", "tool")


def choose(conversation: Conversation) -> str:
    """The scenario that fits a conversation in which none is named."""
    question = conversation.question
    if is_title_request(conversation):
        return "title"
    if _SUMMARY_WISH.search(question):
        return "compaction"
    if question.startswith("The input of a call of the tool"):
        return "wrong_patch"
    if question.startswith(("Another language model started", "The conversation up to here was replaced")):
        return "continued"
    if conversation.forced_tool is not None and not conversation.tool_results:
        return "tool"
    wish = _wish(conversation)
    if conversation.schema is not None and wish not in _NEEDS_TOOLS:
        return "schema"
    return wish or ("image" if conversation.images else "default")


def _wish(conversation: Conversation) -> str | None:
    """What the user's words ask for, if the tools for it are there."""
    found = (name for pattern, name in _WISHES if re.search(pattern, conversation.question, re.IGNORECASE | re.DOTALL))
    wish = next(found, None)
    missing_tools = wish in _NEEDS_TOOLS and not conversation.tools
    missing_shell = wish == "agent" and conversation.tool(*SHELL_TOOLS) is None
    return None if missing_tools or missing_shell else wish


def is_title_request(conversation: Conversation) -> bool:
    """Whether this is a client's side request for a thread title: no tools, and a schema of one property, `title`."""
    wanted = conversation.schema
    properties = (wanted or {}).get("properties")
    return not conversation.tools and isinstance(properties, dict) and list(properties) == ["title"]


def _two_calls(conversation: Conversation) -> list[Call]:
    shell = conversation.tool(*SHELL_TOOLS)
    if shell is not None:
        return [shell_call(shell, "echo first"), shell_call(shell, "echo second")]
    offered = _known_tool(conversation)
    if offered is None:
        return []
    return [_by_schema(offered, city="Rome", location="Rome"), _by_schema(offered, city="Lima", location="Lima")]


def _known_tool(conversation: Conversation) -> Tool | None:
    return conversation.tool(*_KNOWN_TOOLS) or (conversation.tools[0] if conversation.tools else None)


def _call_of(offered: Tool) -> Call:
    if offered.name.split("__")[-1] in SHELL_TOOLS:
        return shell_call(offered, "echo hello")
    return _by_schema(offered)


def _by_schema(offered: Tool, **preferred: str) -> Call:
    value = example(offered.parameters or {"type": "object"})
    arguments = value if isinstance(value, dict) else {}
    changed = {key: preferred[key] for key in arguments if key in preferred and isinstance(arguments[key], str)}
    return call(offered.name, {**arguments, **changed})


def _is_internal(offered: Tool) -> bool:
    """Whether a namespaced tool manages agents or threads: calling one at random has side effects."""
    return bool(re.match(r"(?:multi_agent|collaboration|clock|mcp__codex)", offered.name))


def _conclusion(conversation: Conversation) -> Script:
    results = conversation.tool_results
    if not results:
        return script(final_text(conversation, "No tool that I know was offered, so I answer by myself."))
    lines = "\n".join(f"- {_last_line(result)}" for result in results)
    thanks: list[Step] = [Reasoning("The results are in."), final_text(conversation, f"The tools answered:\n\n{lines}")]
    return script(*thanks)


def _last_line(result: str) -> str:
    lines = result.strip().splitlines()
    return lines[-1][:200] if lines else "(nothing)"


def _quoted(question: str) -> str:
    line = " ".join(question.split())
    return f"“{line[:120]}…”" if len(line) > 120 else f"“{line}”" if line else "nothing"


def _media_type(url: str) -> str:
    match = re.match(r"data:([^;,]+)", url)
    return match.group(1) if match else "remote URL"
