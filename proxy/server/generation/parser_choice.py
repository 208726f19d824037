"""Which parser reads the markup in a model's text, and where it begins.

The settings decide first, then the prompt of the very request (its template, or the ids of its last tokens), then what streams
and probes have shown of the model, and last its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from itertools import product
from typing import Any, Literal

import msgspec

from proxy import parsers
from proxy.backend.tokenizer.tokenizers import ModelTokenizer
from proxy.parsers import PromptEnd, template, vllm
from proxy.probing.known_models import UNKNOWN, KnownModel, KnownModels
from proxy.request import Policy
from proxy.request.parameters.table import has_grammar
from proxy.settings import PARSER_SETTINGS, ModelParsers, Settings, suggestion
from proxy.stream.reading.leading_thought import LeadingThoughtDetector
from proxy.stream.reading.markup import Evidence, Markup
from proxy.stream.tape import MarkupOf
from proxy.wire.errors import ApiError

_OFF = frozenset({"none", ""})
_THINKING_OPEN = {"auto": None, "yes": True, "no": False}
# A tokenizer leaves special tokens out of its output unless asked. They look like this.
_SPECIAL = ("<|", "<｜", "[TOOL", "[ARGS", "[THINK", "[/THINK", "<ifm|", "<tool_calls:", "<think:")

_NO_TEMPLATE = "tokenizer: the parser template is read from the model's tokenizer: give its folder or name"

VllmParsers = Mapping[tuple[str, str], vllm.VllmParsers]


class AnswerStart(msgspec.Struct, frozen=True):
    """How the answer to one request is read, decided before it begins.

    `reading`: the backend parses ("parsed"); it is not known to, so that a thought at the beginning is watched for ("watched");
    its text is raw; or it parses and leaks ("rescued"). `opened`: the text begins inside reasoning; None for the default of the
    family. `decided_by`: what says so; what is known of the "model" is the weakest. `prompt_end` reads it in the ids of the
    prompt. `reopens`: a thought may begin behind text."""

    reading: Literal["parsed", "watched", "raw", "rescued"] = "parsed"
    reasoning: str = "none"
    tools: str = "none"
    opened: bool | None = None
    decided_by: Literal["setting", "grammar", "prompt", "model"] = "model"
    prompt_end: PromptEnd | None = None
    reopens: bool = True


@dataclass(frozen=True, slots=True)
class _ParserSettings:
    """The settings of the parsers for some models. `watches`: none is given, so that the streams may show what is needed."""

    reasoning: str
    tools: str
    thinking_open: bool | None
    rescue: bool
    watches: bool

    @property
    def raw(self) -> bool:
        """The backend sends raw markup."""
        return self.reasoning not in _OFF or self.tools not in _OFF

    @property
    def uses_vllm(self) -> bool:
        """vLLM's own parsers read the markup."""
        return vllm.is_vllm(self.reasoning) or vllm.is_vllm(self.tools)

    @property
    def uses_template(self) -> bool:
        """The checkpoint's own response template tells how the markup is read."""
        return self.reasoning in template.NAMES or self.tools in template.NAMES

    def names(self, model: str) -> tuple[str, str]:
        """Return the names of both formats; `auto` is replaced by what the model's name tells, if it tells anything."""
        reasoning = self.reasoning
        tools = self.tools
        if "auto" in (reasoning, tools):
            found = parsers.detect(model, None)
            reasoning = found[0] or "auto" if reasoning == "auto" else reasoning
            tools = found[1] or "auto" if tools == "auto" else tools
        return reasoning, tools


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
        given: frozenset[str] | None = None,
        known: KnownModels | None = None,
    ) -> None:
        """Take the settings. `policy` is that of the translation, to which is added what the parsers need. `tokenizer` tells
        markers from text that looks like them, where token ids come. `own_name` maps a client's name of a model to the
        backend's, which may tell its family. `given` are the names of the settings that somebody gave, as opposed to those
        that were found out. `known` is what is known of each model. Raise `ValueError` for the name of a parser that does not
        exist."""
        self._settings = settings
        self._given = frozenset(settings.model_fields_set) if given is None else given
        self._known = KnownModels() if known is None else known
        self._policy = policy
        self._tokenizer = tokenizer
        self._own_name = own_name
        self._vllm = vllm_parsers or {}
        self._all, self._some = _parser_settings(settings, self._given)
        self._template = _response_template([self._all, *(found for _, found in self._some)], tokenizer)
        self._own_prompt_end = _prompt_end(tokenizer)

    def changed(self, settings: Settings, policy: Policy) -> ParserChoice:
        """Return the choice for settings that were found out, with what was loaded for these. Raise `ValueError` as the
        constructor does."""
        return self._with(settings, policy, self._own_name)

    def with_names(self, own_name: Callable[[str], str]) -> ParserChoice:
        """Return the same choice, which knows the backends' names of models."""
        return self._with(self._settings, self._policy, own_name)

    def _with(self, settings: Settings, policy: Policy, own_name: Callable[[str], str]) -> ParserChoice:
        return ParserChoice(
            settings,
            policy,
            tokenizer=self._tokenizer,
            own_name=own_name,
            vllm_parsers=self._vllm,
            given=self._given,
            known=self._known,
        )

    @property
    def any_raw(self) -> bool:
        """The backend sends raw markup for some model."""
        return self._all.raw or any(found.raw for _, found in self._some)

    def raw(self, model: str) -> bool:
        """Tell whether the backend sends raw markup for this model."""
        return self._settings_for(model).raw

    def policy(self, model: str) -> Policy:
        """Return how requests for a model are translated."""
        found = self._settings_for(model)
        if not found.raw:
            return self._policy
        special = found.uses_vllm or found.uses_template or _has_special_tokens(*found.names(self._own_name(model)))
        return replace(self._policy, raw_tools=found.tools not in _OFF, special_tokens=special)

    async def start(self, body: Mapping[str, Any]) -> AnswerStart:
        """Decide how the answer to a chat request is read."""
        start = self.start_without_template(body)
        chat = self._tokenizer.template if self._tokenizer else None
        if chat is None or start.reading != "raw" or start.decided_by != "model" or start.reasoning in _OFF:
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
        model = body["model"]
        found = self._settings_for(model)
        known = self._known.get(self._own_name(model), UNKNOWN)
        if found.raw:
            return self._raw_start(body, found, known)
        if found.rescue:
            return AnswerStart("rescued", "auto", "auto", opened=False, decided_by="setting")
        if not found.watches or (known.field and not known.marked):
            return AnswerStart()
        opened = not has_grammar(body) and _opened(body, known, None)
        return AnswerStart("raw" if opened else "watched", "auto", opened=opened)

    def _raw_start(self, body: Mapping[str, Any], found: _ParserSettings, known: KnownModel) -> AnswerStart:
        reasoning, tools = (found.reasoning, found.tools) if found.uses_vllm else found.names(self._own_name(body["model"]))
        if found.watches and known.field and not known.marked:
            reasoning = "none"
        start = AnswerStart("raw", reasoning, tools)
        if has_grammar(body):  # which a server that does not parse applies from the first token on
            return msgspec.structs.replace(start, opened=False, decided_by="grammar")
        if found.thinking_open is not None:
            opened = found.thinking_open and not _thinking_is_off(body)
            return msgspec.structs.replace(start, opened=opened, decided_by="setting")
        default = False if found.watches else None
        prompt_end = self._own_prompt_end or known.prompt_end
        return msgspec.structs.replace(start, opened=_opened(body, known, default), prompt_end=prompt_end)

    def markup(self, body: Mapping[str, Any], start: AnswerStart) -> Markup | LeadingThoughtDetector | None:
        """Return what reads the answer to a chat request; None where the backend parses it.

        Without tools in the request there is nothing to call: what looks like a call is text then, as it is for vLLM's
        parsers."""
        if start.reading == "parsed":
            return None
        reasoning = start.reasoning
        tools = start.tools
        schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in body.get("tools", ())}
        new_parser: Any
        if vllm.is_vllm(reasoning) or vllm.is_vllm(tools):
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
            return LeadingThoughtDetector(
                parsers.reasoning_markers(reasoning)[0], partial(Markup, new_parser, thinking_open=False)
            )
        prompt_opens = None
        if start.prompt_end is not None and start.decided_by == "model" and reasoning not in _OFF:
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
        return lambda start: self.markup(body, msgspec.convert(start, AnswerStart))

    def second_readings(self, body: Mapping[str, Any]) -> list[AnswerStart]:
        """Return how the raw text of a backend that parses by itself may be read as that does, the likely ways first: which
        one is right, and whether the prompt opens a thought, shows by what the backend has said."""
        reasoning, tools = parsers.detect(self._own_name(body["model"]), None)
        families = dict.fromkeys([(reasoning or "auto", tools or "auto"), ("auto", "auto")])
        found: list[AnswerStart] = []
        for names in families:
            for reopens, opened in product((False, True), (True, False)):  # vLLM's parsers know one thought, before the text
                found.append(AnswerStart("raw", *names, opened=opened, decided_by="setting", reopens=reopens))
        return found

    def learn(self, body: Mapping[str, Any], start: AnswerStart, seen: Evidence, *, completed: bool) -> None:
        """Remember what the answer to a chat request has shown of its model. `completed`: the model stopped by itself."""
        if start.reading == "rescued":
            return
        name = self._own_name(body["model"])
        known = self._known.get(name, UNKNOWN)
        wish = _thinking_wish(body)
        news = KnownModel(field=seen.field, marked=seen.first_marker == "open" and wish is not False)
        if start.decided_by == "model" and not (seen.prompt_known or has_grammar(body)):
            opened = None
            if seen.first_marker == "open" or (seen.first_marker == "none" and seen.thought and completed):
                opened = False
            elif seen.first_marker == "close" and not known.marked:
                opened = True
            if wish is None:
                news = msgspec.structs.replace(news, opens=opened)
            elif wish:
                news = msgspec.structs.replace(news, opens_if_asked=opened)
        if news != UNKNOWN:
            self._known.learn(name, news)

    def _template_parser(self, reasoning: str, tools: str, schemas: Mapping[str, Any]) -> Any:
        """Return what makes the parser of the checkpoint's own template. Raise `ValueError` without a tokenizer."""
        if self._template is None:
            raise ValueError(_NO_TEMPLATE)
        assert self._tokenizer is not None
        return partial(
            template.TemplateParser,
            self._template,
            schemas=schemas,
            reasoning=reasoning not in _OFF,
            tools=bool(schemas) and tools not in _OFF,
            marker_ids=self._tokenizer.marker_ids(self._template.literals),
        )

    def _settings_for(self, model: str) -> _ParserSettings:
        if not self._some:
            return self._all
        for name in dict.fromkeys((model.lower(), self._own_name(model).lower())):
            for pattern, found in self._some:
                if fnmatchcase(name, pattern):
                    return found
        return self._all


