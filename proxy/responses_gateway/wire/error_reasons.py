"""What a server says of an error, wherever in a body it says it: the reason, and what tells its kind.

Known shapes: OpenAI's `{"error": {"message", "type", "param", "code"}}`, also in a list (Gemini) or in another error (bridges),
`{"error": "text"}` (Ollama, TGI), `{"code", "msg"}`, `{"base_resp": {"status_code", "status_msg"}}`, `{"errors": […]}`,
`{"fault": {"faultstring"}}` (Apigee), `{"title", "detail"}`, JSON in a text; a message may be an object or a list with the text
in it. Names are compared without `_`, `-` and case. Where none of them is known, the first sentence is the reason.

Only reasons are read, and of these nothing is shown that tells how a server is made: headers, keys, pages, stack traces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import unescape
from http import HTTPStatus
from itertools import islice
from typing import Any, NamedTuple

from responses_gateway.wire.json_text import plain_json
from responses_gateway.wire.sse import SSEDecoder, is_stream

Json = dict[str, Any]

_LONGEST = 2000
# Of a text that is not JSON, which nobody made for clients.
_LONGEST_PLAIN = 400
_DEPTH = 8
_ENTRIES = 8
_MEMBERS = 64  # how many members of an object are looked at
_VALUES = 500  # how many values are looked at before a search is given up
_MOST_SEARCHED = 64 * 1024  # characters of a body that are searched

# Where a reason stands, in the order in which it is looked for. Those of the second kind add to one of the first.
_HEADS = (
    "message", "msg", "errormessage", "errormsg", "errmsg", "statusmsg", "statusmessage", "faultstring", "error", "err",
    "title",
)  # fmt: skip
_ADDITIONS = (
    "errordescription", "description", "reason", "detail", "details", "errors", "innererror", "cause", "metadata", "raw",
)  # fmt: skip
# Parts of the names of what is no reason, where none of the names is known: of the request, and of how the server is made.
_NO_REASONS = re.compile(
    r"headers|cookie|key|token|auth|secret|trace|stack|request|prompt|input|messages|ur[li]|path|link|host|server|date|time|version"
    r"|model|docs?(?:ument|$)|support|contact|help|debug|env|config|agent|args|param|command|cmd|log|std(?:err|out)|file|choices"
)
# Words with a blank between them, or letters of a script that has none.
_SENTENCE = re.compile(r"[^\W\d_]{2,} [^\W\d_]+|[\u3040-\u9fff]{3}")
# Names of what tells the kind of an error -> as they are passed on.
_KINDS = {
    "code": "code", "errorcode": "code", "type": "type", "errortype": "type", "param": "param",
    "statuscode": "status_code", "status": "status_code", "httpcode": "status_code", "httpstatus": "status_code",
}  # fmt: skip
# Members that only an error has.
_ERRORS = ("error", "errors", "err", "errormessage", "errormsg", "errmsg", "exception", "fault", "detail")
# Values of a code that is no error.
_NO_ERRORS = frozenset({None, 0, 200, "", "0", "200", "ok", "success", "OK", "SUCCESS"})

# Where in a text a stack trace begins, or the place in the server's code where it was.
_STACK = re.compile(
    r'Traceback \(most recent call last\)|\n[ \t]{0,20}File "|\n[ \t]{1,20}at [\w.$<(/]|\bgoroutine \d{1,9} \['
    r"|\bstack backtrace:|\bstack ?trace:",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"(?:[\w.]{1,100}\.)?([A-Z]\w{1,60}(?:Error|Exception|Exit|Interrupt|Timeout))\b")
_NO_PLACEHOLDER = r"(?!(?:Bearer |Basic )?YOUR_(?:API_)?KEY(?![\w-]))"  # which tells where the key belongs
_SECRET = re.compile(
    r"\bBearer " + _NO_PLACEHOLDER + r"[^\s\"',]{1,400}|\bsk[-_][\w-]{8,400}|\b(?:gsk|hf|nvapi|xai|ghp|glpat)[-_][\w-]{24,400}"
    r"|\b(?:authorization|cookie|password|secret|(?:x-)?api[-_ ]?key(?: id)?|access[-_]?token)"
    r"[\"']?[:=] {0,3}[\"']?" + _NO_PLACEHOLDER + r"(?:Bearer |Basic )?[^\s\"',}]{4,400}"
    r"|(?<=//)[^\s/:@]{1,100}:[^\s/@]{1,100}@",
    re.IGNORECASE,
)
# What a page says in its title or its first heading, if that is a status with its phrase.
_HEADING = re.compile(r"<(?:title|h1)[^>]{0,100}>\s{0,20}(\d{3} [\w '-]{1,60}?)\s{0,20}</", re.IGNORECASE)
_PAGE = re.compile(r"<(?:!doctype html|html|head|body|title|h1|center)\b", re.IGNORECASE)
_XML_MESSAGE = re.compile(r"<(?:\w{1,20}:)?(?:message|faultstring|description|detail)>([^<]{1,2000})</", re.IGNORECASE)
_STATUS_PHRASES = frozenset(status.phrase.lower() for status in HTTPStatus)
# A reason in JSON that was cut, or in what Python prints of such an object.
_IN_CUT_JSON = re.compile(
    r"""["'](?:message|msg|detail|error)["']\s{0,4}:\s{0,4}(?:"((?:[^"\\]|\\.){1,2000})"|'((?:[^'\\]|\\.){1,2000})')"""
)


class Reason(NamedTuple):
    """`text` is what may be shown, None if there is nothing; `words` tell the kind of the error, and are not shown. `kinds` has
    `code`, `type`, `param` and `status_code`, of any type. `plain`: the text is not of an error object."""

    text: str | None
    words: str
    kinds: Mapping[str, Any]
    plain: bool = False


_NONE = Reason(None, "", {})


class _Found(NamedTuple):
    text: str
    words: str
    kinds: Json


# ---- bodies ------------------------------------------------------------------------------------------------------------


def reason_in_body(body: bytes) -> Reason:
    """Return the reason in the body of a refusal: JSON, an event stream, a page, or a text."""
    try:
        return reason_in(json.loads(body))
    except (ValueError, RecursionError):
        pass
    try:
        text = body.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return _NONE
    if is_stream(body):
        return _reason_in_stream(body)
    if text.startswith("<"):
        return _in_markup(text)
    if text.startswith(("{", "[")):
        cut = _IN_CUT_JSON.search(text[:_MOST_SEARCHED])
        return _NONE if cut is None else reason_in(_unquoted(cut[1] or cut[2]))
    return _plain(text)


def _reason_in_stream(body: bytes) -> Reason:
    decoder = SSEDecoder()
    payloads = islice([*decoder.feed(body), *decoder.finish()], _ENTRIES)
    return next((reason for payload in payloads if (reason := reason_in(_parsed(payload))).text is not None), _NONE)


def _in_markup(text: str) -> Reason:
    """Return the reason in XML; of a page, the phrase of its status."""
    text = text[:_MOST_SEARCHED]
    if not _PAGE.match(text):
        message = _XML_MESSAGE.search(text)
        return _NONE if message is None else reason_in(unescape(message[1]))
    heading = _HEADING.search(text)
    return _NONE if heading is None else _plain(heading[1].partition(" ")[2])


def _plain(text: str) -> Reason:
    """Return the reason of a text that nobody made for clients; the phrase of a status is none."""
    if text.lower().rstrip(".") in _STATUS_PHRASES or not any(map(str.isalpha, text[:_LONGEST_PLAIN])):
        return _NONE
    excerpt = shown_text("".join(mark for mark in text[:_LONGEST] if mark.isprintable() or mark in "\n\t"))
    return Reason(excerpt[:_LONGEST_PLAIN] or None, text[:_LONGEST], {}, plain=True)


def shown_text(text: str) -> str:
    """Return what may be shown of a server's words: no stack trace, of which the name of the exception is left if there is
    nothing else, and no keys; empty if nothing is left."""
    text = text[:_LONGEST]
    stack = _STACK.search(text)
    if stack is not None:
        before = text[: stack.start()].rstrip()
        lines = text.rstrip().splitlines()
        named = _EXCEPTION.match(lines[-1].lstrip()) if lines and not before else None
        text = before if named is None else named[1]
    return _SECRET.sub("[…]", text)


# ---- values ------------------------------------------------------------------------------------------------------------


def reason_in(value: Any) -> Reason:
    """Return the reason in a value of JSON."""
    reason = _Search().find(value, _DEPTH) or _Search(anywhere=True).find(value, _DEPTH)
    if reason is None:
        named = _named(value) if isinstance(value, dict) else {}
        error = named.get("error")
        return Reason(None, "", {**_kinds(named), **_kinds(_named(error) if isinstance(error, dict) else {})})
    return Reason(shown_text(reason.text) or None, reason.words[:_LONGEST], reason.kinds)


class _Search:
    """Looks for a reason in one value, of which only so much is looked at."""

    __slots__ = ("_anywhere", "_left")

    def __init__(self, *, anywhere: bool = False) -> None:
        """`anywhere`: also under names that nobody knows."""
        self._anywhere = anywhere
        self._left = _VALUES

    def find(self, value: Any, depth: int) -> _Found | None:
        """Return the reason in a value, so many levels deep."""
        if not self._takes(depth):
            return None
        if isinstance(value, str):
            return self._in_text(value, depth)
        if isinstance(value, list):
            return _joined([reason for entry in value[:_ENTRIES] if (reason := self.find(entry, depth - 1)) is not None], "; ")
        return self._in_object(_named(value), depth) if isinstance(value, dict) else None

    def _takes(self, depth: int) -> bool:
        """Tell whether one more value is looked at."""
        self._left -= 1
        return depth > 0 and self._left >= 0

    def _in_text(self, text: str, depth: int) -> _Found | None:
        text = text[:_MOST_SEARCHED].strip()
        inner = self.find(_parsed(text), depth - 1) if text[:1] in ("{", "[") else None
        if inner is not None:
            return inner
        return _Found(text[:_LONGEST], text[:_LONGEST], {}) if text else None

    def _in_object(self, named: Json, depth: int) -> _Found | None:
        """Return the reason in an object: its error's, or its own with what adds to it."""
        error = named.get("error")
        if isinstance(error, dict | list) and (depth == _DEPTH or "message" not in named):
            reason = self._first({"error": named.pop("error")}, ("error",), depth)
        else:
            reason = None
        if reason is None:
            head = self._first(named, _HEADS, depth)
            if isinstance(error, str) and head is not None:
                head = _with_error(error.strip(), head)
            reason = _joined([part for part in (head, self._addition(named, depth)) if part is not None], ": ")
        if reason is None and self._anywhere:
            reason = self._under_any_name(named, depth)
        return None if reason is None else reason._replace(kinds={**_kinds(named), **reason.kinds})

    def _under_any_name(self, named: Json, depth: int) -> _Found | None:
        """Return the reason in an object of which no name is known."""
        for name, value in named.items():
            words = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
            if _NO_REASONS.search(name) or (words and not any(map(_SENTENCE.search, words))):
                continue
            if (reason := self.find(value, depth - 1)) is not None:
                return reason
        return None

    def _addition(self, named: Json, depth: int) -> _Found | None:
        """Return what adds to a reason. A list of details stays JSON: it tells the place of each. Only its reasons tell its
        kind, since the values that it repeats are the client's."""
        reason = self._first(named, _ADDITIONS, depth)
        detail = named.get("detail")
        if isinstance(detail, list) and detail and isinstance(detail[0], dict):
            return _Found(json.dumps(detail)[:_LONGEST], "" if reason is None else reason.words, {})
        if reason is None and isinstance(named.get("errors"), dict):
            fields = islice(named["errors"].items(), _ENTRIES)
            parts = [(name, part) for name, value in fields if (part := self.find(value, depth - 1)) is not None]
            return _joined([part._replace(text=f"{name}: {part.text}") for name, part in parts], "; ")
        if reason is None and isinstance(detail, dict) and detail:
            return _Found(json.dumps(detail)[:_LONGEST], "", {})
        return reason

    def _first(self, named: Json, names: Iterable[str], depth: int) -> _Found | None:
        for name in names:
            if name not in named:
                continue
            value = named[name]
            reason = self.find(value, depth - 1)
            if reason is None and name in _HEADS and name != "error" and isinstance(value, dict):  # in parts, or by languages
                reason = self._under_any_name(_named(value), depth - 1)
            if reason is not None:
                return reason
        return None


def _with_error(error: str, head: _Found) -> _Found:
    """Return a reason beside which `error` is a text: a code, or a part of the reason."""
    if not error or error == head.text:
        return head
    code = {} if " " in error else {"code": error}
    text = head.text if error in head.text else f"{error}: {head.text}"
    return _Found(text, f"{error}: {head.words}", {**code, **head.kinds})


def _joined(reasons: list[_Found], between: str) -> _Found | None:
    """Return several reasons as one; one that repeats what was said is left out."""
    if not reasons:
        return None
    text = reasons[0].text
    for part in reasons[1:]:
        if part.text not in text:
            text = f"{text}{between}{part.text}"[:_LONGEST]
    kinds: Json = {}
    for part in reversed(reasons):
        kinds |= part.kinds
    return _Found(text, between.join([part.words for part in reasons])[:_LONGEST], kinds)


def _named(value: Json) -> Json:
    """Return the members of an object by names without `_`, `-` and case."""
    members = islice(value.items(), _MEMBERS)
    return {name.replace("_", "").replace("-", "").lower(): member for name, member in members if isinstance(name, str)}


def _kinds(named: Json) -> Json:
    kinds = {}
    for name, kind in _KINDS.items():
        value = named.get(name)
        if value is not None and not isinstance(value, dict | list) and kind not in kinds:
            kinds[kind] = value
    return kinds


def _unquoted(text: str) -> str:
    """Return what a text means that was quoted."""
    value = _parsed(f'"{text}"')
    return value if isinstance(value, str) else text


def _parsed(text: str | bytes) -> Any:
    return plain_json(text[:_MOST_SEARCHED])


# ---- errors in place of an answer --------------------------------------------------------------------------------------


def error_in(payload: bytes) -> Json | None:
    """Return the object of a payload that is no part of an answer if it reports an error: it names one, says that it has
    failed, or has a code with a message."""
    value = _parsed(payload)
    return value if isinstance(value, dict) and _tells_error(value) else None


def _tells_error(value: Json) -> bool:
    named = _named(value)
    if any(says_something(named.get(name)) for name in _ERRORS):
        return True
    base = named.get("baseresp")
    if isinstance(base, dict):
        return not _is_no_error(base.get("status_code"))
    kind = named.get("type")
    if named.get("object") == "error" or (isinstance(kind, str) and kind.lower().endswith(("error", "failed"))):
        return True
    has_reason = any(isinstance(named.get(name), str) for name in _HEADS)
    codes = [named.get(name) for name in ("code", "errorcode", "statuscode", "httpcode")]
    failed = named.get("success") is False or named.get("status") in ("error", "failed", "failure")
    return has_reason and (failed or not all(map(_is_no_error, codes)))


def says_something(value: Any) -> bool:
    """Tell whether a member says something: some servers set `error` to false, "", {} or an object of such in every chunk."""
    return any(value.values()) if isinstance(value, dict) else bool(value)


def _is_no_error(code: Any) -> bool:
    return isinstance(code, bool | dict | list) or code in _NO_ERRORS
