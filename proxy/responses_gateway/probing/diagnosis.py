"""Interpret the facts about a backend for its user: findings with advice, and a table of abilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from responses_gateway.backend.server_types import SERVER_TYPES
from responses_gateway.probing.known_models import Enforcement
from responses_gateway.probing.needed_parsers import (
    NeededParsers,
    markup_leaks,
    needed_parsers,
    reasoning_parser_for,
    swallowed_parser,
)
from responses_gateway.probing.profile import LostCause, Profile

Level = Literal["error", "warning", "note"]

# The values of `Profile.calls` for a server that parses calls itself.
_PARSED = ("parsed", "forced", "legacy")
# How servers are given a chat template.
_TEMPLATE_FLAGS = {
    "vllm": "Start the server with --chat-template FILE. ",
    "sglang": "Start the server with --chat-template FILE. ",
    "llamacpp": "Start the server with --jinja and --chat-template-file FILE. ",
}
# Refusals that are temporary.
_TEMPORARY = ("HTTP 429", "HTTP 503")
_CONVERSATIONS = {
    "two_system": "two system messages",
    "late_system": "late system message",
    "developer": "developer message",
    "two_user": "two user messages in a row",
    "turns": "turns that do not alternate",
}
# The tokens of the first request of an agent, nearly all of which are its instructions and tools.
_FIRST_PROMPTS = {"Codex": 10_000, "Claude Code": 16_000}
# Seconds without an answer that users should know of beforehand.
_LONG_WAIT = 10.0
_PATTERNS = {"json": "enforced, as JSON", "text": "enforced, as text"}
_ENFORCEMENT: dict[Enforcement | None, str] = {
    "enforced": "enforced if `strict`, which strict_calls: auto sends",
    "rendered": "enforced if `strict`; strict_calls: auto does not send it, because it changes the prompt",
    "ignored": "not enforced, so strict_calls: auto does not send `strict`",
    "kept": "kept without `strict`, so strict_calls: auto does not send it",
    "refused": "`strict` is refused, so strict_calls: auto does not send it",
    None: "unknown, so strict_calls: auto does not send `strict`",
}
_SHAPES = {
    "openai": "OpenAI's",
    "flat": "a flat object",
    "text": "plain text",
    "detail": "FastAPI's detail",
    "other": "unreadable",
}
# Why tokens of a session are read again, and what to do about it.
_LOST: dict[LostCause, tuple[str, str]] = {
    "other_backend": (
        "Several servers are behind the URL, and the turns of a session reach different ones",
        "Give the gateway each server as a backend, or turn on session affinity in the router.",
    ),
    "evicted": (
        "The server no longer has what it just read",
        "Its prefix cache is off or too small, or there are many servers behind the URL.",
    ),
    "template": ("The chat template renders earlier turns differently when the session goes on", ""),
    "unreported": (
        "The server does not say how much of a prompt was cached, so the doctor cannot see lost tokens",
        "vLLM needs --enable-prompt-tokens-details, SGLang --enable-cache-report.",
    ),
}


class Finding(NamedTuple):
    """One thing to know about a backend.

    `error`: something does not work, whatever the settings; `warning`: it works with the recommended settings, or with a loss;
    `note`: good to know. `advice` says what to do, and may be empty. `loss`: whether a warning means that something does not
    work, and not only that it is slow."""

    level: Level
    text: str
    advice: str = ""
    loss: bool = True


class Row(NamedTuple):
    """An ability in the table. `good` is None if the value is neither good nor bad."""

    ability: str
    value: str
    good: bool | None


def server_name(profile: Profile) -> str:
    """Return the name and version of the server, such as `vLLM 0.32.0`."""
    name = SERVER_TYPES[profile.server].title
    return f"{name} {profile.version}" if profile.version else name


def findings(profile: Profile) -> list[Finding]:
    """List what is wrong or noteworthy, the worst first."""
    if profile.refusal is not None:
        return [_refused(profile)]
    parts = (_speed, _streams, _reasoning, _calls, _limits, _rest, _session, _continuation)
    order: list[Level] = ["error", "warning", "note"]
    return sorted((finding for part in parts for finding in part(profile)), key=lambda finding: order.index(finding.level))


def _refused(profile: Profile) -> Finding:
    refusal = profile.refusal or ""
    advice = "See the log of the server." if profile.models else "Is this the URL of a Chat Completions server?"
    if refusal.startswith(_TEMPORARY):
        advice = "It may be busy or still loading the model: try again in a while."
    elif "model" in refusal.lower() and profile.models:
        advice = f"It serves {', '.join(model.id for model in profile.models)}: name one with --model."
    return Finding("error", f"The server refuses chat requests: {refusal}", advice)


def _speed(profile: Profile) -> Iterator[Finding]:
    if profile.times.unfinished:
        text = f"The doctor cut off answers that were still coming: {', '.join(profile.times.unfinished)}."
        yield Finding("note", text, "What they would have shown is unknown. To wait longer, give a larger --timeout.")
    if not profile.times.slow:
        return
    text = f"slow: {profile.times.tokens_per_second:.2g} tokens/s."
    reading = profile.times.prompt_tokens_per_second
    advice = "Coding agents need a faster server, or a smaller model."
    if reading and max(_FIRST_PROMPTS.values()) / reading >= _LONG_WAIT:
        times = ", ".join(
            f"{agent}'s first prompt ({tokens:,} tokens) about {_duration(tokens / reading)}"
            for agent, tokens in _FIRST_PROMPTS.items()
        )
        advice = f"Time to read a first prompt: {times}. {advice}"
    yield Finding("warning", text, advice, loss=False)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"


def _streams(profile: Profile) -> Iterator[Finding]:
    broken = {name: problem for name, problem in profile.problems.items() if name != "disconnect"}
    if broken:
        by_problem = {problem: [name for name in broken if broken[name] == problem] for problem in broken.values()}
        problems = "; ".join(f"{problem} ({', '.join(names)})" for problem, names in by_problem.items())
        advice = "See the log of the server, and look for a proxy in between that cuts or rewrites streams."
        yield Finding("error", f"Answers break: {problems}", advice)
    if not profile.streams:
        yield Finding(
            "warning", "The server answers in one piece although a stream was requested.", "Clients see nothing until the end."
        )
    if profile.streams and profile.finish_reason and profile.done_marker is False:
        yield Finding("note", "Streams end without [DONE].", "Harmless: the finish_reason shows that they are complete.")
    if profile.usage == "none":
        advice = "Clients see no token counts, and Codex does not know when to compact."
        yield Finding("warning", "Streams carry no usage, although stream_options.include_usage asks for it.", advice)


def _reasoning(profile: Profile) -> Iterator[Finding]:
    needed = needed_parsers(profile)
    if needed.reasoning is not None:
        text = "Reasoning arrives as markup in the text: the server has no parser for it, or a wrong one."
        # If tools need a change too, one line of advice covers both.
        advice = _parser_advice(profile, needed) if profile.calls in _PARSED else ""
        yield Finding("warning", text, advice)
    elif profile.reasoning_field is None and not profile.problems and not profile.times.unfinished:
        yield Finding("note", "No reasoning was seen.", "This is correct unless the model is a reasoning model.")
    if profile.thoughts_alone:
        advice = (
            "If the model does not think, start the server without a reasoning parser. If it thinks only sometimes, "
            "let the gateway parse: no parsers on the server, and the settings reasoning_parser and opened_thinking: 'no' here."
        )
        yield Finding("warning", "A whole answer arrived as reasoning, without any text.", advice)
    fitting = reasoning_parser_for(profile)
    if fitting is not None:
        server_type = SERVER_TYPES[profile.server]
        flag = f"--reasoning-parser {_name(profile, fitting)}"
        text = "The reasoning parser of the server does not fit the model: it leaves markup in the text or in the reasoning."
        advice = f"Start the server with {flag}." if server_type.parser_flags else server_type.parsing
        yield Finding("warning", text, advice)
    if profile.reasoning_field == "reasoning_content":
        yield Finding(
            "note", "Reasoning arrives, and is sent back, in reasoning_content.", "See the setting reasoning_field below."
        )
    if profile.reasoning_history is False:
        yield Finding("warning", "Reasoning of earlier turns is refused.", "The setting reasoning_field: none leaves it out.")


def _calls(profile: Profile) -> Iterator[Finding]:
    needed = needed_parsers(profile)
    if profile.calls == "refused":
        text = f"Tools are refused: {profile.calls_refusal}"
        level: Level = "warning" if needed.tools is not None else "error"
        yield Finding(level, text, _parser_advice(profile, needed))
    elif profile.calls == "swallowed":
        yield _swallowed(profile, needed)
    elif profile.calls == "none" and needed.tools is not None:
        text = f"Tool calls arrive as markup in the text ({needed.tools}): the server has no parser for them, or a wrong one."
        yield Finding("warning", text, _parser_advice(profile, needed))
    elif profile.calls == "none":
        advice = "Either the model cannot call tools, or the server's parser does not fit the model. Coding agents need tools."
        yield Finding("warning", "The model made no tool call when asked for one.", advice)
    elif profile.calls == "forced":
        advice = "The server supports tools, but the model hardly uses them. Coding agents need a model that does."
        yield Finding("warning", "The model called a tool only when forced to.", advice)
    elif profile.calls == "legacy":
        yield Finding(
            "note", "Calls arrive in the old field function_call.", "The gateway translates them, one call at a time."
        )
    if profile.shows_tools is False and needed.tools is None:
        text = "The chat template leaves tools out: a prompt with tools is as long as one without, so no model sees them."
        advice = "Give the server a template with tools, or serve another model. Coding agents need tools."
        yield Finding("error", text, f"{_TEMPLATE_FLAGS.get(profile.server, '')}{advice}")
    if profile.call_arguments_valid is False:
        advice = "The gateway passes them on unchanged; a parser that fits the model may help."
        yield Finding("warning", "The arguments of a call were not a JSON object.", advice)
    if profile.interleaved_calls:
        yield Finding("note", "Parallel calls are interleaved.", "The gateway puts them in order.")
    if markup_leaks(profile):
        advice = "Check that its parsers fit the model; with the setting rescue: true the gateway parses what is left."
        yield Finding("warning", "The server parses, but markup still gets into the text.", advice)


def _swallowed(profile: Profile, needed: NeededParsers) -> Finding:
    """Say that the server's tool parser leaves calls out, and which one reads them."""
    parser = swallowed_parser(profile)
    text = (
        "The tool parser of the server does not fit the model: it leaves calls out. The model wrote a call as "
        f"{parser or 'markup that no known parser reads'}; "
        f"{profile.swallowed.unseen_tokens} tokens of that answer were not shown."
    )
    if needed.tools is not None:
        return Finding("warning", text, _parser_advice(profile, needed))
    here = f"Without a tool parser on the server, the gateway can parse: tool_call_parser: {parser or 'auto'}."
    return Finding("error", text, f"{_flags(profile, needed._replace(tools=parser))} {here}".strip())


