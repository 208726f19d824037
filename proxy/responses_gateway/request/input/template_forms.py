"""The forms in which the templates of some models want a conversation, and the words with which they refuse all others.

Each form says the same as the messages before, but for images that a model cannot see. A wrong guess costs one request, because
a form counts only if it is taken.

Some want the turns of user and assistant to alternate (Mistral's and others). Nothing is left out: messages of one role in a
row become one, and where a turn is missing a short one is put in. A user never speaks directly behind the result of a tool,
because such templates have the assistant answer a result first. What stands before a message does not depend on what follows
it, so that the beginning of a growing conversation stays the same."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any

from responses_gateway.request.fields import Object
from responses_gateway.request.loss_report import Loss
from responses_gateway.request.policy import ALTERNATING
from responses_gateway.wire.errors import searched_text

# Before a conversation that the assistant begins, between the result of a tool and a message of the user, and behind the last
# message if that is not of the user or a tool.
_FIRST = {"role": "user", "content": "Hello."}
_ANSWER = {"role": "assistant", "content": "Understood."}
_LAST = {"role": "user", "content": "Go on."}
THOUGHTS = ("reasoning", "reasoning_content")
FORMED = Loss("content", "turns", "adapted", "messages are joined, divided or put in, as the model's template wants them")
UNSEEN = Loss("content", "input_image", "ignored", "of tools and earlier turns, if a server turns out to take fewer, or none")
APPROVAL = "mcpr_"  # how the ids of calls begin that wait for the client's approval, by which they are found
_IMAGE = {"type": "text", "text": "[An image was left out, because you do not support image input.]"}
_EARLIER_IMAGE = {"type": "text", "text": "[An earlier image was left out.]"}
_PREFILL = "no_prefill"  # the assistant is not last, which llama.cpp refuses where the model is to think
LAST_IMAGES = "last_images"  # as many as a request may have
TOOLLESS = "toolless"  # no calls where no tools are offered: an agent sums up a session without them
OF_ONE_REQUEST = frozenset({LAST_IMAGES, TOOLLESS})  # nothing that has to be known of the model
_SILENT: Object = {"role": "assistant", "content": ""}


def alternating(messages: Sequence[Object]) -> list[Object]:
    """Return chat messages in which the turns alternate, and the assistant's is next; the same if they do already."""
    leading, others = with_leading(messages)
    ordered = list(rows_joined(leading, "system"))
    spoken = [of_user(message) for message in others]
    if spoken and spoken[0]["role"] == "assistant":
        ordered.append(_FIRST)
    for message in rows_joined(spoken, "user", "assistant"):
        if message["role"] == "user" and ordered and ordered[-1]["role"] == "tool":
            ordered.append(_ANSWER)
        ordered.append(message)
    if ordered and ordered[-1]["role"] in ("assistant", "system"):
        ordered.append(_LAST)
    return ordered


def _with_user_last(messages: Sequence[Object]) -> Iterator[Object]:
    """Yield messages of which the last one is not the assistant's, with which some servers would have the answer begin."""
    yield from messages
    if messages and messages[-1]["role"] == "assistant":
        yield _LAST


def with_leading(messages: Sequence[Object]) -> tuple[list[Object], Sequence[Object]]:
    """Return the system messages that a conversation begins with, and all others."""
    leading = list(itertools.takewhile(lambda message: message["role"] == "system", messages))
    return leading, messages[len(leading) :]


def rows_joined(messages: Iterable[Object], *roles: str) -> Iterator[Object]:
    """Yield messages with those of one of these roles in a row as one."""
    for role, row in itertools.groupby(messages, key=itemgetter("role")):
        together = list(row)
        yield from together if role not in roles or len(together) == 1 else [joined(together)]


def of_user(message: Object) -> Object:
    """Return a system message behind the first ones as one of the user, marked with tags."""
    if message["role"] != "system":
        return message
    return {"role": "user", "content": f"<system_message>\n{message['content']}\n</system_message>"}


