"""All model families: formats by their names, and detection of the names for a model.

Each file of `families/` has a `FAMILY`; they are found by listing that package, so that a new file is a new family."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TypeVar

from responses_gateway.parsers import families
from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    ChannelFormat,
    Family,
    Format,
    NameSign,
    PythonCalls,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

_NO_PARSER = ("none", "")
_AUTO = "auto"
_LONGEST_NAME = 256  # a client may make up any
_THINK_TAGS = "qwen3"  # the reasoning of a model that shows only `<think>`, unless its tool parser's family has another

Named = TypeVar("Named", ReasoningFormat, ToolFormat)
Sign = TypeVar("Sign", NameSign, TemplateSign)
Part = TypeVar("Part", CallFormat, CallBlock)


def _load() -> Iterator[Family]:
    """Import every family, in the order of the file names."""
    for name in sorted(module.name for module in pkgutil.iter_modules(families.__path__)):
        yield import_module(f"{families.__name__}.{name}").FAMILY


def _ranked(signs: Iterable[Sign]) -> list[Sign]:
    """Sort signs so that the first one found counts: by priority, then the longest."""
    return sorted(signs, key=lambda sign: (-sign.priority, -len(sign.text), sign.text))


def _name_pattern(text: str) -> re.Pattern[str]:
    """Compile what a `NameSign` says of the names in which it is found."""
    return re.compile(".*".join(_words_pattern(words) for words in text.split("*")))


def _words_pattern(words: str) -> str:
    pattern = re.sub(r"(?<=[a-z])(\\-)?(?=\d)", "-?", re.escape(words)).replace(r"\.", "[.-]")
    rest = r"\d|[\d.]*(b|m|bit)(?![a-z\d])" if words[-1].isdigit() else "[a-z]"
    return rf"(?<![a-z\d]){pattern}(?!{rest})"


def _joined(formats: Iterable[Mapping[str, Named]]) -> dict[str, Named]:
    """Join the formats of all families, sorted by name. Raises `ValueError` for a name that two families have."""
    table: dict[str, Named] = {}
    for own in formats:
        if known := table.keys() & own.keys():
            raise ValueError(f"two model families have the parser names {', '.join(sorted(known))}")
        table.update(own)
    return dict(sorted(table.items()))


_FAMILIES = tuple(_load())
REASONING = _joined(family.reasoning for family in _FAMILIES)
TOOLS = _joined(family.tools for family in _FAMILIES)
_ALL = Family(reasoning=REASONING, tools=TOOLS)
_THINKING = {tools: reasoning for family in _FAMILIES for tools, reasoning in family.think_tags.items()}
_SUFFIXED = {name: family for family in _FAMILIES if family.suffixed for name in (*family.reasoning, *family.tools)}
_REASONING_SIGNS = _ranked(sign for family in _FAMILIES for sign in family.reasoning_signs)
_TOOL_SIGNS = _ranked(sign for family in _FAMILIES for sign in family.tool_signs)
_NAME_PATTERNS = [(sign, _name_pattern(sign.text)) for sign in _ranked(sign for family in _FAMILIES for sign in family.names)]


@lru_cache(maxsize=256)
def format_of(reasoning: str | None, tools: str | None) -> Format:
    """Return the format of two parser names; "none" or None for no parser, "auto" for the family of the first markers seen.
    Raises `ValueError` for an unknown name."""
    return Format(_reasoning(reasoning), _tools(tools))


def detect(model_name: str, chat_template: str | None) -> tuple[str | None, str | None]:
    """Find the names of a model's reasoning parser and tool parser; None where nothing tells. The template decides where it
    shows markup, else the model's name does."""
    by_name = _by_name(model_name[-_LONGEST_NAME:])
    if chat_template is None:
        return by_name
    tools = next((sign.parser for sign in _TOOL_SIGNS if sign.text in chat_template), by_name[1])
    reasoning = next((sign.parser for sign in _REASONING_SIGNS if sign.text in chat_template), None)
    if reasoning is None and "think>" in chat_template:
        reasoning = by_name[0] or _THINKING.get(tools or "", _THINK_TAGS)
    return reasoning or by_name[0], tools