def _parser_advice(profile: Profile, needed: NeededParsers) -> str:
    """Say what to change on the server, and that the gateway can parse instead."""
    flags = _flags(profile, needed)
    here = "The gateway can parse instead, with the settings below." if needed.reasoning or needed.tools else ""
    return f"{flags} {here}".strip()


def _flags(profile: Profile, needed: NeededParsers) -> str:
    server_type = SERVER_TYPES[profile.server]
    if not server_type.parser_flags:
        return server_type.parsing
    flags = []
    if profile.calls not in _PARSED:
        automatic = "--enable-auto-tool-choice " if profile.server == "vllm" else ""
        flags.append(f"{automatic}--tool-call-parser {_name(profile, needed.tools)}")
    if needed.reasoning is not None:
        flags.append(f"--reasoning-parser {_name(profile, needed.reasoning)}")
    return f"Start the server with {' '.join(flags)}."


def _name(profile: Profile, parser: str | None) -> str:
    """Return the server's name for a parser, or a placeholder if the parser is not known."""
    return (
        "NAME" if parser in (None, "auto") else dict(SERVER_TYPES[profile.server].parser_names).get(parser or "", parser or "")
    )


def _limits(profile: Profile) -> Iterator[Finding]:
    if profile.max_tokens_field == "none":
        yield Finding(
            "warning", "Neither max_completion_tokens nor max_tokens limits an answer.", "max_output_tokens has no effect."
        )
    elif profile.max_tokens_field == "max_tokens":
        yield Finding("note", "Only max_tokens limits an answer.", "See the setting max_tokens_field below.")
    own_limit = SERVER_TYPES[profile.server].own_limit
    if own_limit or profile.own_limit:
        after = f"after {profile.own_limit} tokens" if profile.own_limit else "early"
        advice = f"{own_limit or 'Raise that limit of the server'}; or see the setting default_max_output_tokens"
        level: Level = "warning" if profile.own_limit else "note"
        text = f"The server ends answers {after} if no limit is asked for: Codex and others ask for none."
        yield Finding(level, text, f"{advice}{' below' if own_limit else ''}.")
    if profile.overflow == "accepted":
        advice = "It seems to cut the prompt silently: Codex will forget instead of compacting. Raise the context length."
        yield Finding("warning", "A prompt longer than the context is accepted.", advice)
    elif profile.overflow == "unclear":
        yield Finding(
            "warning", "The error for a prompt that is too long does not say so.", "Codex will not compact automatically."
        )
    if profile.max_length is None:
        advice = "Set model_context_window in the configuration of Codex."
        if profile.server == "ollama":
            advice += " Ollama's default is short: set OLLAMA_CONTEXT_LENGTH."
        yield Finding("note", "The server does not report the context length of the model.", advice)