def joined(row: Sequence[Object]) -> Object:
    """Return one message for several of the same role, of which the last one alone may have calls."""
    joined: dict[str, Any] = {"role": row[0]["role"], "content": contents([message.get("content") for message in row])}
    for name in THOUGHTS:
        if thoughts := [message[name] for message in row if message.get(name)]:
            joined[name] = "\n".join(thoughts)
    if calls := [call for message in row for call in message.get("tool_calls", ())]:
        joined["tool_calls"] = calls
    return joined


def contents(values: Sequence[str | list[Object] | None]) -> str | list[Object]:
    """Return one content for several: a text, or parts where one of them has parts."""
    there: list[str | list[Object]] = [content or "" for content in values]
    texts = [content for content in there if isinstance(content, str)]
    if len(texts) == len(there):
        return "\n\n".join(text for text in texts if text)
    parts = ([{"type": "text", "text": content}] if isinstance(content, str) else content for content in there)
    return list(itertools.chain.from_iterable(parts))


def nine_characters(call_id: str) -> str:
    """Return an id of nine letters or digits, always the same for the same one."""
    if (len(call_id) == 9 and call_id.isascii() and call_id.isalnum()) or call_id.startswith(APPROVAL):
        return call_id
    return blake2b(call_id.encode("utf-8", "replace")).hexdigest()[:9]


def _with_short_ids(messages: Sequence[Object]) -> Iterator[Object]:
    for message in messages:
        if message["role"] == "tool":
            yield {**message, "tool_call_id": nine_characters(message["tool_call_id"])}
        elif message.get("tool_calls"):
            yield {**message, "tool_calls": [{**call, "id": nine_characters(call["id"])} for call in message["tool_calls"]]}
        else:
            yield message


def _with_single_calls(messages: Sequence[Object]) -> Iterator[Object]:
    """Yield each call of several in a message of its own, which its result follows."""
    results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
    for message in messages:
        calls = message.get("tool_calls") or ()
        if len(calls) > 1:
            for number, call in enumerate(calls):
                yield {**(_SILENT if number else message), "tool_calls": [call]}
                if call["id"] in results:
                    yield results.pop(call["id"])
        elif message["role"] != "tool" or message["tool_call_id"] in results:
            yield message


def _with_joined_thoughts(messages: Sequence[Object]) -> Iterator[Object]:
    """Yield messages in which a thought and the text before a call are one text."""
    for message in messages:
        thought, rest = _apart(message)
        if thought and message.get("content") and message.get("tool_calls"):
            yield {**rest, "content": contents([thought, message["content"]])}
        else:
            yield message


def _with_all_thoughts(messages: Sequence[Object]) -> Iterator[Object]:
    """Yield messages of which each of the assistant has a thought, in the field that DeepSeek and Kimi read. A blank stands for
    one that the client no longer has, because DeepSeek refuses an empty text, too."""
    for message in messages:
        thought, rest = _apart(message)
        yield {**rest, "reasoning_content": thought or " "} if message["role"] == "assistant" else message


def _apart(message: Object) -> tuple[str, Object]:
    """Return the thought of a message, and the message without it."""
    thought = next((message[name] for name in THOUGHTS if message.get(name)), "")
    return thought, {name: value for name, value in message.items() if name not in THOUGHTS}


def _without_system(messages: Sequence[Object]) -> Iterator[Object]:
    """Yield messages in which the user says what the system message does."""
    leading, spoken = with_leading(messages)
    if leading:
        following = 1 if spoken and spoken[0]["role"] == "user" else 0
        yield joined([{**joined(leading), "role": "user"}, *spoken[:following]])
        spoken = spoken[following:]
    yield from map(of_user, spoken)


def _with_told_calls(messages: Sequence[Object]) -> Iterator[Object]:
    """Yield messages in which the assistant says what it has called, and the user what came of it."""
    for message in messages:
        functions = [call["function"] for call in message.get("tool_calls", ())]
        called = [f"[Called {function['name']}: {function['arguments']}]" for function in functions]
        rest = {name: value for name, value in message.items() if name != "tool_calls"}
        if message["role"] == "tool":
            yield {"role": "user", "content": contents(["<tool_result>", message["content"], "</tool_result>"])}
        else:
            yield {**rest, "content": contents([message["content"] or "", *called])}


