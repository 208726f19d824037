"""Items become chat messages.

What one response said (reasoning, texts, calls, in any order) is one assistant message, followed at once by the tool
messages of its calls. The messages of a history depend on its own items alone and not on what follows, so that a growing
conversation keeps its beginning byte for byte and the backend's prefix cache hits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from proxy.request.fields import Object, optional_text, shown
from proxy.request.input.calls import CALL_TYPES, OUTPUT_TYPES
from proxy.request.input.content import assistant_text, reasoning_text, system_text, user_content
from proxy.request.input.items import Entry
from proxy.request.input.messages import Messages
from proxy.request.input.pairing import Pairing, is_foreign_search
from proxy.request.loss_report import Ledger
from proxy.request.policy import Policy
from proxy.wire.errors import invalid_request

#: Items of hosted tools and of other servers that say nothing a chat model could read.
SILENT_ITEMS = {
    "web_search_call": "the results are not part of the item",
    "image_generation_call": "a chat history cannot hold generated images",
    "mcp_list_tools": "hosted tools are not run here",
    "mcp_approval_request": "hosted tools are not run here",
    "mcp_approval_response": "hosted tools are not run here",
    "compaction": "its content was encrypted by another server",
    "compaction_summary": "its content was encrypted by another server",
    "context_compaction": "its content was encrypted by another server",
}


class Conversation:
    """Walks the items once and tells `Messages` what was said. `compacting`: the input asked for a compaction."""

    def __init__(self, policy: Policy, pairing: Pairing, ledger: Ledger) -> None:
        self._policy = policy
        self._pairing = pairing
        self._ledger = ledger
        self._messages = Messages(policy, ledger)
        self._leading: list[str] = []
        self._begun = False
        self.compacting = False

    def build(self, instructions: str | None, entries: Sequence[Entry]) -> list[Object]:
        """The messages of the chat request. Raises `ApiError` 400."""
        if instructions:
            self._leading.append(instructions)
        self.read(entries)
        messages = self._system_messages() + self._messages.finish()
        if not messages:
            raise invalid_request("The input holds nothing that could be sent to a model.", "input", "invalid_value")
        return messages

    def read(self, entries: Iterable[Entry]) -> None:
        """Take in what the items say. Raises `ApiError` 400."""
        for entry in entries:
            self._item(entry)

    def _item(self, entry: Entry) -> None:
        kind = entry.kind
        if kind == "message":
            self._message(entry)
        elif kind in CALL_TYPES:
            self._call(entry)
        elif kind in OUTPUT_TYPES:
            self._output(entry)
        elif kind in _READERS:
            _READERS[kind](self, entry)
        elif kind in SILENT_ITEMS:
            self._ledger.ignored("item", kind, SILENT_ITEMS[kind], entry.path)
        else:
            self._ledger.ignored("item", "unknown", "unknown item type", entry.path)

    def _message(self, entry: Entry) -> None:
        role = optional_text(entry.item, "role", entry.path) or "user"
        content, param = entry.item.get("content"), f"{entry.path}.content"
        if role == "user":
            self._user(user_content(content, param, self._ledger))
        elif role == "assistant":
            self._begun = True
            if entry.item.get("phase") is not None:
                self._ledger.ignored("content", "phase", "chat messages have none", f"{entry.path}.phase", matters=False)
            self._messages.said(assistant_text(content, param, self._ledger))
        elif role in ("system", "developer"):
            self._system(role, system_text(content, param, self._ledger))
        else:
            message = f"Invalid value: {shown(role)}. Supported values are: 'user', 'assistant', 'system', 'developer'."
            raise invalid_request(message, f"{entry.path}.role", "invalid_value")
        self._ledger.preserved("item", "message")

    def _user(self, content: str | list[Object]) -> None:
        self._begun = True
        self._messages.user(content)

    def _system(self, role: str, words: str) -> None:
        if not words:
            return
        if not self._begun or self._policy.late_developer == "merge":
            self._leading.append(words)
        elif self._policy.late_developer == "system":
            self._messages.system(words)
        else:
            self._ledger.adapted("item", "late_system_message", "sent as a user message with a marker around it")
            self._messages.user(f"<{role}_message>\n{words}\n</{role}_message>")

    def _system_messages(self) -> list[Object]:
        if self._policy.system_messages == "merge" and self._leading:
            return [{"role": "system", "content": "\n\n".join(self._leading)}]
        return [{"role": "system", "content": words} for words in self._leading]

    def _call(self, entry: Entry) -> None:
        self._begun = True
        slot = self._pairing.slots.get(entry.path)
        if slot is not None:
            self._messages.called(slot)

    def _output(self, entry: Entry) -> None:
        self._begun = True
        if is_foreign_search(entry):
            self._ledger.adapted("item", "tool_search_output", "the tools are declared")
            return
        slot = self._pairing.slots.get(entry.path)
        if slot is not None:
            self._messages.answered(slot)

    def _reasoning(self, entry: Entry) -> None:
        self._begun = True
        thoughts = reasoning_text(entry.item, entry.path)
        if not thoughts:
            # Encrypted by a server that is not ours, or empty: nothing to read, and nothing a model here has lost.
            self._ledger.ignored("item", "reasoning", "it holds no readable text", entry.path, matters=False)
        elif self._policy.reasoning_field == "none":
            self._ledger.ignored("item", "reasoning", "reasoning is not sent back", entry.path, matters=False)
        else:
            self._ledger.preserved("item", "reasoning")
            self._messages.thought(thoughts)

    def _additional_tools(self, _entry: Entry) -> None:
        """Its tools are declared with all others; it says nothing."""
        self._ledger.adapted("item", "additional_tools", "the tools are declared for the whole request")

    def _configuration_update(self, _entry: Entry) -> None:
        """It has been taken into the request's own parameters; it says nothing."""
        self._ledger.preserved("item", "configuration_update")

    def _agent_message(self, entry: Entry) -> None:
        """A message from another agent of the client."""
        param = f"{entry.path}.content"
        content = entry.item.get("content")
        if isinstance(content, list):
            content = [self._opened(part, param) if _is_encrypted(part) else part for part in content]
            content = [part for part in content if part is not None]
        words = system_text(content, param, self._ledger)
        people = [(key, optional_text(entry.item, key, entry.path)) for key in ("author", "recipient")]
        marks = "".join(f' {key}="{name}"' for key, name in people if name)
        self._ledger.adapted("item", "agent_message", "sent as a user message with a marker around it")
        if words:
            self._user(f"<agent_message{marks}>\n{words}\n</agent_message>")

    def _opened(self, part: Object, param: str) -> Object | None:
        """What one agent tells another is, in Codex's messages, what the model wrote for it: OpenAI encrypts that, and no other
        server does. So it is text, unless it looks as only a cipher does."""
        words = part.get("encrypted_content")
        if not isinstance(words, str) or _CIPHER.fullmatch(words):
            self._ledger.ignored("content", "encrypted_content", "it was encrypted by another server", param)
            return None
        self._ledger.adapted("content", "encrypted_content", "it is text: nobody has encrypted it")
        return {"type": "input_text", "text": words}

    def _compaction_trigger(self, entry: Entry) -> None:
        prompt = self._policy.compaction_trigger_prompt
        if prompt is None:
            message = "Compaction is not supported by this gateway configuration."
            raise invalid_request(message, entry.path, "unsupported_value")
        self._ledger.adapted("item", "compaction_trigger", "sent as a user message that asks for a summary")
        self.compacting = True
        self._user(prompt)


#: Base64, far longer than any word.
_CIPHER = re.compile(r"[A-Za-z0-9+/_=-]{64,}")


def _is_encrypted(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "encrypted_content"


_READERS: dict[str, Callable[[Conversation, Entry], None]] = {
    "reasoning": Conversation._reasoning,
    "additional_tools": Conversation._additional_tools,
    "configuration_update": Conversation._configuration_update,
    "agent_message": Conversation._agent_message,
    "compaction_trigger": Conversation._compaction_trigger,
}