def _rest(profile: Profile) -> Iterator[Finding]:
    if profile.refused_fields:
        advice = "The gateway leaves them out after the first refusal, or renames them; nothing that a client requests is lost."
        yield Finding("note", f"The server refuses fields that the gateway adds: {', '.join(profile.refused_fields)}.", advice)
    if profile.named_tool_choice == "required":
        advice = "With the setting named_tool_choice: required, the gateway offers that function alone instead."
        yield Finding("note", "The server ignores a tool_choice that names a function.", advice)
    remedies = {
        "two_system": "the default system_messages: merge avoids them",
        "late_system": "the default late_developer: user avoids it",
        "developer": "the gateway sends none",
        "two_user": "user_messages: merge avoids them",
        "turns": "user_messages: alternate puts short ones in",
    }
    for name in (name for name, accepted in profile.tolerates.items() if not accepted):
        text = f"The chat template refuses: {_CONVERSATIONS[name]}."
        yield Finding("warning" if name in ("two_user", "turns") else "note", text, f"Settings: {remedies[name]}.")
    if profile.structured_output is False:
        yield Finding(
            "warning", "Answers do not follow a JSON schema.", "text.format has no effect on this server, or is refused."
        )
    if profile.error_shape == "other":
        yield Finding("note", "The format of errors is unknown.", "Clients see the HTTP status without a message.")
    if profile.stops is False:
        advice = (
            "The GPU keeps working on an answer that nobody reads. Look for a proxy in between that keeps connections open."
        )
        yield Finding("error", "Generation continues after the client has disconnected.", advice)