def load_vllm_parsers(settings: Settings) -> VllmParsers:
    """Load the parsers of vLLM's that the settings name, if any. This takes many seconds: not for the event loop. Raise
    `ValueError`, and `VllmMissing` where vLLM is not installed."""
    everywhere, some = _parser_settings(settings, frozenset(settings.model_fields_set))
    loaded: dict[tuple[str, str], vllm.VllmParsers] = {}
    for found in {everywhere, *(found for _, found in some)}:
        if not found.uses_vllm:
            continue
        if settings.tokenizer is None:
            raise ValueError("tokenizer: vLLM's parsers need the model's tokenizer: give its folder or name")
        names = (found.reasoning, found.tools)
        loaded[names] = vllm.load(*names, settings.tokenizer)
    return loaded


def check_tokenizer(settings: Settings) -> None:
    """Raise `ValueError` where a parser needs a tokenizer that the settings do not name."""
    everywhere, some = _parser_settings(settings, frozenset(settings.model_fields_set))
    if settings.tokenizer is None and any(found.uses_template for found in (everywhere, *(found for _, found in some))):
        raise ValueError(_NO_TEMPLATE)


def _response_template(
    all_settings: Sequence[_ParserSettings], tokenizer: ModelTokenizer | None
) -> template.ResponseTemplate | None:
    """Return the template of the tokenizer's configuration, if some settings use it. Raise `ValueError` if it is of no use."""
    users = [found for found in all_settings if found.uses_template]
    if not users or tokenizer is None:
        return None
    if tokenizer.response_template is None:
        raise ValueError(f"tokenizer: the configuration in {tokenizer.file.parent} has no response_template")
    loaded = template.load(tokenizer.response_template)
    for setting, missing in (
        ("reasoning_parser", not loaded.reasons and any(found.reasoning not in _OFF for found in users)),
        ("tool_call_parser", not loaded.calls and any(found.tools not in _OFF for found in users)),
    ):
        if missing:
            raise ValueError(f"{setting}: the response_template of this tokenizer has no field for it")
    return loaded


