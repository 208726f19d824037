"""Read the messages of a Messages body as the items of a Responses input.

The items of a message depend on it and on what precedes it alone, and the two forms of a content (a string, a list) become the
same item: so a growing conversation keeps its beginning byte for byte, and the backend's prefix cache hits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from responses_gateway.request.fields import Object, filled_text, optional_object, optional_text, quote, text
from responses_gateway.request.loss_report import LossReport
from responses_gateway.request.messages.content import (
    Block,
    ContentReader,
    appended,
    as_content,
    blocks,
    pictures_in,
    server_result,
    text_of,
)
from responses_gateway.request.messages.places import Place, Places
from responses_gateway.request.messages.turns import ReadConversation
from responses_gateway.request.policy import Policy
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.json_text import spaced_json
from responses_gateway.wire.messages import details_in
from responses_gateway.wire.search_results import as_written, id_in_prompt

# Claude Code's bill, which differs from request to request, before everything else in the prompt.
_BILLING = "x-anthropic-billing-header:"
# What the model is told of a call that has failed, and the beginnings of results that say so themselves.
_FAILED = "Error"
_SAYS_SO = re.compile(r"\W{0,9}(?:tool_use_)?error", re.IGNORECASE)
# Blocks of system messages that change which tools are offered.
_TOOL_CHANGES = ("tool_addition", "tool_removal")


class Conversation(msgspec.Struct):
    """Reads the system prompt and the messages of one body. `items` are those of the Responses input, `places` where each
    stands in the body, `leading` the texts of the system message. `prefilled`: the last message begins the answer."""

    _policy: Policy
    _report: LossReport
    _content: ContentReader
    places: Places
    items: list[Object] = []
    leading: list[str] = []
    prefilled: bool = False
    # Calls by id: how many items came before, and how many with this id have no result yet; those that the last message made.
    _calls: dict[str, int] = {}
    _unanswered: dict[str, int] = {}
    _open: set[str] = set()
    # Of the results at the end of the conversation, that of the last call: its tool message ends the prompt.
    _last_result: Object | None = None
    _waiting: list[str] = []  # texts of system messages that came between calls and their results

    def system(self, content: object) -> None:
        """Read the field `system`. Raise `ApiError` 400."""
        self.leading += self._system_texts(content, "system")

    def message(self, message: Object, path: str) -> None:
        """Read a message. Raise `ApiError` 400."""
        role = message.get("role")
        content = message.get("content")
        self.prefilled = False
        if role == "user":
            self._user(content, path)
        elif role == "assistant":
            self._assistant(content, path)
        elif role == "system":
            self._late_system("\n\n".join(self._system_texts(content, f"{path}.content")), path)
        else:
            name = quote(text(message, "role", path))
            error = f"{path}.role: invalid value {name}. Supported values are: 'user', 'assistant', 'system'."
            raise invalid_request(error, f"{path}.role", "invalid_value")

    def read(self) -> ReadConversation | None:
        """Return what was read until now; None if what follows may become a part of it."""
        if self._open or self._waiting:
            return None
        content = self._content
        return ReadConversation(
            self.items.copy(),
            self.places.items.copy(),
            self.leading.copy(),
            self._calls.copy(),
            self._unanswered.copy(),
            content.referenced.copy(),
            content.defined.copy(),
            content.cached,
        )

    def resume(self, read: ReadConversation) -> None:
        """Go on behind what was read before; a message of the model comes next."""
        self.items = list(read.items)
        self.places.items = list(read.places)
        self.leading = list(read.leading)
        self._calls = dict(read.calls)
        self._unanswered = dict(read.unanswered)
        self._content.referenced = dict(read.referenced)
        self._content.defined = list(read.defined)
        self._content.cached = read.cached

    def finish(self) -> None:
        """End the conversation: nothing more answers what is open."""
        if self._waiting:
            self._release("messages")

    # ---- system messages -----------------------------------------------------------------------------------------------

    def _system_texts(self, content: object, path: str) -> list[str]:
        texts: list[str] = []
        for block in blocks(content, path):
            self._content.note_cache_control(block.fields)
            if block.kind in _TOOL_CHANGES:
                self._content.tool_change(block)
            else:
                texts.append(text_of(block))
        kept = [part for part in texts if not part.startswith(_BILLING)]
        if len(kept) < len(texts):
            reason = "it would change the beginning of every prompt"
            self._report.ignored("content", "billing_header", reason, path, matters=False)
        return kept

    def _late_system(self, notice: str, path: str) -> None:
        """Read a system message that stands among the others. Where the template may refuse it, it becomes part of what stands
        before it: of the user's message, or of the last result. A user message of its own behind results would make templates
        drop the reasoning before them."""
        if not notice:
            return
        if not self.items:
            self.leading.append(notice)
        elif self._open:
            self._waiting.append(notice)
        elif self._policy.late_developer == "system":
            self._report.preserved("content", "late_system")
            self._add({"type": "message", "role": "system", "content": notice}, path)
        else:
            self._report.adapted("content", "late_system", "part of the message before it")
            self._fold(_marked(notice), path)

    def _fold(self, notice: str, path: str) -> None:
        part = {"type": "input_text", "text": notice}
        last = self.items[-1]
        if self._last_result is not None:
            self._last_result["output"] = appended(self._last_result["output"], part)
        elif last["type"] == "message" and last["role"] == "user":
            last["content"] = appended(last["content"], part)
        else:
            self._add({"type": "message", "role": "user", "content": [part]}, path)

    def _release(self, path: str) -> None:
        """Take the system messages that have waited for results."""
        waiting = self._waiting
        self._open.clear()
        self._waiting = []
        for notice in waiting:
            self._late_system(notice, path)

    # ---- users ---------------------------------------------------------------------------------------------------------

    def _user(self, content: object, path: str) -> None:
        if type(content) is str:
            if content:
                self._add({"type": "message", "role": "user", "content": content}, f"{path}.content")
        else:
            self._blocks_of_user(content, f"{path}.content")
        if self._open or self._waiting:
            self._release(path)

    def _blocks_of_user(self, content: object, path: str) -> None:
        visible: list[Block] = []
        for block in blocks(content, path):
            if block.kind == "tool_result":
                self._result(block)
            else:
                visible.append(block)
        parts, places = self._parts(visible) if visible else ([], [])
        if parts:
            self._add({"type": "message", "role": "user", "content": as_content(parts)}, path, places)

    def _parts(self, content: Iterable[Block]) -> tuple[list[Object], list[str]]:
        """Return the parts for blocks, and the place of each."""
        parts: list[Object] = []
        places: list[str] = []
        for block in content:
            part = self._content.part(block)
            if part is not None:
                parts.append(part)
                places.append(block.path)
            if block.kind == "document":
                pictures, there = self._parts(pictures_in(block))
                parts += pictures
                places += there
        return parts, places

    def _result(self, block: Block) -> None:
        result = block.fields
        call_id = filled_text(result, "tool_use_id", block.path)
        if call_id not in self._calls:
            error = f"{block.path}.tool_use_id: there is no `tool_use` block with the id {quote(call_id)} before this result."
            raise invalid_request(error, f"{block.path}.tool_use_id", "tool_call_not_found")
        if not self._unanswered[call_id]:
            self._report.ignored("content", "tool_result", "the call already has a result", block.path)
            return
        self._unanswered[call_id] -= 1
        if "cache_control" in result:
            self._content.note_cache_control(result)
        content = result.get("content")
        failed = result.get("is_error") is True
        if type(content) is str and content and not failed:  # as nearly always
            self._answer(block.path, call_id, content, (f"{block.path}.content",))
            return
        parts, places = self._parts(() if content is None else blocks(content, f"{block.path}.content"))
        if failed:
            first = parts[0]["text"] if parts and parts[0]["type"] == "input_text" else None
            if first is None:
                parts.insert(0, {"type": "input_text", "text": _FAILED})
                places = [block.path, *places]
            else:
                parts[0] = {"type": "input_text", "text": self._failure(first)}
        self._answer(block.path, call_id, as_content(parts), places)

    def _answer(self, path: str, call_id: str, output: str | list[Object], places: Sequence[str]) -> None:
        self._open.discard(call_id)
        self._add({"type": "function_call_output", "call_id": call_id, "output": output}, path, places)

    def _failure(self, text: str) -> str:
        """Return the result of a call that has failed in words that say so: chat messages have no other place for it."""
        if _SAYS_SO.match(text):
            return text
        self._report.adapted("content", "is_error", "the result begins with the word Error")
        return f"{_FAILED}:\n{text}" if text else _FAILED

    # ---- the model -----------------------------------------------------------------------------------------------------

    def _assistant(self, content: object, path: str) -> None:
        if self._open or self._waiting:
            self._release(path)
        pieces: list[Block] = []
        for block in blocks(content, f"{path}.content"):
            if "cache_control" in block.fields:
                self._content.note_cache_control(block.fields)
            if block.kind == "text":
                pieces.append(block)
                continue
            if pieces:
                self._say(pieces)
                pieces = []
            self._do(block)
        self.prefilled = bool(pieces)
        if pieces:
            self._say(pieces)

    def _say(self, pieces: list[Block]) -> None:
        """Add the texts that the model wrote in a row: citations split one text into several."""
        content = pieces[0].fields["text"] if len(pieces) == 1 else "".join([block.fields["text"] for block in pieces])
        self._add({"type": "message", "role": "assistant", "content": content}, pieces[0].path)

    def _do(self, block: Block) -> None:
        path, kind, fields = block
        if kind == "thinking":
            thought = optional_text(fields, "thinking", path)
            details = details_in(fields.get("signature"))
            if thought or details:
                content = [{"type": "reasoning_text", "text": thought}] if thought else []
                self._add({"type": "reasoning", "summary": [], "content": content, **details}, path)
        elif kind == "redacted_thinking":
            self._report.ignored("content", kind, "only Anthropic can read it", path, matters=False)
        elif kind == "compaction" and isinstance(fields.get("content"), str):  # of messages that the client may not send again
            self._say([Block(path, "text", {"text": fields["content"]})])
        elif kind == "tool_use":
            self._call(fields, filled_text(fields, "name", path), path)
            self._open.add(fields["id"])
        elif kind in ("server_tool_use", "mcp_tool_use"):
            name = filled_text(fields, "name", path)
            arguments = _input_of(fields)
            if isinstance(arguments, dict):
                name, arguments = as_written(name, arguments)
            call_id = id_in_prompt(filled_text(fields, "id", path))
            self._call({**fields, "id": call_id, "input": arguments}, name, path)
            self.items[-1]["id"] = call_id  # which names the turn, so that its calls are one message again
        elif kind.endswith("_tool_result"):
            self._server_result(fields, path)
        else:
            self._report.ignored("content", "unknown", f"a block of the type {kind[:64]}", f"{path}.type")

    def _call(self, fields: Object, name: str, path: str) -> None:
        call_id = filled_text(fields, "id", path)
        arguments = _input_of(fields)
        self._calls[call_id] = len(self.items)
        self._unanswered[call_id] = self._unanswered.get(call_id, 0) + 1
        item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": spaced_json(arguments)}
        extra = optional_object(fields, "extra_content", path) if "extra_content" in fields else None
        self._add(item if extra is None else {**item, "extra_content": extra}, path)

    def _server_result(self, fields: Object, path: str) -> None:
        """Read the result of a tool that a server has run, which stands in the answer itself."""
        block_id = filled_text(fields, "tool_use_id", path)
        call_id = id_in_prompt(block_id)
        if call_id not in self._calls:
            error = f"{path}.tool_use_id: there is no `server_tool_use` block with the id {quote(block_id)} before this result."
            raise invalid_request(error, f"{path}.tool_use_id", "tool_call_not_found")
        self._report.adapted("content", "server_tool_use", "shown as a function call with its result")
        output = server_result(fields)
        if fields.get("is_error") is True:
            output = self._failure(output)
        self._add({"type": "function_call_output", "call_id": call_id, "output": output}, path)

    def _add(self, item: Object, path: str, parts: Sequence[str] = ()) -> None:
        last = self._last_result
        if item["type"] != "function_call_output":
            self._last_result = None
        elif last is None or self._calls[last["call_id"]] < self._calls[item["call_id"]]:
            self._last_result = item
        self.items.append(item)
        self.places.items.append(Place(path, parts))


def _input_of(call: Object) -> object:
    """Return the arguments of a call. Nothing, null, and PHP's empty object, an empty list, are none. Anything
    else is what a model wrote and its client has kept: a refusal would end the session."""
    return {} if call.get("input") in (None, []) else call["input"]


def _marked(notice: str) -> str:
    return f"<system_message>\n{notice}\n</system_message>"
