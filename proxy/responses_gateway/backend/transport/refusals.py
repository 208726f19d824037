"""What the body of a refused request says about a field: whether it refuses it, and whether for its name or for its value.

Servers name a field in a sentence, in quotes, or by a path in one of many notations; near it stands a word that refuses."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from responses_gateway.wire.errors import searched_text

# The server does not know a field, or not this value of it.
Why: TypeAlias = Literal["name", "value"]

_PLACES = 50  # places of one name that are looked at, because a refusal may quote the whole request
_REACH = 240  # how many characters before or after the name of a field a word that refuses it may stand
_PATH = 160  # how many characters before the name of a field its path may take
# Words that refuse a name: transformers ("Unexpected fields in the request: {…}"), pydantic ("Extra inputs are not permitted",
# with the place), OpenAI ("Unknown parameter", "Unrecognized request argument"), serde ("unknown field"), Google ("Cannot find
# field"), Groq ("property … is unsupported"), LiteLLM ("does not support parameters"), JSON schema ("Additional properties are
# not allowed"), Python ("got an unexpected keyword argument"), OpenRouter ("No endpoints found that support …"), protobuf ("has
# no field named"), Rails ("Unpermitted parameter"), Laravel ("is prohibited"), superstruct ("a value of type `never`").
_OF_NAMES = re.compile(
    r"\bun(?:expected|known|recogni[sz]ed|supported|permitted|specified|defined|available|implemented)|forbidden|extraneous|"
    r"prohibited|disallowed|deprecated|no longer|additional propert|type `?never\b|"
    r"\bextra[ _](?:input|field|forbidden|param|arg|key|propert|attribute)|(?:\bcan|could)(?: ?not|n't) find|"
    r"(?:\bnot|n't) (?:be |an? )?(?:currently |yet )?(?:permitted|allowed|support|accept|recogni[sz]e|known\b|exist|"
    r"implemented|expected|defined|available|contain|part of)|"
    r"\b(?:must|should|may|can|could)(?: ?not|n't) be (?:set|used|present|specified|provided|given|mapped|combined)|"
    r"\b(?:no such|has no|have no) (?:field|parameter|argument|property|key|attribute)|\bno \w+ (?:\w+ )?that supports?\b|"
    r"\b(?:not a |in)valid (?:field|parameter|argument|property|key)\b|\billegal (?:field|parameter|argument|property|key)\b|"
    r"不支持|未知|不允许|不存在",
    re.IGNORECASE,
)
# Words that refuse a value, or a field beside others.
_OF_VALUES = re.compile(
    r"invalid|\bnot\b|n't\b|\bcannot\b|\bmust\b|\bshould\b|\brequires?\b|\bonly\b|\bone of\b|out of range|incompatible|"
    r"\bconflict|\bdisabled\b|\bwrong\b|\bremove\b|\bwithout\b|无效|非法",
    re.IGNORECASE,
)
# A model that cannot be kept from thinking (OpenRouter: "Reasoning is mandatory for this endpoint and cannot be disabled.";
# Google: "Budget 0 is invalid. This model only works in thinking mode."), or cannot think, or not at this level (Ollama: "…
# does not support thinking", "think value … is not supported", "invalid reasoning value"; Google: "thinking is not …";
# Moonshot: "invalid thinking: …"; CLIProxyAPI: "level … not supported"). z.ai says no more than that a parameter is invalid.
NO_SWITCH = re.compile(
    r"\b(?:thinking|reasoning)\b[^.\n]{0,60}(?:\bmandatory|(?:not|n't) be (?:disabled|turned off)|\bmust be (?:enabled|on)\b)|"
    r"\bonly (?:\w+ ){0,2}(?:thinking|reasoning) mode|(?:not|n't) (?:support |allow )?disabl\w+ (?:thinking|reasoning)\b|"
    r"(?:not|n't) support (?:thinking|reasoning)\b|\b(?:thinking|reasoning)(?: level)? is not supported|\bthink value\b|"
    r"\binvalid (?:thinking|reasoning value)\b|\blevel \S+ not supported|Invalid API parameter, please check|API ?调用参数有误",
    re.IGNORECASE,
)
# What a server would take instead is not what it refuses: serde's "expected one of …", lists of supported parameters, "use …
# instead", "use … to". It ends with the sentence, or with the text in JSON.
_SUGGESTIONS = re.compile(
    r"\b(?:expected (?:one|any) of\b|did you mean\b|"
    r"(?:supported|allowed|valid|permitted|known|available|accepted) (?:\w+ )?"
    r"(?:fields|parameters|arguments|params|keys|properties|options)(?: are\b| include\b|:))"
    r'(?:[^\n.;"\\]|\\.|"[^"\n]{0,64}"[,\s)\]])*'
    r"|\buse\b[^\n.;]{0,80}\binstead\b|[.;] use \S+ to\b|\bin favou?r of \S+",
    re.IGNORECASE,
)
# The escapes of JSON. The last one takes those of JSON within JSON, however deep.
_ESCAPES = (("\\u0027", "'"), ("\\u0022", '"'), ("\\u0060", "`"), ("\\n", " "), ("\\r", " "), ("\\t", " "), ("\\", ""))
_WITHOUT_QUOTES = str.maketrans("", "", "'\"`")
_TOKENS = re.compile(r"[\w$*]+|[^\w$*]+")
# What joins the steps of a path, quotes aside: `messages.1.reasoning`, `messages[*].reasoning`, `/messages/1/reasoning`.
_JOINTS = frozenset({".", "/", "[", "]", "].", "][", ".["})
# The same, and what joins the names of a list: `["messages", 1, "reasoning"]`, `messages -> 1 -> reasoning`.
_WIDE_JOINTS = frozenset({"->", ">", "»", ","})
# What stands before and behind a word that is a name, though it may be plain English.
_BEFORE_NAME = re.compile(
    r"(?i)(?:\b(?:fields?|param(?:eter)?s?|arguments?|propert(?:y|ies)|attributes?|keys?):? |(?:^|: |\n))$"
)
_BEHIND_NAME = re.compile(r" (?:field|param|argument|property|attribute|key)\b| (?:at|in) \W?messages?\b", re.IGNORECASE)
_PHRASE_END = re.compile(r"""$|["',:\]})\n]|\.(?!\w)""")
# Steps that lead to the request itself.
_REQUEST = frozenset({
    "body", "request", "json", "payload", "data", "params", "parameters", "parameter", "property", "extra_body", "obj", "input",
    "$", "*",
})  # fmt: skip


