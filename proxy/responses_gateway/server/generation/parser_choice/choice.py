"""Which parser reads the markup in a model's text, and where it begins.

The settings decide first, then the prompt of the very request (its template, or the ids of its last tokens), then what streams
and probes have shown of how the model thinks and calls, and last its name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import product
from typing import Any, Literal

import msgspec

from responses_gateway import parsers
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.parsers import PromptEnd, ThoughtTokens, template, vllm
from responses_gateway.parsers.arguments.values import ParameterTypes
from responses_gateway.probing.known_models import UNKNOWN, KnownModel, KnownModels
from responses_gateway.request import Policy
from responses_gateway.request.parameters.parameters import has_grammar
from responses_gateway.request.policy import CallIds
from responses_gateway.server.generation.parser_choice.settings import (
    NO_TEMPLATE,
    OFF,
    ParserSettings,
    VllmParsers,
    parser_settings,
    response_template,
)
from responses_gateway.settings import Settings, entry_for
from responses_gateway.stream.continuation.ledger import PartialAnswer
from responses_gateway.stream.reading.leading_thought import LeadingThoughtDetector, MarkupOf
from responses_gateway.stream.reading.markup import Evidence, Markup
from responses_gateway.wire.deltas import Text, ToolArguments, ToolCall
from responses_gateway.wire.errors import ApiError

# A tokenizer leaves special tokens out of its output unless asked. They look like this.
_SPECIAL = ("<|", "<｜", "[TOOL", "[ARGS", "[THINK", "[/THINK", "<ifm|", "<tool_calls:", "<think:")
_NOTHING_SEEN = Evidence()


# Parts of the names of models whose templates read the ids of calls -> how these have to look.
_CALL_IDS: dict[str, CallIds] = {"kimi": "numbered", "stral": "nine", "mixtral": "nine"}
_CALL_ID_NAMES = re.compile("|".join(_CALL_IDS), re.ASCII | re.IGNORECASE)
# Characters of an answer that is searched for calls when it has ended, because everything else waits meanwhile.
_LONGEST_TEXT = 50_000


@lru_cache(maxsize=1024)  # the names are those of the models, for each request
def call_ids(name: str) -> CallIds:
    """Return how the ids of calls have to look for the model of this name. Other templates do not mind either form."""
    part = _CALL_ID_NAMES.search(name)
    return "keep" if part is None else _CALL_IDS[part[0].lower()]


class AnswerStart(msgspec.Struct, frozen=True):
    """How the answer to one request is read, decided before it begins.

    `reading`: the backend parses ("parsed"); it is not known to, so that a thought at the beginning is watched for ("watched");
    its text is raw; or it parses and leaks ("rescued"). `opened`: the text begins inside reasoning; None for the default of the
    family. `decided_by`: what says so; what is known of the "model" is the weakest. `prompt_end` reads it in the ids of the
    prompt. `reopens`: a thought may begin after text. `thoughts`: by which the tokens of reasoning are counted in ids."""

    reading: Literal["parsed", "watched", "raw", "rescued"] = "parsed"
    reasoning: str = "none"
    tools: str = "none"
    opened: bool | None = None
    decided_by: Literal["setting", "grammar", "prompt", "model"] = "model"
    prompt_end: PromptEnd | None = None
    reopens: bool = True
    thoughts: ThoughtTokens | None = None


_PARSED = AnswerStart()


class ParserChoice:
    """The parsers for each model. Its settings never change; what is known of the models grows."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        *,
        tokenizer: ModelTokenizer | None = None,
        own_name: Callable[[str], str] = str,
        vllm_parsers: VllmParsers | None = None,
        explicit_names: frozenset[str] | None = None,
        known: KnownModels | None = None,
    ) -> None:
        """Take the settings. `policy` is that of the translation, to which is added what the parsers need. `tokenizer` tells
        markers from text that looks like them, where token ids come. `own_name` maps a client's name of a model to the
        backend's, which may tell its family. `explicit_names`: of the settings that somebody gave, as opposed to those
        that were found out. `known` is what is known of each model. Raise `ValueError` for an unknown parser."""
        self._settings = settings
        self._explicit_names = frozenset(settings.model_fields_set) if explicit_names is None else explicit_names
        self.known_models = KnownModels() if known is None else known
        self._policy = policy
        self._tokenizer = tokenizer
        self._own_name = own_name
        self._vllm = vllm_parsers or {}
        self._all, self._some = parser_settings(settings, self._explicit_names)
        self._template = response_template([self._all, *self._some.values()], tokenizer)
        # The backend sends raw markup for some model.
        self.any_raw = self._all.raw or any(some_settings.raw for some_settings in self._some.values())
        self._openings = parsers.reasoning_markers("auto")[0]
        self._own_prompt_end = _prompt_end(tokenizer)
        self._own_thoughts = (
            None if tokenizer is None else parsers.thought_tokens(tokenizer.marker_ids(parsers.thought_markers()))
        )

    def changed(self, settings: Settings, policy: Policy) -> ParserChoice:
        """Return the choice for settings that were found out, with what was loaded for these. Raise `ValueError` as the
        constructor does."""
        return self._with(settings, policy, self._own_name, self._explicit_names)

    def replaced(self, settings: Settings, policy: Policy) -> ParserChoice:
        """Do the same for settings that somebody gave."""
        return self._with(settings, policy, self._own_name, None)

    def with_names(self, own_name: Callable[[str], str]) -> ParserChoice:
        """Return the same choice, which knows the backends' names of models."""
        return self._with(self._settings, self._policy, own_name, self._explicit_names)

    def _with(
        self, settings: Settings, policy: Policy, own_name: Callable[[str], str], explicit_names: frozenset[str] | None
    ) -> ParserChoice:
        return ParserChoice(
            settings,
            policy,
            tokenizer=self._tokenizer,
            own_name=own_name,
            vllm_parsers=self._vllm,
            explicit_names=explicit_names,
            known=self.known_models,
        )

    def raw(self, model: str) -> bool:
        """Tell whether the backend sends raw markup for this model."""
        return self._settings_for(model).raw

    def policy(self, model: str) -> Policy:
        """Return how requests for a model are translated."""
        settings = self._settings_for(model)
        policy = self._policy
        own_name = self._own_name(model)
        form = call_ids(own_name)
        if form != "keep":
            policy = msgspec.structs.replace(policy, call_ids=form)
        if own_name in self.known_models and self.known_models[own_name].forms:
            policy = msgspec.structs.replace(policy, template_forms=self.known_models[own_name].forms)
        if settings.template_variables:
            policy = msgspec.structs.replace(policy, template_variables=settings.template_variables)
        if not settings.raw:
            return policy
        special = settings.uses_vllm or settings.uses_template or _has_special_tokens(*settings.names(self._own_name(model)))
        return msgspec.structs.replace(policy, raw_tools=settings.tools not in OFF, special_tokens=special)

    async def start(self, body: Mapping[str, Any]) -> AnswerStart:
        """Decide how the answer to a chat request is read."""
        start = self.start_without_template(body)
        chat = self._tokenizer.template if self._tokenizer else None
        if chat is None or start.reading != "raw" or start.decided_by != "model" or start.reasoning in OFF:
            return start
        response = self._template
        try:
            if start.reasoning in template.NAMES and response is not None:
                opened = await asyncio.to_thread(lambda: template.opens_reasoning(response, chat.render(body)))
            else:
                opens, closes = parsers.reasoning_markers(_family(start.reasoning))
                opened = await asyncio.to_thread(chat.thinking_open, body, opens, closes)
        except ApiError:
            return start  # with pictures, say, which the template of the backend knows more about
        return msgspec.structs.replace(start, opened=opened, decided_by="prompt")

    def start_without_template(self, body: Mapping[str, Any]) -> AnswerStart:
        """Decide the same by what is known already."""
        known = self.known_models.get(self._own_name(body["model"]), UNKNOWN)
        return msgspec.structs.replace(self._start(body, known), thoughts=self._own_thoughts or known.thoughts)

    def _start(self, body: Mapping[str, Any], known: KnownModel) -> AnswerStart:
        settings = self._settings_for(body["model"])
        if settings.raw:
            return self._raw_start(body, settings, known)
        if settings.rescue:
            return AnswerStart("rescued", "auto", "auto", opened=False, decided_by="setting")
        if not settings.watches:
            return AnswerStart()
        tools = _tools_in_text(body, known, "none")
        if known.field and not known.marked:
            return AnswerStart("parsed" if tools in OFF else "raw", "none", tools, opened=False)
        opened = not has_grammar(body) and opens_thought(body, known, None)
        return AnswerStart("raw" if opened or tools not in OFF else "watched", "auto", tools, opened=opened)

    def _raw_start(self, body: Mapping[str, Any], settings: ParserSettings, known: KnownModel) -> AnswerStart:
        names = (settings.reasoning, settings.tools) if settings.uses_vllm else settings.names(self._own_name(body["model"]))
        reasoning, tools = names
        if settings.watches and known.field and not known.marked:
            reasoning = "none"
        if settings.watches:
            tools = _tools_in_text(body, known, tools)
        start = AnswerStart("raw", reasoning, tools)
        if has_grammar(body):  # which a server that does not parse applies from the first token on
            return msgspec.structs.replace(start, opened=False, decided_by="grammar")
        if settings.thinking_open is not None:
            opened = settings.thinking_open and thinking_wish(body) is not False
            return msgspec.structs.replace(start, opened=opened, decided_by="setting")
        default = False if settings.watches else None
        learned = known if settings.learns else UNKNOWN
        prompt_end = self._own_prompt_end or known.prompt_end
        return msgspec.structs.replace(start, opened=opens_thought(body, learned, default), prompt_end=prompt_end)

    def markup(self, body: Mapping[str, Any], start: AnswerStart) -> Markup | LeadingThoughtDetector | None:
        """Return what reads the answer to a chat request; None where the backend parses it.

        Without tools in the request there is nothing to call: what looks like a call is text then, as in vLLM."""
        if start.reading == "parsed":
            return None
        reasoning = start.reasoning
        tools = start.tools
        schemas = _schemas(body)
        new_parser: Any
        if self._vllm and (vllm.is_vllm(reasoning) or vllm.is_vllm(tools)):
            kwargs = body.get("chat_template_kwargs")
            new_parser = partial(self._vllm[reasoning, tools].parser, schemas=schemas, template_kwargs=kwargs)
        elif reasoning in template.NAMES or tools in template.NAMES:
            new_parser = self._template_parser(reasoning, tools, schemas)
        else:
            if self._tokenizer is not None:
                tokens = self._tokenizer.special_tokens
                reasoning = parsers.fitted(reasoning, tokens)
                tools = parsers.fitted(tools, tokens)
            new_parser = partial(
                parsers.parser,
                reasoning,
                tools if schemas else "none",
                schemas=schemas,
                marker_ids=self._tokenizer.marker_ids(parsers.markers(reasoning, tools)) if self._tokenizer else None,
                reopens=start.reopens,
            )
        if start.reading == "watched":
            return LeadingThoughtDetector(self._openings, partial(Markup, new_parser, thinking_open=False))
        prompt_opens = None
        if start.prompt_end is not None and start.decided_by == "model" and reasoning not in OFF:
            openings = parsers.reasoning_markers(_family(reasoning))[0]
            prompt_opens = partial(start.prompt_end.opens, openings=openings)
        return Markup(
            new_parser,
            prompt_known=start.decided_by == "prompt",
            thinking_open=start.opened,
            prompt_opens=prompt_opens,
            rescue=start.reading == "rescued",
        )

    def markup_of(self, body: Mapping[str, Any]) -> MarkupOf:
        """Return what makes the same of an `AnswerStart` as plain data."""
        return lambda start: self.markup(body, _as_start(start))

    def reads_all(self, body: Mapping[str, Any], start: object) -> bool:
        """Tell whether the parser that reads the text of an answer finds all the calls in it: the backend parses none."""
        return _as_start(start).tools not in OFF or not _backend_parses_calls(body)

    def second_readings(self, body: Mapping[str, Any], beginning: PartialAnswer) -> list[list[AnswerStart]]:
        """Return how the raw text of an answer may be read as it was read so far, partly by the backend itself: likely ways,
        and others if none of those fits. Which one is right, and whether the prompt opens a thought, shows by what was said.

        What a parser of ours has looked for in the text, it looks for again: thoughts also behind text. Without one, the
        backend's own knows a single thought, before the text. Calls are parsed if ours looked for them, or the request lets the
        backend do so."""
        start = _as_start(beginning.start)
        reasoning, tools = parsers.detect(self._own_name(body["model"]), None)
        reads_thoughts = beginning.reads and start.reasoning not in OFF
        reads_calls = beginning.reads and start.tools not in OFF
        reasoning = start.reasoning if reads_thoughts else reasoning or "auto"
        tools = start.tools if reads_calls else tools or "auto"
        calls = reads_calls or _backend_parses_calls(body)
        likely = [(reasoning, tools), ("auto", "auto"), ("none", tools)]
        if not calls:
            likely = [(thoughts, "none") for thoughts, _ in likely]
        other = "none" if calls else "auto"
        unlikely = [("auto", other), ("none", other)]  # the backend's parser for calls does not fit the model, say
        return [_ways_to_read(names, reopens=reads_thoughts) for names in (likely, unlikely)]

    def learn_calls(self, body: Mapping[str, Any], start: AnswerStart, output: Sequence[str]) -> None:
        """Remember what the completed output of the answer to a chat request, the JSON of its items, has shown of how its model
        calls: where no parser is named, and none was at work."""
        name = self._own_name(body["model"])
        known = self.known_models.get(name, UNKNOWN)
        if (
            not body.get("tools")
            or start.tools not in OFF
            or known.calls_field
            or not self._settings_for(body["model"]).watches
        ):
            return
        news = shown_by_calls(body, known, output)
        if news != UNKNOWN:
            self.known_models.learn(name, news)

    def learn(self, body: Mapping[str, Any], start: AnswerStart, evidence: Evidence, *, completed: bool) -> None:
        """Remember what the answer to a chat request has shown of its model. `completed`: the model stopped by itself."""
        if start.reading == "rescued" or evidence == _NOTHING_SEEN or not self._settings_for(body["model"]).learns:
            return
        name = self._own_name(body["model"])
        known = self.known_models.get(name, UNKNOWN)
        news = shown_by(body, known, evidence, completed=completed, decided=start.decided_by != "model")
        if news != UNKNOWN:
            self.known_models.learn(name, news)

    def _template_parser(self, reasoning: str, tools: str, schemas: Mapping[str, Any]) -> Any:
        """Return what makes the parser of the checkpoint's own template. Raise `ValueError` without a tokenizer."""
        if self._template is None:
            raise ValueError(NO_TEMPLATE)
        return partial(
            template.TemplateParser,
            self._template,
            schemas=schemas,
            reasoning=reasoning not in OFF,
            tools=bool(schemas) and tools not in OFF,
        )

    def _settings_for(self, model: str) -> ParserSettings:
        if not self._some:
            return self._all
        return entry_for(self._some, model, self._own_name(model)) or self._all


