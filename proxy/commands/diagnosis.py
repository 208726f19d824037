"""What the facts about a backend mean for its user: findings with advice, and a table of abilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from proxy.probing.profile import Profile
from proxy.probing.recommend import Markup, leaks, markup_of

Level = Literal["error", "warning", "note"]

_NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "ollama": "Ollama",
    "unknown": "unknown make",
}
#: SGLang's names for parsers, where they are not vLLM's.
_SGLANG = {
    "hermes": "qwen25",
    "deepseek_v3": "deepseekv3",
    "deepseek_v31": "deepseekv31",
    "deepseek_r1": "deepseek-r1",
    "llama3_json": "llama3",
    "openai": "gpt-oss",
    "openai_gptoss": "gpt-oss",
}
#: What `calls` may say of a server that finds calls by itself.
_PARSED = ("parsed", "forced", "legacy")
#: Refusals that pass by themselves.
_FOR_NOW = ("HTTP 429", "HTTP 503")
_CONVERSATIONS = {
    "two_system": "two system messages",
    "late_system": "late system message",
    "developer": "developer message",
    "two_user": "two user messages in a row",
}
_PATTERNS = {"json": "enforced, as JSON", "text": "enforced, as text"}
_SHAPES = {
    "openai": "OpenAI's",
    "flat": "flat object",
    "text": "bare text",
    "detail": "FastAPI's detail",
    "other": "not readable",
}


class Finding(NamedTuple):
    """`error`: something does not work, whatever the settings; `warning`: it works with the settings that fit, or with a
    loss; `note`: good to know. `advice` says what to do, and may be empty."""

    level: Level
    text: str
    advice: str = ""


class Row(NamedTuple):
    """One ability in the table. `good` is None where neither is better."""

    ability: str
    value: str
    good: bool | None


def server_name(profile: Profile) -> str:
    """`vLLM 0.32.0`, as a person would say it."""
    name = _NAMES[profile.server]
    return f"{name} {profile.version}" if profile.version else name


def findings(profile: Profile) -> list[Finding]:
    """What to know and what to do, the worst first."""
    if profile.refusal is not None:
        return [_refused(profile)]
    found = [*_streams(profile), *_reasoning(profile), *_calls(profile), *_limits(profile), *_rest(profile)]
    order: list[Level] = ["error", "warning", "note"]
    return sorted(found, key=lambda finding: order.index(finding.level))


def _refused(profile: Profile) -> Finding:
    refusal = profile.refusal or ""
    advice = "Look into the log of the server." if profile.models else "Is this the URL of a Chat Completions server?"
    if refusal.startswith(_FOR_NOW):
        advice = "It may be busy, or still load the model: try again in a while."
    elif "model" in refusal.lower() and profile.models:
        advice = f"It serves {', '.join(model.id for model in profile.models)}: name one with --model."
    return Finding("error", f"Chat requests are refused: {refusal}", advice)


def _streams(profile: Profile) -> Iterator[Finding]:
    broken = {what: problem for what, problem in profile.problems.items() if what != "disconnect"}
    if broken:
        kinds = "; ".join(f"{problem} ({', '.join(w for w in broken if broken[w] == problem)})" for problem in _unique(broken))
        advice = "Look into the log of the server, and for a proxy between here and there that cuts or rewrites streams."
        yield Finding("error", f"Answers break: {kinds}", advice)
    if not profile.streams:
        yield Finding(
            "warning", "The server answers in one piece although a stream was asked for.", "Clients see nothing before the end."
        )
    if profile.streams and profile.finish_reason and profile.done_marker is False:
        yield Finding("note", "Streams end without [DONE].", "Harmless: the finish_reason tells that they are whole.")
    if profile.usage == "none":
        advice = "Clients see no token counts, and Codex cannot tell when to compact."
        yield Finding("warning", "Streams carry no usage, though stream_options.include_usage asks for it.", advice)


def _reasoning(profile: Profile) -> Iterator[Finding]:
    markup = markup_of(profile)
    if markup.reasoning is not None:
        text = "Reasoning comes as markup in the text: the server does not parse it."
        # Where tools need a change too, one line of advice says both.
        advice = _parser_advice(profile, markup) if profile.calls in _PARSED else ""
        yield Finding("warning", text, advice)
    elif profile.reasoning_field is None and not profile.problems:
        yield Finding("note", "No reasoning was seen.", "As it should be, unless the model is one that thinks.")
    if profile.thoughts_alone:
        advice = (
            "If the model does not think, start the server without a reasoning parser. If it thinks at times, let the "
            "gateway parse: no parsers on the server, the settings reasoning_parser and opened_thinking: 'no' here."
        )
        yield Finding("warning", "A whole answer came as reasoning, without any text.", advice)
    if profile.reasoning_field == "reasoning_content":
        yield Finding(
            "note", "Reasoning comes, and goes back, in reasoning_content.", "The setting reasoning_field says so below."
        )
    if profile.reasoning_history is False:
        yield Finding("warning", "Reasoning of earlier turns is refused.", "The setting reasoning_field: none leaves it out.")


def _calls(profile: Profile) -> Iterator[Finding]:
    markup = markup_of(profile)
    if profile.calls == "refused":
        text = f"Tools are refused: {profile.calls_refusal}"
        level: Level = "warning" if markup.tools is not None else "error"
        yield Finding(level, text, _parser_advice(profile, markup))
    elif profile.calls == "none" and markup.tools is not None:
        text = f"Tool calls come as markup in the text ({markup.tools}): the server does not parse them."
        yield Finding("warning", text, _parser_advice(profile, markup))
    elif profile.calls == "none":
        advice = "Either the model cannot call tools, or the server's parser does not fit it. Coding agents need tools."
        yield Finding("warning", "The model made no tool call when asked for one.", advice)
    elif profile.calls == "forced":
        advice = "The server is able; the model is not inclined. Coding agents need one that is."
        yield Finding("warning", "The model called a tool only when it was forced to.", advice)
    elif profile.calls == "legacy":
        yield Finding("note", "Calls come in the old field function_call.", "One call at a time; the gateway translates them.")
    if profile.call_arguments_valid is False:
        advice = "The gateway passes them on as they are; a parser that fits the model may help."
        yield Finding("warning", "The arguments of a call were no JSON object.", advice)
    if profile.interleaved_calls:
        yield Finding("note", "Parallel calls come interleaved.", "The gateway puts them one after another.")
    if leaks(profile):
        advice = "Check that the parsers fit the model; the setting rescue: true turns what gets through into items."
        yield Finding("warning", "The server parses, but markup gets through to the text.", advice)


def _parser_advice(profile: Profile, markup: Markup) -> str:
    """What to change on the server; and that the gateway can do it instead."""
    flags = _flags(profile, markup)
    here = "Or let the gateway parse, with the settings below." if markup.reasoning or markup.tools else ""
    return f"{flags} {here}".strip()


def _flags(profile: Profile, markup: Markup) -> str:
    if profile.server == "llamacpp":
        return "Start the server with --jinja --reasoning-format auto."
    if profile.server == "ollama":
        return "The model's template has no tools or no thinking: take another build of the model."
    if profile.server not in ("vllm", "sglang"):
        return ""
    names = {} if profile.server == "vllm" else _SGLANG
    flags = []
    if profile.calls not in _PARSED:
        automatic = "--enable-auto-tool-choice " if profile.server == "vllm" else ""
        flags.append(f"{automatic}--tool-call-parser {_name(markup.tools, names)}")
    if markup.reasoning is not None:
        flags.append(f"--reasoning-parser {_name(markup.reasoning, names)}")
    return f"Start the server with {' '.join(flags)}."


def _name(parser: str | None, names: dict[str, str]) -> str:
    """The server's name for a parser; a word for one that is not known."""
    return "NAME" if parser in (None, "auto") else names.get(parser or "", parser or "")


