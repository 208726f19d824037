"""docs/translation.md names all that the installed `openai` package can put into a request, say over a WebSocket, or read
from a response: whatever a new version adds is seen here first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from openai.types import beta, responses
from openai.types.beta.response_create_params import ResponseCreateParamsStreaming as BetaRequest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming as Request
from pydantic import BaseModel
from typing_extensions import get_type_hints, is_typeddict

from responses_gateway.conformance.rules import SHAPES

PAGE = (Path(__file__).parents[2] / "docs" / "translation.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`\s]+)`", PAGE))

# Parameters whose contents are checked elsewhere: items, tools, and what a tool_choice refers to.
UNIONS = {"input", "tools", "tool_choice", "prompt.variables"}


def members(annotation: Any) -> Iterator[Any]:
    """Yield the classes in an annotation, however deep in unions, lists and the like."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        yield annotation
    for inner in get_args(annotation):
        if get_origin(annotation) is not Literal:
            yield from members(inner)


def words(annotation: Any) -> set[str]:
    """Return the literals in an annotation."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {word for inner in get_args(annotation) if not isinstance(inner, str) for word in words(inner)}


def types_of(union: Any) -> set[str]:
    """Return the values of `type` in a union of models."""
    found: set[str] = set()
    for model in members(union):
        if issubclass(model, BaseModel) and "type" in model.model_fields:
            found |= words(Annotated[model.model_fields["type"].annotation, ""])
    return found


def row_names(parameter: str) -> set[str]:
    """Return what the lines of a parameter, and of its fields, name. Parameters of the same outcomes share one."""
    rows = [row for row in PAGE.splitlines() if re.match(rf"- (?:`[^`]+`, )*`{parameter}[`.]", row)]
    return {part for name in re.findall(r"`([^`\s]+)`", "\n".join(rows)) for part in name.split(".")}


def fields_of(parameter: type, inside: str = "") -> Iterator[str]:
    """Yield the paths of all fields of a typed dict."""
    for name, hint in get_type_hints(parameter).items():
        path = f"{inside}.{name}" if inside else name
        yield path
        if path not in UNIONS:
            for member in members(hint):
                if is_typeddict(member):
                    yield from fields_of(member, path)


REQUEST_FIELDS = sorted({*fields_of(Request), *fields_of(BetaRequest)} - {"betas"})


def test_the_walk_finds_fields_at_any_depth() -> None:
    found = {"store", "moderation.policy.output.mode", "prompt_cache_options.prewarm", "multi_agent.enabled"}
    assert found <= set(REQUEST_FIELDS)
    assert {"steered", "max_messages"} <= words(responses.response.IncompleteDetails.model_fields["reason"].annotation)
    assert "response.steer.failed" in types_of(responses.ResponsesServerEvent)


@pytest.mark.parametrize("parameter", sorted({path.partition(".")[0] for path in REQUEST_FIELDS}))
def test_every_field_of_a_request_is_named(parameter: str) -> None:
    parts = {part for path in REQUEST_FIELDS if path.partition(".")[0] == parameter for part in path.split(".")}
    schema = {"name", "schema", "description", "strict"} if parameter == "text" else set()
    assert parts - row_names(parameter) - schema == set(), "no row of the parameter tells what becomes of it"


@pytest.mark.parametrize(
    "union",
    [
        responses.ResponsesClientEvent,
        responses.ResponsesServerEvent,
        responses.ResponseStreamEvent,
        responses.ResponseOutputItem,
        responses.ResponseInputItem,
        beta.BetaResponsesClientEvent,
        beta.BetaResponsesServerEvent,
        beta.BetaResponseOutputItem,
    ],
    ids=["messages", "frames", "events", "output", "input", "beta messages", "beta frames", "beta output"],
)
def test_every_message_event_and_item_is_named(union: Any) -> None:
    assert types_of(union) - NAMED == set()


@pytest.mark.parametrize("response", [responses.Response, beta.BetaResponse])
def test_every_field_of_a_response_is_named(response: type[BaseModel]) -> None:
    assert set(response.model_fields) - NAMED == set()


@pytest.mark.parametrize(
    "annotation",
    [
        responses.response.IncompleteDetails.model_fields["reason"].annotation,
        responses.ResponseError.model_fields["code"].annotation,
        responses.ResponseSteerErrorCode,
    ],
    ids=["incomplete", "error", "steering"],
)
def test_every_reason_and_code_is_named(annotation: Any) -> None:
    assert words(annotation) - NAMED == set()


def test_what_is_never_sent_has_no_shape() -> None:
    """Judge the page by the checker, which knows each event that a stream may have."""
    never = PAGE.partition("Never sent:")[2].partition("## ")[0]
    unsent = set(re.findall(r"`(response\.[^`]+)`", never))
    assert unsent
    assert unsent & set(SHAPES) == set()