def _parser_settings(settings: Settings, given: frozenset[str]) -> tuple[_ParserSettings, list[tuple[str, _ParserSettings]]]:
    """Return the settings for all models, and those for models whose name matches a pattern."""
    everywhere = _ParserSettings(
        settings.reasoning_parser,
        settings.tool_call_parser,
        _THINKING_OPEN[settings.opened_thinking],
        settings.rescue,
        settings.adapt and not given & PARSER_SETTINGS,
    )
    _check(everywhere, "")
    some: list[tuple[str, _ParserSettings]] = []
    for pattern, entry in settings.models.items():
        changed = _with_entry(everywhere, entry)
        _check(changed, f"models: {pattern}: ")
        some.append((pattern.lower(), changed))
    return everywhere, some


def _with_entry(everywhere: _ParserSettings, entry: ModelParsers) -> _ParserSettings:
    return _ParserSettings(
        everywhere.reasoning if entry.reasoning_parser is None else entry.reasoning_parser,
        everywhere.tools if entry.tool_call_parser is None else entry.tool_call_parser,
        everywhere.thinking_open if entry.opened_thinking is None else _THINKING_OPEN[entry.opened_thinking],
        everywhere.rescue if entry.rescue is None else entry.rescue,
        everywhere.watches and not entry.model_fields_set & PARSER_SETTINGS,
    )


