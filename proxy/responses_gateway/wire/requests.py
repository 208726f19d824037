"""Decode and check the body of `POST /v1/responses`, without translating it.

Parameters are typed here; items, tools and the like stay plain dicts and are checked when they are translated
(`request/`), so that a request with a hundred items does not build a hundred models. Limits follow the Open Responses
schema where a client could rely on them, and are wider where real clients send more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.json_text import with_whole_characters
from responses_gateway.wire.validation import problem

# The deepest nesting of JSON: no request needs more, and every later encoder would have to cope with it.
MAX_DEPTH = 128
# The most values in a body, approximately: `[],` takes three bytes of it and 64 of memory, and decoding blocks everything else.
# Every value but the first follows one of these characters; they also occur in texts, but no model accepts so long a text.
MAX_VALUES = 1_000_000
_SIGNS = (b",", b"[", b"{")
# Asks for the ids of the tokens, which no other API has.
TOKEN_IDS = "token_ids"
# What `include` may ask for. Some of it items have anyway, some only hosted tools have.
INCLUDABLE = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "output.encrypted_content",  # Codex asks OpenAI for it, to replay what was generated
    "reasoning.encrypted_content",
    TOKEN_IDS,
    "web_search_call.action.sources",
    "web_search_call.results",
)
# What a request may build on without an input of its own.
_IN_PLACE_OF_INPUT = ("previous_response_id", "conversation", "prompt")
# Parameters that are objects, all of whose fields are looked at.
_OBJECTS = ("reasoning", "text", "metadata")
# The most fields of one object of parameters, known and unknown, and the most entries of `include`.
MAX_FIELDS = 256
_MAX_INCLUDES = 64
# Larger bodies, in bytes, may have too many values, and are decoded in a thread: others hold the interpreter's lock as long.
LARGE = 1024 * 1024
_LONG = 64 * 1024  # bytes above which a body has so many brackets nearly always that they are not counted

Temperature = Annotated[float, Field(ge=0, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
PositiveInt = Annotated[int, Field(ge=1)]
Key = Annotated[str, StringConstraints(max_length=128)]
LaneName = Annotated[str, StringConstraints(max_length=256)]
# As long as a path may be: what is known of models is kept by their names, and whoever asks makes them up.
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Metadata = Annotated[
    dict[Annotated[str, StringConstraints(max_length=64)], Annotated[str, StringConstraints(max_length=512)]],
    Field(max_length=16),
]
# "none" is Codex's word for no summary.
Summary = Literal["auto", "concise", "detailed", "none"]
# Left open: the contents are checked by the translation, which can name the field.
Open = dict[str, Any]


class ReasoningConfig(BaseModel):
    """`reasoning`: any effort is accepted, since clients send more values than the schema lists."""

    model_config = ConfigDict(extra="allow", strict=True)

    effort: str | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None
    context: str | None = None
    mode: str | None = None


class TextConfig(BaseModel):
    """`text`: the output format and the verbosity of the answer."""

    model_config = ConfigDict(extra="allow", strict=True)

    format: Open | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponsesRequest(BaseModel):
    """Every create parameter of the Responses API. None means absent or null, which are equivalent. Other fields are kept in
    `model_extra`: sampling parameters of chat servers, and anything else."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: ModelName
    input: str | list[Any] | None = None
    instructions: str | None = None

    tools: list[Any] | None = None
    tool_choice: str | Open | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: PositiveInt | None = None

    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    max_output_tokens: PositiveInt | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: Annotated[list[str], Field(max_length=_MAX_INCLUDES)] | None = None
    truncation: Literal["auto", "disabled"] | None = None

    stream: bool | None = None
    stream_options: Open | None = None
    background: bool | None = None
    background_options: Open | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: str | Open | None = None
    prompt: Open | None = None
    context_management: list[Any] | None = None

    metadata: Metadata | None = None
    client_metadata: Open | None = None
    service_tier: str | None = None
    prompt_cache_key: Key | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Open | None = None
    multi_agent: Open | None = None
    safety_identifier: Key | None = None
    user: str | None = None
    moderation: Open | None = None
    access_programs: Open | None = None
    image: Open | None = None

    type: str | None = None  # part of the WebSocket message that contains this body
    generate: bool | None = None
    stream_id: LaneName | None = None

    @property
    def only_warms(self) -> bool:
        """Whether the prompt is to be read and nothing is to be answered: `generate` over a WebSocket, else `prewarm`."""
        options = self.prompt_cache_options
        return self.generate is False or (options is not None and options.get("prewarm") is True)


