"""Codex's search requests (`POST /v1/alpha/search`) as they are on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from responses_gateway.wire.requests import TypedPart, read_object

_MOST_OPERATIONS = 16
_Text = Annotated[str, Field(max_length=8192)]


class SearchQuery(TypedPart):
    """A search. `recency` is in days."""

    q: _Text
    recency: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    domains: Annotated[list[_Text], Field(max_length=100)] | None = None


class OpenPage(TypedPart):
    """A page to open, at a line."""

    ref_id: _Text
    lineno: int | None = None


class ClickLink(TypedPart):
    """A numbered link of a page to open."""

    ref_id: _Text
    id: int


class FindText(TypedPart):
    """A text to find in a page."""

    ref_id: _Text
    pattern: _Text


class TimeAt(TypedPart):
    """The time at an offset such as `+03:00`."""

    utc_offset: _Text


class SearchCommands(BaseModel):
    """What is to be done. Commands that the gateway does not know are in `model_extra`."""

    model_config = ConfigDict(extra="allow", strict=True)

    search_query: Annotated[list[SearchQuery], Field(max_length=_MOST_OPERATIONS)] | None = None
    open: Annotated[list[OpenPage], Field(max_length=_MOST_OPERATIONS)] | None = None
    click: Annotated[list[ClickLink], Field(max_length=_MOST_OPERATIONS)] | None = None
    find: Annotated[list[FindText], Field(max_length=_MOST_OPERATIONS)] | None = None
    time: Annotated[list[TimeAt], Field(max_length=_MOST_OPERATIONS)] | None = None
    response_length: Literal["short", "medium", "long"] | None = None


class SearchRequest(TypedPart):
    """A search request. `input`, the end of the conversation, is not used."""

    id: _Text | None = None
    commands: SearchCommands | None = None
    settings: dict[str, Any] | None = None
    max_output_tokens: Annotated[int, Field(gt=0)] | None = None


def parse_search(body: bytes) -> SearchRequest:
    """Decode and check a request body. Raises `ApiError` 400 naming the field (`param`)."""
    return SearchRequest.read(read_object(body))