def _limits(profile: Profile) -> Iterator[Finding]:
    if profile.max_tokens_field == "none":
        yield Finding(
            "warning", "Neither max_completion_tokens nor max_tokens limits an answer.", "max_output_tokens has no effect."
        )
    elif profile.max_tokens_field == "max_tokens":
        yield Finding("note", "Only max_tokens limits an answer.", "The setting max_tokens_field says so below.")
    if profile.overflow == "accepted":
        advice = "It seems to cut the prompt without a word: Codex will forget instead of compacting. Raise the context length."
        yield Finding("warning", "A prompt longer than the context is accepted.", advice)
    elif profile.overflow == "unclear":
        yield Finding(
            "warning", "A prompt that is too long gets an error that does not say so.", "Codex will not compact by itself."
        )
    if profile.max_length is None:
        advice = "Tell Codex in its model_context_window."
        if profile.server == "ollama":
            advice += " Ollama's default is short: set OLLAMA_CONTEXT_LENGTH."
        yield Finding("note", "The server does not tell the context length of the model.", advice)


def _rest(profile: Profile) -> Iterator[Finding]:
    refused = [name for name, accepted in profile.tolerates.items() if not accepted]
    cures = {
        "two_system": "the default system_messages: merge avoids them",
        "late_system": "the default late_developer: user avoids it",
        "developer": "the gateway sends none",
        "two_user": "user_messages: merge avoids them",
    }
    for name in refused:
        text = f"The chat template refuses: {_CONVERSATIONS[name]}."
        yield Finding("warning" if name == "two_user" else "note", text, f"Settings: {cures[name]}.")
    if profile.structured_output is False:
        yield Finding("warning", "Answers do not follow a JSON schema.", "text.format has no effect on this server.")
    if profile.error_shape == "other":
        yield Finding("note", "Errors are no JSON that the gateway knows.", "Clients see the HTTP status without a message.")
    if profile.stops is False:
        advice = "The GPU works on for nobody. Is there a proxy in between that does not close connections?"
        yield Finding("error", "Generation goes on after the client has left.", advice)