def user_message(text: str) -> dict[str, Any]:
    """Return the item that an input means which is a text."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def parse_request(body: bytes | Mapping[str, Any]) -> ResponsesRequest:
    """Decode and check a request body. Raises `ApiError` 400 naming the field (`param`), whatever the body contains. The result
    shares nothing with a mapping that was passed in."""
    return _checked(read_object(body if isinstance(body, bytes | bytearray | memoryview) else _encode(body)))


def parse_continued(new: dict[str, Any], known: Mapping[str, Any], mark: str, items: Sequence[Any]) -> ResponsesRequest | None:
    """Do as `parse_request` with the fields of a body, of which only the `new` ones were not checked before. `mark` stands for
    the first items of the input, which were read before: None if the input does not begin with it."""
    fields = continued_fields(new, known, mark, "input", items)
    return None if fields is None else _checked(fields)


def continued_fields(
    new: dict[str, Any], known: Mapping[str, Any], mark: str, name: str, elements: Sequence[Any]
) -> dict[str, Any] | None:
    """Return all fields of a body. `mark` stands for the first `elements` of the list of this `name`: None if it does not begin
    with it. Raises `ApiError` 400."""
    entries = new.get(name)
    if not isinstance(entries, list) or entries[:1] != [mark]:
        return None
    if _deeper_than(new, MAX_DEPTH):
        raise _too_deep()
    return {**new, **known, name: [*elements, *entries[1:]]}


def _checked(fields: dict[str, Any]) -> ResponsesRequest:
    """Return the request that has these fields. Raises `ApiError` 400."""
    if fields.get("model") is None:
        raise invalid_request("Missing required parameter: 'model'.", "model", "missing_required_parameter")
    if fields.get("input") is None and all(fields.get(name) is None for name in _IN_PLACE_OF_INPUT):
        raise invalid_request("Missing required parameter: 'input'.", "input", "missing_required_parameter")
    if len(fields) > MAX_FIELDS:
        refuse_many(fields, "")
    for name in _OBJECTS:
        if name in fields:
            refuse_many(fields[name], name)
    try:
        return ResponsesRequest.model_validate(fields)
    except ValidationError as error:
        raise refusal(error) from None


def parse_message(data: bytes) -> ResponsesRequest:
    """Return the request in a message of a WebSocket. Raise `ApiError` 400."""
    body = read_object(data)
    if body.pop("type", None) != "response.create":
        raise invalid_request('A message is {"type": "response.create", …}.', "type", "invalid_value")
    if body.get("background"):
        raise invalid_request("'background' is not possible over a WebSocket.", "background", "unsupported_parameter")
    return _checked(body)


def refuse_many(fields: Any, name: str) -> None:
    """Refuse an object of more fields than any client sends: each costs time, also to say that it is not known."""
    if isinstance(fields, dict) and len(fields) > MAX_FIELDS:
        what = f"Invalid '{name}'" if name else "Too many parameters"
        message = f"{what}: at most {MAX_FIELDS} fields are accepted, but got {len(fields)}."
        raise invalid_request(message, name or None, "object_above_max_properties")


def read_object(body: bytes | bytearray | memoryview, *, optional: bool = False) -> dict[str, Any]:
    """Decode the JSON object of a request; an `optional` body may be empty. Raises `ApiError` 400, and 413 for too many
    values."""
    raw = bytes(body)
    if optional and not raw.strip():
        return {}
    size = len(raw)
    if size > LARGE and sum(raw.count(sign) for sign in _SIGNS) > MAX_VALUES:
        message = f"The request body contains too many values: at most {MAX_VALUES} are accepted."
        raise ApiError(413, message, code="request_too_large")
    if size > _LONG:
        try:
            return _shallow().decode(raw)
        except (ValueError, RecursionError):  # as one that is deeper than most, whose depth is looked at
            pass
    fields = _decode_any(raw)
    if type(fields) is not dict:
        raise invalid_request("The request body must be a JSON object.", code="invalid_json")
    may_be_deep = size > _LONG or (size > MAX_DEPTH and raw.count(b"{") + raw.count(b"[") > MAX_DEPTH)
    if may_be_deep and _deeper_than(fields, MAX_DEPTH):
        raise _too_deep()
    return fields


def _encode(body: Mapping[str, Any]) -> bytes:
    """Encode a mapping, so that it passes the same checks as bytes."""
    try:
        return json.dumps(dict(body), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise invalid_request("The request body is not valid JSON.", code="invalid_json") from None


def _decode_any(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        whole = with_whole_characters(raw)
        if whole != raw:
            return _decode_any(whole)
        raise invalid_request(f"The request body is not valid JSON: {error}", code="invalid_json") from None


@cache  # because it takes milliseconds
def _shallow() -> msgspec.json.Decoder[dict[str, Any]]:
    """Return what decodes bodies that are as deep as schemas of tools are, without a look at each value afterwards."""
    plain = str | int | float | bool | None
    inside: Any = plain
    for _ in range(4):
        inside = plain | list[inside] | dict[str, inside]
    value: Any = inside
    for _ in range(8):
        value = plain | list[inside] | dict[str, value]
    return msgspec.json.Decoder(dict[str, plain | list[value] | dict[str, value]])


def _too_deep() -> ApiError:
    return invalid_request("The request body is nested too deeply.", code="invalid_json")


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return False
    return True


# Parameters of two possible types: the error names the parameter, not the type that was tried last.
_UNIONS = {"input": "a string or a list", "tool_choice": "a string or an object", "conversation": "a string or an object"}


class TypedPart(BaseModel):
    """A request, or a part of one, that is typed on its own: a tool, say. Fields that it does not know are nothing to it."""

    model_config = ConfigDict(extra="ignore", strict=True)

    @classmethod
    def read(cls, part: Mapping[str, Any], path: str = "") -> Self:
        """Return the part at `path` of the request. Raises `ApiError` 400 naming the field."""
        try:
            return cls.model_validate(part)
        except ValidationError as error:
            raise refusal(error, path and f"{path}.") from None


def refusal(error: ValidationError, within: str = "") -> ApiError:
    """Return the first error in the fields of a request as OpenAI words it: the field, the problem, and a code for programs.
    `within` stands before the name of the field."""
    first = error.errors(include_url=False)[0]
    what = problem(first["type"], first.get("ctx", {}), first["msg"])
    param = within + _param(first["loc"])
    if param in _UNIONS and len(first["loc"]) > 1:  # one type alone is possible in a Messages request
        return invalid_request(f"Invalid type for '{param}': expected {_UNIONS[param]}.", param, "invalid_type")
    if first["type"] == "missing":
        return invalid_request(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
    if first["type"].endswith("_type") or (first["type"] == "literal_error" and not isinstance(first["input"], str)):
        return invalid_request(f"Invalid type for '{param}': {what}.", param, "invalid_type")
    return invalid_request(f"Invalid value for '{param}': {what}.", param, "invalid_value")


def _param(path: tuple[int | str, ...]) -> str:
    """Write the path of a field: `include[1]`, `metadata.color`. It is shortened, since the client chose the keys."""
    if path[0] in _UNIONS:
        return str(path[0])
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path if step != "[key]"]
    return "".join(steps)[1:200]
