"""Hosted tools: what a request gives to them, which calls were made, and what the model saw of these, kept for later turns
beside the items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import astuple

from responses_gateway.wire.tools import ToolTarget

DEFAULT_RESULTS = 20  # results of a file search that does not ask for a number
# The name and the content of an `input_file` part, as the client sent them.
SentFile = tuple[str, str]
SandboxFiles = Mapping[SentFile, str]  # files -> their paths for the code


def sent_file(part: Any) -> SentFile | None:
    """Return the file in a part of a message, which may be anything; None if it contains none."""
    if not isinstance(part, dict) or part.get("type") != "input_file":
        return None
    filename = part.get("filename") or ""
    data = part.get("file_data")
    return (filename, data) if isinstance(filename, str) and isinstance(data, str) and data else None


@dataclass(frozen=True, slots=True)
class FileSearchRequest:
    """A `file_search` tool. `stores`: the ids of the vector stores; `filters`: conditions for the attributes of files, as the
    request has them; `ranker`: a name, where one is asked for; `hybrid`: weights of a hybrid search; `score_threshold`: the
    least score of a result."""

    stores: tuple[str, ...]
    max_num_results: int = DEFAULT_RESULTS
    filters: Mapping[str, Any] | None = None
    ranker: str | None = None
    hybrid: Mapping[str, Any] | None = None
    score_threshold: float | None = None


class McpSession(NamedTuple):
    """A session with an MCP server: the version of its protocol, the server's `id` for it, and how it is connected."""

    protocol: str | None
    id: str | None
    transport: Literal["tcp", "pipe"]


@dataclass(slots=True)
class MadeCall:
    """A call that was made, for logs and traces. `began` is on the monotonic clock, in seconds; `seconds` is None while it
    runs. `id` is that of its item, or of its approval; None before there is one. `tool_failed`: the tool answered that it
    failed. `session`: the session with the MCP server that answered."""

    target: ToolTarget
    began: float
    outcome: str = "running"
    seconds: float | None = None
    id: str | None = None
    tool_failed: bool = False
    session: McpSession | None = None


class ImageUsage(msgspec.Struct, frozen=True):
    """Tokens that images have cost: of the text and the images that were given, and of what was made."""

    input_text: int = 0
    input_image: int = 0
    output_text: int = 0
    output_image: int = 0

    def __add__(self, other: ImageUsage) -> ImageUsage:
        return ImageUsage(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class CitedSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A source that may be cited by its number: a web page, or a file. `excerpt`: of what the model read, for clients to which
    results are shown."""

    number: int
    title: str
    url: str | None = None
    file_id: str | None = None
    excerpt: str = ""

    def annotation(self, start: int, end: int) -> dict[str, object]:
        """Return the annotation of the text between these indices, in code points."""
        if self.file_id is not None:
            return {"type": "file_citation", "file_id": self.file_id, "filename": self.title, "index": end}
        return {"type": "url_citation", "url": self.url or "", "title": self.title, "start_index": start, "end_index": end}


class KeptResult(msgspec.Struct, frozen=True):
    """The arguments of a call as the model wrote them, and the text that the model got. `sources` may be cited from then on."""

    arguments: str
    text: str
    sources: tuple[CitedSource, ...] = ()

    def encode(self) -> bytes:
        """Return it as JSON."""
        return msgspec.json.encode(self)


decode_result = msgspec.json.Decoder(KeptResult).decode


def citable(sources: Iterable[CitedSource]) -> dict[int, CitedSource]:
    """Return the sources by number, without the numbers that several of them have, which are ambiguous."""
    sources_by_number: dict[int, CitedSource] = {}
    ambiguous: set[int] = set()
    for source in sources:
        other = sources_by_number.setdefault(source.number, source)
        if (other.url, other.file_id) != (source.url, source.file_id):
            ambiguous.add(source.number)
    return {number: source for number, source in sources_by_number.items() if number not in ambiguous}