def rows(profile: Profile) -> Iterator[Row]:
    """The abilities, for a table."""
    markup = markup_of(profile)
    length = f"{profile.max_length} tokens" if profile.max_length else "not told"
    yield Row("model", f"{profile.model}, {length}", None)
    if profile.refusal is not None:
        return
    yield Row("stream", "yes" if profile.streams else "no", profile.streams)
    field = f"parsed, in {profile.reasoning_field}" if profile.reasoning_field else None
    yield Row(
        "reasoning", field or (f"raw ({markup.reasoning})" if markup.reasoning else "none seen"), markup.reasoning is None
    )
    calls = f"raw ({markup.tools})" if markup.tools else profile.calls or "not known"
    yield Row("tool calls", calls, profile.calls in _PARSED)
    yield Row("parallel calls", _said(profile.parallel_calls, no="one call came"), None)
    yield Row("interleaved calls", _said(profile.interleaved_calls), None)
    yield Row("usage in the stream", profile.usage or "not known", profile.usage != "none")
    yield Row("token ids", _said(profile.token_ids), None)
    yield Row("tokenize", profile.tokenize or "not known", None)
    yield Row("structured output", _said(profile.structured_output), profile.structured_output is not False)
    yield Row("patterns of arguments", _PATTERNS.get(profile.pattern_reading or "", "not enforced"), None)
    limit = profile.max_tokens_field
    yield Row("limit of an answer", limit or "not known", limit not in ("none", None))
    for name, accepted in profile.tolerates.items():
        yield Row(_CONVERSATIONS[name], "accepted" if accepted else "refused", accepted or None)
    yield Row("errors", _SHAPES.get(profile.error_shape or "", "not known"), profile.error_shape != "other")
    yield Row("overlong prompt", profile.overflow or "not known", {"recognised": True, None: None}.get(profile.overflow, False))
    yield Row("stops with its client", _said(profile.stops), profile.stops is not False)


def _said(value: bool | None, no: str = "no") -> str:
    return "not known" if value is None else "yes" if value else no


def _unique(broken: dict[str, str]) -> list[str]:
    return list(dict.fromkeys(broken.values()))
