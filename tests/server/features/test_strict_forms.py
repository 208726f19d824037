"""The body with strict tools is the one that would be encoded anew, and what a server has refused is not kept for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from responses_gateway.backend.served_models import Route
from responses_gateway.server.features.tool_calls.strict import RefusedTools, StrictForms
from responses_gateway.server.generation.upstream.chat_call import ChatCall, StrictForm

PARAMETERS = {"type": "object", "properties": {"tools": {"type": "array"}}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in ("save", "load")]
MESSAGES = [{"role": "user", "content": 'the "tools":[] of é'}]


def form_of(forms: StrictForms, refused: RefusedTools, tools: list[Any] = TOOLS) -> StrictForm:
    form = forms.form(tools, refused, "tenant", "backend")
    assert form is not None
    return StrictForm(form.tools, form.declared, lambda _refusal: None)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": MESSAGES, "tools": TOOLS},
        {"messages": MESSAGES, "tools": TOOLS, "stream": True, "chat_template_kwargs": {"tools": TOOLS}},
        {"tools": TOOLS, "messages": MESSAGES},
        {"chat_template_kwargs": {"tools": TOOLS}, "messages": MESSAGES, "tools": TOOLS},
    ],
)
@pytest.mark.parametrize("spaces", [False, True])
def test_the_body_with_strict_tools_is_as_if_it_were_encoded_anew(body: dict[str, Any], spaces: bool) -> None:
    data = msgspec.json.encode(body)
    call = ChatCall(body, msgspec.json.format(data, indent=1) if spaces else data, {}, Route("m"))
    form = form_of(StrictForms(), RefusedTools())
    sent = call.strict_data(form)
    assert sent == msgspec.json.encode({**body, "tools": msgspec.Raw(form.tools)})
    assert all(tool["function"]["strict"] for tool in msgspec.json.decode(sent)["tools"])


def test_tools_that_come_again_are_not_read_again_until_some_are_refused() -> None:
    forms = StrictForms()
    refused = RefusedTools()
    first = forms.form(TOOLS, refused, "tenant", "backend")
    assert forms.form(msgspec.json.decode(msgspec.json.encode(TOOLS)), refused, "tenant", "backend") is first
    refused.note("tenant", "backend", TOOLS, b"the grammar of save is too large")
    second = forms.form(TOOLS, refused, "tenant", "backend")
    other = forms.form(TOOLS, refused, "another", "backend")
    assert second is not None
    assert other is not None
    assert (list(second.changed), list(other.changed)) == ([1], [0, 1])


def test_few_forms_are_kept_and_none_that_is_large() -> None:
    forms = StrictForms()
    refused = RefusedTools()
    large = [{"type": "function", "function": {"name": "f", "description": "x" * 1_000_000, "parameters": PARAMETERS}}]
    assert forms.form(large, refused, "tenant", "backend") is not forms.form(large, refused, "tenant", "backend")
    first = forms.form(TOOLS, refused, "tenant", "backend")
    for number in range(32):
        forms.form(TOOLS, refused, f"tenant {number}", "backend")
    assert forms.form(TOOLS, refused, "tenant", "backend") is not first