def _continuation(profile: Profile) -> Iterator[Finding]:
    """Say why no other backend continues an answer of this one that breaks off."""
    server = "this server" if profile.server == "unknown" else SERVER_TYPES[profile.server].title
    text = "Answers that break off are not continued at another backend"
    if profile.server != "vllm":
        advice = "Only vLLM (0.32 or later) can continue them: serve the model with it, or have clients repeat their requests."
        yield Finding("note", f"{text}: {server} cannot continue them.", advice)
    elif profile.token_ids is False:
        advice = "Use vLLM 0.32 or later, without a proxy in between that removes return_token_ids."
        yield Finding("note", f"{text}: the server sends no token ids.", advice)
    elif profile.checkpoint is None:
        advice = "If all backends of this model have the same weights and tokenizer, set continue_answers: 1."
        yield Finding("note", f"{text}: /v1/models does not list its root and max_model_len.", advice)


def _session(profile: Profile) -> Iterator[Finding]:
    session = profile.session
    lost = f"{session.lost} tokens of a short session were read again."
    if session.drops_thoughts:
        text = "The chat template leaves out earlier thoughts at the next user message, and the prefix cache ends there."
        advice = "No known variable of the template keeps them."
        if session.keeps:
            ((name, value),) = session.keeps.items()
            kwargs = f"{{chat_template_kwargs: {{{name}: {str(value).lower()}}}}}"
            advice = f"models: {{{profile.model}: {kwargs}}} keeps them; the model reads them again then."
        yield Finding("note", f"{text} {lost}" if session.cause == "template" else text, advice)
    if session.cause is not None and not (session.drops_thoughts and session.cause == "template"):
        text, advice = _LOST[session.cause]
        yield Finding("note", f"{text}: {lost}" if session.lost else f"{text}.", advice)


