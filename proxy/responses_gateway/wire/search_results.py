"""What a web search found, as the content blocks of the Messages API have it. Source of the shapes: Anthropic's SDK 2.12
(`WebSearchToolResultBlock`, `WebFetchToolResultBlock`, `CitationsWebSearchResultLocation`).

The gateway keeps nothing of a conversation at this API, so a result carries what the model read: clients send its
`encrypted_content` back as it is."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from responses_gateway.wire.hosted import CitedSource

LONGEST_CITED = 150  # the longest `cited_text`, in characters
# Stands in the result of a call that is one more than the request permits.
OUT_OF_USES = "The limit of this tool is reached."
SERVER_TOOL = "srvtoolu_"  # how the ids of calls of server tools begin
_IN_PROMPT = "ws_"  # and how in the prompt of their own turn
# A source in a text that a model reads: the number to cite it by, its title, and its address. At the beginning of a line alone,
# because a line of nothing but such numbers would be searched to its end from each of them.
_SHOWN = re.compile(r"^【(\d{1,4})】 (.*)\n(\S+)", re.MULTILINE)


def id_in_prompt(block_id: str) -> str:
    """Return the id that a call of a server tool had in the prompt of its own turn, given that of its block: prompts that
    begin alike are found in the cache of the backend."""
    return _IN_PROMPT + block_id.removeprefix(SERVER_TOOL) if block_id.startswith(SERVER_TOOL) else block_id


def as_input(visible: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `input` of a call for its arguments, as the model has `written` them: clients know what is `visible`."""
    if written == {"queries": [visible.get("query")]}:
        return dict(visible)
    if written.get("query") and "queries" not in written:
        return {**written, "queries": []}  # because a `query` alone stands for the `queries` of most calls
    return {**(visible if visible.keys() - written.keys() else {}), **written}


def as_written(name: str, block_input: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the function that a server tool stands for, and what the model has written, given the `input` of its call."""
    if name == "web_fetch":
        return "find_in_page" if "pattern" in block_input else "open_page", dict(block_input)
    query = block_input.get("query")
    if name == "web_search" and query and block_input.get("queries") == []:
        return name, {key: value for key, value in block_input.items() if key != "queries"}
    if name == "web_search" and isinstance(query, str):
        return name, {"queries": [query], **{key: value for key, value in block_input.items() if key != "query"}}
    return name, dict(block_input)


def search_results(sources: Sequence[CitedSource], text: str) -> list[dict[str, Any]]:
    """Return the content of a `web_search_tool_result`; the first result carries the `text` that the model read."""
    carried = b64encode(text.encode("utf-8", "replace")).decode()
    return [
        {
            "type": "web_search_result",
            "url": source.url or "",
            "title": source.title,
            "encrypted_content": "" if number else carried,
            "page_age": None,
        }
        for number, source in enumerate(sources)
    ]


def carried_text(results: Iterable[Any]) -> str:
    """Return the text that the model read, given the content of a `web_search_tool_result` that came back, whatever is in it.
    Empty if it carries none: the results of another server, say."""
    for result in results:
        content = result.get("encrypted_content") if isinstance(result, dict) else None
        if isinstance(content, str) and content:
            try:
                return b64decode(content, validate=True).decode()
            except ValueError:  # of base64, or of UTF-8
                return ""
    return ""


def shown_sources(items: Iterable[Any]) -> list[CitedSource]:
    """Return the sources that the results of server tools have shown to the model, given the items of a conversation."""
    calls = [item for item in items if isinstance(item, dict) and str(item.get("call_id")).startswith(_IN_PROMPT)]
    texts = [call["output"] for call in calls if isinstance(call.get("output"), str)]
    return [CitedSource(int(number), title, url) for text in texts for number, title, url in _SHOWN.findall(text)]


def fetched_page(sources: Sequence[CitedSource], text: str) -> dict[str, Any]:
    """Return the content of a `web_fetch_tool_result`: the page as the model read it."""
    page = sources[0] if sources else CitedSource(0, "", "")
    document = {
        "type": "document",
        "title": page.title,
        "source": {"type": "text", "media_type": "text/plain", "data": text},
        "citations": None,
    }
    return {"type": "web_fetch_result", "url": page.url or "", "content": document, "retrieved_at": None}


def search_error(tool: str, text: str) -> dict[str, Any]:
    """Return the content of a result of `web_search` or `web_fetch` that failed, for the text that the model reads. The member
    `message` is not Anthropic's, whose errors have no place for a text; clients send it back as it is."""
    code = "max_uses_exceeded" if OUT_OF_USES in text else "unavailable"
    return {"type": f"{tool}_tool_result_error", "error_code": code, "message": text}


def cited(annotation: Mapping[str, Any], excerpt: str) -> dict[str, Any]:
    """Return the citation for a `url_citation` of the Responses API; `excerpt` is of the text that is cited."""
    return {
        "type": "web_search_result_location",
        "url": annotation["url"],
        "title": annotation["title"],
        "cited_text": excerpt,
        "encrypted_index": "",
    }