def _check(found: _ParserSettings, place: str) -> None:
    """Raise `ValueError` for a parser that does not exist, with the names of those that do."""
    if found.uses_vllm:
        for setting, name in (("reasoning_parser", found.reasoning), ("tool_call_parser", found.tools)):
            if name not in _OFF and not vllm.is_vllm(name):
                raise ValueError(f"{place}{setting}: {name} and a parser of vLLM cannot be combined: name both vllm:…")
        return
    if found.uses_template:
        for setting, name in (("reasoning_parser", found.reasoning), ("tool_call_parser", found.tools)):
            if name not in _OFF and name not in template.NAMES:
                raise ValueError(f"{place}{setting}: {name} and the parser template cannot be combined: name both template")
        return
    for setting, name, known in (
        ("reasoning_parser", found.reasoning, parsers.REASONING),
        ("tool_call_parser", found.tools, parsers.TOOLS),
    ):
        if parsers.base_name(name) not in known and name not in _OFF and name != "auto":
            names = ", ".join(["auto", "none", "template", *sorted(known)])
            raise ValueError(f"{place}{setting}: there is no {name}{suggestion(name, known)}; there are: {names}")


def _prompt_end(tokenizer: ModelTokenizer | None) -> PromptEnd | None:
    """Return how the end of a prompt is read by the gateway's own tokenizer."""
    if tokenizer is None:
        return None
    found = tokenizer.marker_ids(parsers.reasoning_markers("auto")[0])
    blank = (tokenizer.encode(space).ids for space in ("\n", "\n\n", " "))
    return PromptEnd(found, frozenset(ids[0] for ids in blank if len(ids) == 1)) if found else None


def _family(reasoning: str) -> str:
    """Return the format whose markers show in prompts; any for a parser of vLLM's, or the template of a checkpoint."""
    return "auto" if vllm.is_vllm(reasoning) or reasoning in template.NAMES else reasoning


def _opened(body: Mapping[str, Any], known: KnownModel, default: bool | None) -> bool | None:
    """Tell whether the prompt opens a thought, by what is known of the model."""
    wish = _thinking_wish(body)
    if wish is False:
        return False
    learned = known.opens_if_asked if wish else known.opens
    return default if learned is None else learned


def _thinking_wish(body: Mapping[str, Any]) -> bool | None:
    """Tell whether the request turns thinking on or off in the chat template; None if it leaves that open."""
    kwargs = body.get("chat_template_kwargs")
    if not isinstance(kwargs, dict):
        return None
    wishes = (kwargs.get("enable_thinking"), kwargs.get("thinking"))
    return False if False in wishes else True if True in wishes else None


def _thinking_is_off(body: Mapping[str, Any]) -> bool:
    return _thinking_wish(body) is False


@lru_cache(maxsize=64)
def _has_special_tokens(reasoning: str, tools: str) -> bool:
    return any(marker.startswith(_SPECIAL) for marker in parsers.markers(reasoning, tools))
