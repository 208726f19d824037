"""The scenario of a model that looks something up on the web: it searches, opens the first result, and answers with what it
read.

It knows Codex's `web.run`, and the gateway's own `web_search` and `open_page`."""

from __future__ import annotations

import json
import re
from typing import Any

from responses_gateway.simulator.agent import final_text
from responses_gateway.simulator.chat_request import ChatRequest, Tool
from responses_gateway.simulator.script import CallTool, Say, Script, Think, call, script

_DIRECTIVE = re.compile(r"\b(?:scenario|fault)\s?[:=]\s?[\w=.,+-]*\w\s*")
_URL = re.compile(r"https?://[^\s<>\"\\]+")
# How the gateway numbers the sources.
_MARK = re.compile(r"【\d+】")
# Lines of a page, as the tools number them.
_LINE = re.compile(r"^L\d+: (?!#)(.{3,})$", re.MULTILINE)


def research(request: ChatRequest) -> Script:
    """Search for the words of the question, open the first page that was found, and report a line of it."""
    tool = request.tool("run", "web_search")
    if tool is None:
        return script(Say("I cannot search the web: no such tool was offered."))
    results = [_text_of(result) for result in request.tool_results]
    if not results:
        words = _DIRECTIVE.sub("", request.question).strip() or "news"
        return script(Think("That has to be looked up."), call(tool.name, _search(tool, words)))
    match = _URL.search(results[0])
    if match is None:
        return script(final_text(request, f"The search found nothing: {results[0].splitlines()[-1]}"))
    if len(results) == 1:
        return script(Think("The first result looks right."), _open(request, tool, match[0]))
    line = _LINE.search(results[-1])
    read = f'The page says: "{line[1]}"' if line else f"The page cannot be read: {results[-1].strip()}"
    mark = _MARK.search(results[-1])
    cited = f"{read} {mark[0]}" if mark else f"{read} ([source]({match[0]}))"
    return script(final_text(request, cited))


def _search(tool: Tool, words: str) -> dict[str, Any]:
    return {"search_query": [{"q": words}]} if "search_query" in tool.properties else {"queries": [words]}


def _open(request: ChatRequest, tool: Tool, url: str) -> CallTool:
    if "open" in tool.properties:
        return call(tool.name, {"open": [{"ref_id": url}]})
    opener = request.tool("open_page") or tool
    return call(opener.name, {"url": url})


def _text_of(result: str) -> str:
    """Return the text of a tool result, which may be a list of content parts as JSON."""
    try:
        parts = json.loads(result)
    except ValueError:
        return result
    parts = parts if isinstance(parts, list) else []
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n".join(texts) or result
