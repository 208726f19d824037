"""What a backend can do: the facts that `prober.py` finds out, without conclusions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from responses_gateway.backend.server_types import Server
from responses_gateway.probing.answer import ErrorShape
from responses_gateway.probing.known_models import Enforcement

# Why tokens of a session are read again; the client plays the turns, so that nothing of its own can be why.
LostCause: TypeAlias = Literal["other_backend", "evicted", "template", "unreported"]
# Tokens per second below which a server is slow, because at that pace one step of an agent (some 600 tokens) takes a minute.
_SLOW = 10.0


@dataclass(frozen=True)
class Model:
    """A model that the server lists; `max_length` is its context length in tokens, None if unknown."""

    id: str
    max_length: int | None


@dataclass(frozen=True)
class Swallowed:
    """A call that the server left out: what the model wrote, and how many tokens of that answer were not shown."""

    written: str = ""
    unseen_tokens: int = 0


@dataclass
class Times:
    """How long a server and its examination took.

    `seconds`: the examination. `unfinished`: the requests whose answers were still coming when they were cut.
    `tokens_per_second`: how fast answers were generated; `prompt_tokens_per_second`: how fast a prompt was read, measured only
    if answers are slow."""

    seconds: float = 0.0
    unfinished: list[str] = field(default_factory=list)
    tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None

    @property
    def slow(self) -> bool:
        """Whether an agent would hardly be usable with this server."""
        return self.tokens_per_second is not None and self.tokens_per_second < _SLOW


@dataclass
class SessionTurns:
    """What three turns have shown. None means unknown.

    `drops_thoughts`: the template leaves thoughts out at the next user message. `lost`: the tokens that were read again, and
    `cause` why; None: not reported, or nothing. `keeps`: the variable of the template that keeps them. `hints`: which fields
    about sessions the server accepts."""

    drops_thoughts: bool | None = None
    lost: int | None = None
    cause: LostCause | None = None
    keeps: dict[str, bool] = field(default_factory=dict)
    hints: dict[str, bool] = field(default_factory=dict)


@dataclass
class Profile:
    """The facts about one server and one of its models. None means unknown.

    `checkpoint`: what the server lists of the model's weights, `root` and `max_model_len`, where that suffices to have answers
    continued (`alike.py`).
    `refusal`: why chat requests are refused; then little else is known.
    `reasoning_field`: the field in which parsed reasoning came; None if none came. `texts`: the content of some answers, by the
    name of the request, to look for markup in; `thoughts`: the same of the reasoning. `thoughts_alone`: a whole answer came as
    reasoning, without text or call.
    `calls`: "parsed", "forced" (parsed, but only with `tool_choice` "required"), "legacy" (the old `function_call` field),
    "none" (no call was parsed), "refused" (the server takes no tools; `calls_refusal` is its message), "swallowed" (the model
    made a call, and the server left it out). `shows_tools`: a prompt with tools is longer than one without; known where no call
    came unasked. `named_tool_choice`: how a call of one function can be enforced.
    `refused_fields`: fields that the gateway adds to requests, and that the server refuses.
    `max_tokens_field`: the field that limits an answer; "none" if neither does. `own_limit`: the tokens after which the server
    ended an answer for which no limit was asked. `tolerates`: whether the chat template accepts each kind of conversation;
    turns that need not alternate are there only if it does not.
    `reasoning_history`: whether reasoning of earlier turns is accepted;
    `history_field`: the field in which it reaches the prompt, if that is another one than `reasoning_field`.
    `overflow`: the error for a prompt that is too long is "recognised" or "unclear", or the prompt is "accepted".
    `pattern_reading`: the `pattern` of an argument of a strict function is matched with the argument's JSON or its text; None
    if it is not enforced. `enforcement`: what becomes of `strict` in tools.
    `stops`: generation ends when the client disconnects. `session`: what three turns of an agent have shown.
    `problems`: what went wrong, by the name of the request.
    `times`: how long everything took."""

    url: str
    model: str = ""
    server: Server = "unknown"
    version: str | None = None
    models: list[Model] = field(default_factory=list)
    checkpoint: dict[str, str | int] | None = None
    refusal: str | None = None
    streams: bool = False
    reasoning_field: str | None = None
    texts: dict[str, str] = field(default_factory=dict)
    thoughts: dict[str, str] = field(default_factory=dict)
    thoughts_alone: bool = False
    calls: Literal["parsed", "forced", "legacy", "none", "refused", "swallowed"] | None = None
    calls_refusal: str | None = None
    swallowed: Swallowed = field(default_factory=Swallowed)
    shows_tools: bool | None = None
    named_tool_choice: Literal["object", "required"] | None = None
    call_arguments_valid: bool | None = None
    parallel_calls: bool | None = None
    interleaved_calls: bool | None = None
    usage: Literal["last", "every", "none"] | None = None
    token_ids: bool | None = None
    finish_reason: bool | None = None
    done_marker: bool | None = None
    tokenize: Literal["messages", "prompt", "none"] | None = None
    structured_output: bool | None = None
    pattern_reading: Literal["json", "text"] | None = None
    enforcement: Enforcement | None = None
    refused_fields: list[str] = field(default_factory=list)
    max_tokens_field: Literal["max_completion_tokens", "max_tokens", "none"] | None = None
    own_limit: int | None = None
    tolerates: dict[str, bool] = field(default_factory=dict)
    reasoning_history: bool | None = None
    history_field: Literal["reasoning", "reasoning_content"] | None = None
    error_shape: ErrorShape | None = None
    unknown_model: Literal["refused", "served"] | None = None
    overflow: Literal["recognised", "unclear", "accepted"] | None = None
    stops: bool | None = None
    session: SessionTurns = field(default_factory=SessionTurns)
    problems: dict[str, str] = field(default_factory=dict)
    times: Times = field(default_factory=Times)

    @property
    def max_length(self) -> int | None:
        """The context length of the probed model, in tokens."""
        return next((known.max_length for known in self.models if known.id == self.model), None)