class RefusedRequest(NamedTuple):
    """The body of a refused request as text, and where its words begin that refuse a name, or a value."""

    text: str
    of_names: Sequence[int]
    of_values: Sequence[int]

    def refuses(self, path: str, name: str) -> Why | None:
        """Tell why the field of this name is refused that stands where `path` leads (`messages[].reasoning`, whatever its last
        step is); None if it is not."""
        why: Why | None = None
        for start in self._places(path, name):
            if _near(self.of_names, start):
                return "name"
            if _near(self.of_values, start):
                why = "value"
        return why

    def mentions(self, name: str) -> Why | None:
        """Tell whether the name stands near a word that refuses, however it is written."""
        for match in re.finditer(rf"\b{name.replace('_', '[_ .]')}\b", self.text, re.IGNORECASE):
            if _near(self.of_names, match.start()) or _near(self.of_values, match.start()):
                return "name"
        return None

    def _places(self, path: str, name: str) -> Iterator[int]:
        """Yield the positions at which the text names the field, as it is written in JSON or in other languages."""
        for word in dict.fromkeys((name, name[0] + name.title().replace("_", "")[1:])):
            start = self.text.find(word)
            for _ in range(_PLACES):
                if start < 0:
                    break
                if _names_field(self.text, start, start + len(word), path):
                    yield start
                start = self.text.find(word, start + len(word))


def read_refused(body: bytes) -> RefusedRequest:
    """Read the body of a refused request: without the escapes of JSON, and without what the server would take instead."""
    text = _SUGGESTIONS.sub(" ", searched_text(body))
    for escaped, plain in _ESCAPES:
        text = text.replace(escaped, plain)
    of_names = [word.start() for word in _OF_NAMES.finditer(text)]
    return RefusedRequest(text, of_names, [word.start() for word in _OF_VALUES.finditer(text)])


def _near(words: Sequence[int], place: int) -> bool:
    following = bisect_left(words, place - _REACH)
    return following < len(words) and words[following] < place + _REACH


def _names_field(text: str, start: int, end: int, path: str) -> bool:
    """Tell whether a word of a text is the name of the field, and neither a part of another word nor another object's."""
    if any(one.isascii() and (one.isalnum() or one in {"_", "-"}) for one in (text[start - 1 : start], text[end : end + 1])):
        return False
    steps, listed = _steps_before(text, start)
    others = [step.lower() for step in steps if step.lower() not in _REQUEST and not step.isdecimal()]
    above = [step.removesuffix("[]").removesuffix("s") for step in path.split(".")[:-1]]
    if any(holder in step for holder in above for step in others) or (above and "assistant" in others):
        return True
    if others and not listed:
        return False
    is_plain_word = text[start:end].isalpha() and text[start:end].islower()
    return bool(steps) or not is_plain_word or _is_marked(text, start, end)


def _is_marked(text: str, start: int, end: int) -> bool:
    """Tell whether a word that may be plain English is marked as a name: by quotes or brackets, or by the words around it."""
    before = text[max(0, start - 12) : start]
    behind = text[end : end + 12]
    if before and behind and before[-1] in "'\"`[({" and behind[0] in "'\"`])}":
        return True
    if _BEHIND_NAME.match(behind):
        return True
    match = _BEFORE_NAME.search(before)
    return match is not None and (match[0].strip(": \n") != "" or _PHRASE_END.match(behind) is not None)


def _steps_before(text: str, start: int) -> tuple[list[str], bool]:
    """Return the steps of the path that leads to a word, the nearest first, and whether they may be the names of a list."""
    tokens = _TOKENS.findall(text, max(0, start - _PATH), start)
    steps: list[str] = []
    listed = True
    while len(tokens) > 1:
        joint = tokens.pop()
        plain = joint.translate(_WITHOUT_QUOTES)
        if plain.strip() not in _WIDE_JOINTS and plain not in _JOINTS:
            break
        steps.append(tokens.pop())
        listed = listed and plain.strip() == "," and not steps[-1].isdecimal()
    return steps, listed