def _with_contents(messages: Sequence[Object]) -> Iterator[Object]:
    """Yield messages of which none is an empty text: null stands beside calls, and a word in all others."""
    for message in messages:
        if isinstance(content := message.get("content", ""), list):
            content = [part for part in content if part.get("text") != ""]
        yield {**message, "content": content or (None if message.get("tool_calls") else "(empty)")}


def _without_images(messages: Sequence[Object]) -> Iterator[Object]:
    """Yield messages without images: else an image of a tool, or one that was refused, ends the session. One that the user
    sends now stays, so that the refusal is told."""
    return _with_words(messages, _IMAGE, keeps_last=messages[-2:][0]["role"] != "tool")


def _with_words(messages: Sequence[Object], words: Object = _EARLIER_IMAGE, *, keeps_last: bool = True) -> Iterator[Object]:
    """Yield messages with words in the place of images, but for those of the last message."""
    for number, message in enumerate(messages, 1 - len(messages)):
        if isinstance(content := message.get("content"), list) and (number or not keeps_last):
            parts = [words if part["type"] == "image_url" else part for part in content]
            yield {**message, "content": contents([part.get("text") or [part] for part in parts])}
        else:
            yield message


def _images(messages: Iterable[Object]) -> int:
    parts = itertools.chain.from_iterable(body for message in messages if isinstance(body := message.get("content"), list))
    return sum(part["type"] == "image_url" for part in parts)


def losses_of(messages: Sequence[Object], formed: Sequence[Object]) -> list[Loss]:
    """Return what a client is told of messages that were given other forms."""
    if _images(formed) < _images(messages):
        return [UNSEEN]
    return [FORMED] if formed != messages else []


def _without_null(messages: Sequence[Object]) -> Iterator[Object]:
    """Yield messages that have no content in the place of null."""
    for message in messages:
        yield {name: value for name, value in message.items() if value is not None}