def _as_start(start: object) -> AnswerStart:
    """Return how an answer is read, which may be plain data; None is what nobody noted."""
    return _PARSED if start is None else msgspec.convert(start, AnswerStart)


def _backend_parses_calls(body: Mapping[str, Any]) -> bool:
    """Tell whether the backend itself parses the calls in an answer: vLLM refuses tools without a parser for them, unless none
    may be called."""
    return bool(body.get("tools")) and body.get("tool_choice") != "none"


def _ways_to_read(names: Iterable[tuple[str, str]], *, reopens: bool) -> list[AnswerStart]:
    """Return the ways to read raw text with each of these pairs of parsers. `reopens`: a thought may begin after text."""
    ways: list[AnswerStart] = []
    for reasoning, tools in dict.fromkeys(names):
        start = AnswerStart("raw", reasoning, tools, opened=False, decided_by="setting")
        if reasoning in OFF:
            ways.append(start)
            continue
        for again, opened in product((reopens, not reopens), (True, False)):
            ways.append(msgspec.structs.replace(start, opened=opened, reopens=again))
    return ways


def _schemas(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the tools of a chat request, by name."""
    if "tools" not in body:
        return {}
    return {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in body["tools"]}


def _tools_in_text(body: Mapping[str, Any], known: KnownModel, tools: str) -> str:
    """Return the parser for the calls in a model's text: `tools`, or any if that is none and earlier answers had calls."""
    looks = tools in OFF and "tools" in body  # else there is nothing to call
    return "auto" if looks and known.writes_calls and not has_grammar(body) else tools


def _prompt_end(tokenizer: ModelTokenizer | None) -> PromptEnd | None:
    """Return how the end of a prompt is read by the gateway's own tokenizer."""
    if tokenizer is None:
        return None
    marker_ids = tokenizer.marker_ids(parsers.reasoning_markers("auto")[0])
    blank = (tokenizer.encode(space).ids for space in ("\n", "\n\n", " "))
    return PromptEnd(marker_ids, frozenset(ids[0] for ids in blank if len(ids) == 1)) if marker_ids else None


def _family(reasoning: str) -> str:
    """Return the format whose markers show in prompts; any for a parser of vLLM's, or the template of a checkpoint."""
    return "auto" if vllm.is_vllm(reasoning) or reasoning in template.NAMES else reasoning


@lru_cache(maxsize=64)
def _has_special_tokens(reasoning: str, tools: str) -> bool:
    return any(marker.startswith(_SPECIAL) for marker in parsers.markers(reasoning, tools))


def shown_by(body: Mapping[str, Any], known: KnownModel, evidence: Evidence, *, completed: bool, decided: bool) -> KnownModel:
    """Return what the answer to a chat request has shown of its model, of which so much is `known`. `completed`: the model
    stopped by itself. `decided`: how the answer was read was decided by something stronger than what is known of the model, so
    that it shows nothing of whether the prompt opens a thought."""
    wish = thinking_wish(body)
    news = KnownModel(field=evidence.field, marked=evidence.first_marker == "open" and wish is not False)
    if decided or evidence.prompt_known or has_grammar(body):
        return news
    opened = None
    if evidence.first_marker == "open" or (evidence.first_marker == "none" and evidence.thought and completed):
        opened = False
    elif evidence.first_marker == "close" and not known.marked:
        opened = True
    if wish is None:
        return msgspec.structs.replace(news, opens=opened)
    return msgspec.structs.replace(news, opens_if_asked=opened) if wish else news


def shown_by_calls(body: Mapping[str, Any], known: KnownModel, output: Sequence[str]) -> KnownModel:
    """Return what a completed output, as the JSON of its items, has shown of how its model calls, while no parser of ours
    looked for calls."""
    items = [msgspec.json.decode(item) for item in output]
    if any(item["type"] not in ("message", "reasoning") for item in items):
        return KnownModel(calls_field=True)
    text = "".join(part.get("text", "") for item in items if item["type"] == "message" for part in item["content"])
    return KnownModel(calls_written=min(known.calls_written + 1, 2) if ends_with_call(body, text) else 0)


def ends_with_call(body: Mapping[str, Any], text: str) -> bool:
    """Tell whether a text ends with calls that mean to be made, and are not quoted: they begin on a line of their own, need no
    repair, are for offered tools, with arguments that these take, and nothing follows them."""
    schemas = _schemas(body)
    opening = _opening().search(text)
    if opening is None or not schemas or len(text) > _LONGEST_TEXT:
        return False
    if text[: opening.start()].rstrip(" \t")[-1:] not in ("", "\n"):
        return False
    parser = parsers.parser("auto", "auto", schemas=schemas, thinking_open=False)
    deltas = [*parser.feed(text), *parser.finish("stop")]
    calls = [delta for delta in deltas if isinstance(delta, ToolCall)]
    if not calls or parser.repairs or any(isinstance(delta, Text) for delta in deltas[deltas.index(calls[0]) :]):
        return False
    written = {call.index: "" for call in calls}
    for delta in deltas:
        if isinstance(delta, ToolArguments):
            written[delta.index] += delta.text
    return all(_takes(schemas.get(call.name), written[call.index]) for call in calls)


def _takes(schema: Mapping[str, Any] | None, arguments: str) -> bool:
    """Tell whether the parameters of a tool have the names of these arguments, and none that is required is missing."""
    try:
        members = msgspec.json.decode(arguments)
    except (ValueError, RecursionError):
        return False
    if schema is None or not isinstance(members, dict):
        return False
    parameters = ParameterTypes(schema)
    return parameters.required <= members.keys() <= parameters.properties.keys()


@cache
def _opening() -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, parsers.call_openings())))


def opens_thought(body: Mapping[str, Any], known: KnownModel, default: bool | None) -> bool | None:
    """Tell whether the prompt opens a thought, by what is known of the model."""
    wish = thinking_wish(body)
    if wish is False:
        return False
    learned = known.opens_if_asked if wish else known.opens
    return default if learned is None else learned


def thinking_wish(body: Mapping[str, Any]) -> bool | None:
    """Tell whether the request turns thinking on or off in the chat template; None if it leaves that open."""
    kwargs = body.get("chat_template_kwargs")
    if type(kwargs) is not dict:
        return None
    wishes = (kwargs.get("enable_thinking"), kwargs.get("thinking"))
    return False if False in wishes else True if True in wishes else None