def rows(profile: Profile) -> Iterator[Row]:
    """List the abilities for a table."""
    needed = needed_parsers(profile)
    length = f"{profile.max_length} tokens" if profile.max_length else "unknown"
    yield Row("model", f"{profile.model}, {length}", None)
    if profile.refusal is not None:
        return
    if profile.times.tokens_per_second is not None:
        yield Row("speed", f"{profile.times.tokens_per_second:.3g} tokens/s", False if profile.times.slow else None)
    yield Row("stream", "yes" if profile.streams else "no", profile.streams)
    field = f"parsed, in {profile.reasoning_field}" if profile.reasoning_field else None
    yield Row(
        "reasoning", field or (f"raw ({needed.reasoning})" if needed.reasoning else "none seen"), needed.reasoning is None
    )
    calls = f"raw ({needed.tools})" if needed.tools else profile.calls or "unknown"
    if profile.shows_tools is False and needed.tools is None:
        calls += "; the chat template leaves tools out"
    yield Row("tool calls", calls, profile.calls in _PARSED)
    yield Row("parallel calls", _yes_or_no(profile.parallel_calls, no="one call came"), None)
    yield Row("interleaved calls", _yes_or_no(profile.interleaved_calls), None)
    yield Row("usage in the stream", profile.usage or "unknown", profile.usage != "none")
    yield Row("token ids", _yes_or_no(profile.token_ids), None)
    yield Row("tokenize", profile.tokenize or "unknown", None)
    yield Row("structured output", _yes_or_no(profile.structured_output), profile.structured_output is not False)
    yield Row("argument patterns", _PATTERNS.get(profile.pattern_reading or "", "not enforced"), None)
    if profile.calls == "parsed":
        yield Row("schemas of tools", _enforcement(profile), None)
    limit = profile.max_tokens_field
    yield Row("output limit", limit or "unknown", limit not in ("none", None))
    for name, accepted in profile.tolerates.items():
        yield Row(_CONVERSATIONS[name], "accepted" if accepted else "refused", accepted or None)
    hints = ", ".join(name for name, accepted in profile.session.hints.items() if accepted)
    yield Row("session fields", hints or "none accepted", None)
    shape = profile.error_shape
    yield Row("error format", _SHAPES.get(shape or "", "unknown"), None if shape is None else shape != "other")
    yield Row("overlong prompt", profile.overflow or "unknown", {"recognised": True, None: None}.get(profile.overflow, False))
    yield Row("broken answers", _continued(profile), None)
    yield Row("stops when the client leaves", _yes_or_no(profile.stops), profile.stops is not False)


def _enforcement(profile: Profile) -> str:
    text = _ENFORCEMENT[profile.enforcement]
    flag = SERVER_TYPES[profile.server].enforcing
    return f"{text}; the server's {flag} enforces them without it" if flag and profile.enforcement == "rendered" else text


def _continued(profile: Profile) -> str:
    if any(_continuation(profile)) or profile.checkpoint is None:
        return "not continued"
    listed = " and ".join(f"{name} {value}" for name, value in profile.checkpoint.items())
    return f"continued by another vLLM backend that lists the same {listed}"


def _yes_or_no(value: bool | None, no: str = "no") -> str:
    return "unknown" if value is None else "yes" if value else no
