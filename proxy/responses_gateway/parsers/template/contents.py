"""What becomes of the text of a field: the content parsers of response templates, and their transforms."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from responses_gateway.parsers.template.delimiters import TemplateError, compile_pattern, find_all
from responses_gateway.wire.json_text import refuse_constant

Content = Callable[[str], Any]

_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_JSON_STRING = r'"(?:[^"\\]|\\.)*"'
_BARE_KEY = re.compile(r"(?<=[{,])(\s*)(\w+)(\s*):")
_DEPTH_LIMIT = 32  # of a template's own nesting


def content_parser(name: object, arguments: object, depth: int = 0) -> Content:
    """Return what makes a value of a field's text; it raises `ValueError` and `TimeoutError`. Raises `TemplateError`."""
    if not isinstance(arguments, Mapping) or depth > _DEPTH_LIMIT:
        raise TemplateError("the arguments of a content parser must be an object")
    match name:
        case "text":
            return _stripped(arguments)
        case "int" | "float" | "bool":
            strip = _stripped(arguments)
            convert = _SCALARS[name]
            return lambda text: convert(strip(text))
        case "json":
            return _json(arguments)
        case "xml-inline":
            return _tags(arguments, _inner(arguments, depth))
        case "kv-lines":
            return _lines(arguments, _inner(arguments, depth))
    raise TemplateError(f"there is no content parser {name!r}")


def transformed(transform: Any, scope: Mapping[str, Any]) -> Any:
    """Fill in the placeholders of a transform. Raises `ValueError` for one without a value."""
    if isinstance(transform, Mapping):
        return {key: transformed(value, scope) for key, value in transform.items()}
    if isinstance(transform, list):
        return [transformed(value, scope) for value in transform]
    match = _PLACEHOLDER.fullmatch(transform) if isinstance(transform, str) else None
    if match is None:
        return transform
    value: Any = scope
    for key in match[1].split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise ValueError(f"there is no {match[1]}")
        value = value[key]
    return value


def check_transform(transform: Any, depth: int = 0) -> None:
    """Raise `TemplateError` for a text that has more than a placeholder, or for too much nesting."""
    if depth > _DEPTH_LIMIT:
        raise TemplateError("a transform is nested too deeply")
    if isinstance(transform, Mapping | list):
        for value in transform.values() if isinstance(transform, Mapping) else transform:
            check_transform(value, depth + 1)
    elif isinstance(transform, str) and _PLACEHOLDER.search(transform) and not _PLACEHOLDER.fullmatch(transform):
        raise TemplateError(f"the transform {transform!r} has more than a placeholder")


def _is_true(text: str) -> bool:
    return text.lower() in ("true", "1")


_SCALARS: dict[str, Content] = {"int": int, "float": float, "bool": _is_true}


def _stripped(arguments: Mapping[str, Any]) -> Callable[[str], str]:
    return str.strip if arguments.get("strip", True) else str


def _inner(arguments: Mapping[str, Any], depth: int) -> Content:
    """Return the parser of the values inside a field."""
    inner = arguments.get("value_parser")
    if inner is None:
        return str
    if not isinstance(inner, Mapping):
        raise TemplateError("a value_parser must be an object")
    return content_parser(inner.get("name", "text"), inner.get("args", {}), depth + 1)


def _json(arguments: Mapping[str, Any]) -> Content:
    pairs = arguments.get("string_delims") or []
    bare_keys = bool(arguments.get("unquoted_keys"))
    lenient = bool(arguments.get("allow_non_json"))
    strip = _stripped(arguments)
    are_pairs = isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    if not are_pairs or not all(isinstance(mark, str) and mark for pair in pairs for mark in pair):
        raise TemplateError("string_delims must be pairs of texts")
    quotes: dict[str, str] = dict(pairs)
    # A string is either one between the model's own marks, or one of JSON; what stands between two strings is neither.
    marked = [f"{re.escape(opening)}.*?{re.escape(closing)}" for opening, closing in pairs]
    strings = re.compile("(" + "|".join([*marked, _JSON_STRING]) + ")", re.DOTALL)

    def read(text: str) -> Any:
        if pairs or bare_keys:
            parts = strings.split(text)
            parts[1::2] = [_requoted(part, quotes) for part in parts[1::2]]
            if bare_keys:
                parts[::2] = [_BARE_KEY.sub(r'\1"\2"\3:', part) for part in parts[::2]]
            text_of_json = "".join(parts)
        else:
            text_of_json = text
        try:
            return json.loads(text_of_json, parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            if lenient:
                return strip(text)
            raise ValueError("this is not JSON") from None

    return read


def _requoted(part: str, quotes: Mapping[str, str]) -> str:
    """Return a string of the model as one of JSON."""
    for opening, closing in quotes.items():
        if part.startswith(opening) and part.endswith(closing) and len(part) >= len(opening) + len(closing):
            return json.dumps(part[len(opening) : len(part) - len(closing)], ensure_ascii=False)
    return part


def _tags(arguments: Mapping[str, Any], inner: Content) -> Content:
    pattern = compile_pattern(arguments.get("tag_pattern"))
    if "key" not in pattern.groupindex:
        raise TemplateError("a tag_pattern must have a group named key")
    merge = bool(arguments.get("merge_duplicates"))

    def read(text: str) -> Any:
        tags: dict[str, Any] = {}
        repeated: set[str] = set()
        for groups in find_all(pattern, text):
            key = groups["key"] or ""
            value = inner(groups.get("value") or "")
            if key in tags and merge:
                tags[key] = [*(tags[key] if key in repeated else [tags[key]]), value]
                repeated.add(key)
            else:
                tags[key] = value
        return tags

    return read


def _lines(arguments: Mapping[str, Any], inner: Content) -> Content:
    strip = _stripped(arguments)
    line_end = arguments.get("line_sep", "\n")
    separator = arguments.get("kv_sep", ":")
    if not all(isinstance(mark, str) and mark for mark in (line_end, separator)):
        raise TemplateError("line_sep and kv_sep must be texts")

    def read(text: str) -> Any:
        pairs = (strip(line).split(separator, 1) for line in text.split(line_end) if separator in line)
        return {strip(pair[0]): inner(strip(pair[1])) for pair in pairs if len(pair) == 2}

    return read