def base_name(name: str) -> str:
    """Return the name of a parser without the suffix of a checkpoint: `hy_v4` for `hy_v4:6124c78e`."""
    base = name.partition(":")[0]
    return base if base in _SUFFIXED else name


@lru_cache(maxsize=64)
def fitted(name: str, tokens: frozenset[str]) -> str:
    """Return the name of a parser with the suffix that a model's tokens have, if its family's checkpoints append one."""
    family = _SUFFIXED.get(name)
    if family is None:
        return name
    match = next(filter(None, (re.fullmatch(family.suffix, token) for token in tokens)), None)
    return name if match is None else name + (match[1] or "")


@lru_cache(maxsize=256)
def _by_name(model_name: str) -> tuple[str | None, str | None]:
    """Find a sign in a name, an alias, or the path of a file: the last folder that tells something counts."""
    parts = reversed(model_name.lower().replace("_", "-").split("/"))
    signs = (sign for part in parts for sign, pattern in _NAME_PATTERNS if pattern.search(part))
    return next(((sign.reasoning, sign.tools) for sign in signs), (None, None))


def _named(name: str, known: Mapping[str, Named], kind: str) -> Named:
    if name not in known:
        raise ValueError(f"unknown {kind} parser {name!r}; known: {', '.join(known)}")
    return known[name]


def _family_of(name: str) -> Family:
    """Return the formats of all families; where the name has the suffix of a checkpoint, those of its family with it."""
    base = base_name(name)
    family = _SUFFIXED.get(base)
    if family is None or family.suffixed is None or base == name:
        return _ALL
    own = family.suffixed(name.removeprefix(base))
    return Family(reasoning={name: own.reasoning[base]}, tools={name: own.tools[base]})


def _reasoning(name: str | None) -> ReasoningFormat:
    if name is None or name in _NO_PARSER:
        return ReasoningFormat()
    return _any_reasoning() if name == _AUTO else _named(name, _family_of(name).reasoning, "reasoning")


def _tools(name: str | None) -> ToolFormat:
    if name is None or name in _NO_PARSER:
        return ToolFormat()
    return _any_tools() if name == _AUTO else _named(name, _family_of(name).tools, "tool")


def _any_reasoning() -> ReasoningFormat:
    """Combine every family's markers. Prose markers (`at_start`) and answer wrappers need their family's name."""
    parts = [part for part in dict.fromkeys(REASONING.values()) if not part.at_start]
    return ReasoningFormat(
        opens=tuple(dict.fromkeys(marker for part in parts for marker in part.opens)),
        closes=tuple(dict.fromkeys(marker for part in parts for marker in part.closes)),
        channels=_any_channels(parts),
    )


def _any_tools() -> ToolFormat:
    """Combine every family's calls. Families that share an opening are distinguished by the character that follows it."""
    originals = [part for family in _FAMILIES if family.original for part in family.tools.values()]
    parts = list(dict.fromkeys((*originals, *TOOLS.values())))
    blocks = [block for part in parts for block in part.blocks]
    bare = [call for part in parts for call in part.bare]
    return ToolFormat(
        calls=_distinct(call for part in parts for call in part.calls),
        # Of blocks that begin alike the one with more openings reads the others' calls, too.
        blocks=_distinct(sorted(blocks, key=lambda block: -len(block.opens))),
        # Of lists without a marker those of Python come first, because arrays of JSON are rarer.
        bare=_distinct(sorted(bare, key=lambda call: not isinstance(call.arguments, PythonCalls))),
        channels=_any_channels(parts),
    )


def _any_channels(parts: Iterable[ReasoningFormat] | Iterable[ToolFormat]) -> ChannelFormat | None:
    """Return the channels that can be recognised by their markers alone: no answer begins inside their header."""
    return next((part.channels for part in parts if part.channels and not part.channels.begins), None)


def _distinct(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Keep the first of those that begin alike."""
    distinct: dict[tuple[str, str], Part] = {}
    for part in parts:
        distinct.setdefault((part.opens[0], part.first), part)
    return tuple(distinct.values())