# The forms in the order in which they are given to messages, by what refusals say: "Tool call IDs should be alphanumeric
# strings with length 9!" (Mistral), "This model only supports single tool-calls at once!" (Llama 3), "Cannot pass both content
# and thinking in an assistant message with tool calls!" (gpt-oss), "Developer instruction is not enabled for …" (Google),
# "messages: text content blocks must be non-empty", "The `reasoning_content` in the thinking mode must be passed back"
# (DeepSeek). Contents come late, because turns are joined by them; thoughts last, because turns may be put in.
_FORMS: dict[str, tuple[str, Callable[[Sequence[Object]], Iterable[Object]]]] = {
    "no_images": (
        r"\bnot (?:a )?multi-?modal\b|\b(?:supports? image|only supports? text) input\b|\bunknown variant \W{0,4}image_url\b"
        r"|\bimage_url is only supported by|\b(?:image|multimodal|vision)(?: inputs?| content| processing)"
        r" (?:(?:is|are) )?not (?:supported|enabled|allowed)\b|\bat most 0 image|\bonly \W?text\W? content\b"
        r"|\bnot support (?:images?|vision|image_url|multi-?modal)(?: inputs?| content)?(?=[\"'`.,;\\]|$)"
        r"|\bsupport the image (?:content block|field)\b|\brequires? (?:a )?multi-?modal\b|\bdata required for image input\b"
        r"|\btext\W{1,4}is not (?:set|present)\b|\bunexpected item type in content\b|'array' not in 'string'"
        r"|\bcontent\W{1,6}(?:value )?must be a string\b(?! or)|API 调用参数有误|invalid api parameter",
        _without_images,
    ),
    LAST_IMAGES: (r"\bat most [1-9]\d* image|\bimage count \d+ exceeds|\btoo many images\b", _with_words),
    "short_ids": (
        r"call ids?\b.{0,160}\b(?:length (?:of )?9|(?:9|nine) characters)\b"
        r"|\btool_(?:calls?|use)(?:[.\[]\d+\]?)?[._]id\b.{0,60}\b(?:too long|at most \d+ char|match pattern)"
        r"|\btoolUseId\b.{0,9}\bfailed to satisfy\b",
        _with_short_ids,
    ),
    "single_calls": (r"\b(?:single|one) tool[- ]?calls?\b|\b(?:multiple|parallel) tool[- ]?calls?\b", _with_single_calls),
    "joined_thoughts": (r"\bcontent and (?:thinking|reasoning)\b", _with_joined_thoughts),
    "no_system": (r"\b(?:system|developer) (?:role|message|prompt|instruction)s?\b.{0,40}\bnot\b", _without_system),
    TOOLLESS: (r"\btoolConfig field must be defined\b|\bwithout .?tools=|\bblocks must define tools\b", _with_told_calls),
    "told_calls": (r"\btool (?:role|message)s? (?:is|are) (?:not |un)support", _with_told_calls),
    ALTERNATING: (
        r"\broles?\b|alternat|consecutive|jinja|chat[ _]template|\bmust (?:start|begin|be followed)|(?:first|last) message|"
        r"(?:system|user|assistant|tool) message|\buser query|\bturns?\b|\bspeaker|after (?:a )?tool |"
        r"[\"'](?:system|tool|user|assistant)[\"']|\bmessages (?:parameter is illegal|参数非法)|\bpreprocessing failed\b",
        alternating,
    ),
    _PREFILL: (r"\bprefill\b", _with_user_last),
    "contents": (
        r"\b(?:contents?|messages?|parts?)\b.{0,120}"
        r"(?:\bnon-?(?:empty|whitespace)\b|\b(?:is|are|be) (?:empty|blank)\b|\bempty (?:string|text|content)|\btoo short\b"
        r"|\bcontent or tool_calls\b|\bat least (?:1|one) (?:character|content|item|part)|为空)"
        r"|\b(?:empty|blank) (?:message )?contents?\b|\b(?:content|text)(?: field is a|: field) required\b|未正常接收到prompt",
        _with_contents,
    ),
    "no_null": (
        r"\bcontent\b.{0,120}(?:\b(?:null|none|nil)\b|\b(?:should|must) be an? (?:valid )?(?:string|list|array))"
        r"|\b(?:null|none|nil)\b.{0,60}\bcontent\b|\bcontent type: <nil>",
        _without_null,
    ),
    "all_thoughts": (
        r"\breasoning_content\b.{0,120}\b(?:passed back|missing|required)\b|\bmissing\b.{0,9}\breasoning_content\b",
        _with_all_thoughts,
    ),
}
_WORDS = {name: re.compile(words, re.IGNORECASE | re.DOTALL) for name, (words, _) in _FORMS.items()}


def forms_wanted(refusal: bytes) -> frozenset[str]:
    """Return the forms that the body of a refused request may ask for: if it names none, turns that alternate."""
    text = searched_text(refusal)
    forms = frozenset(name for name, words in _WORDS.items() if words.search(text))
    return forms - {ALTERNATING} or forms


def forms_to_try(refusal: bytes, forms: frozenset[str], *, again: bool) -> Iterator[frozenset[str]]:
    """Yield what to try after a refusal of messages in these forms: the forms that it asks for, and where it says what was said
    before (`again`), though the turns alternate, those of a template without system messages, or without tools."""
    wanted = forms | forms_wanted(refusal)
    yield wanted
    if again and ALTERNATING in wanted:
        yield from (wanted | {"no_system"}, wanted | {"no_system", "told_calls"})


def in_forms(messages: Sequence[Object], forms: Collection[str], *, continued: bool = False) -> list[Object]:
    """Return chat messages in these forms; the same if they have them. `continued`: the answer continues the last one."""
    for name, (_, change) in _FORMS.items():
        if name in forms:
            count = len(messages) - (continued and name in (ALTERNATING, _PREFILL))
            messages = [*change(messages[:count]), *messages[count:]]
    return list(messages)
