"""What an answer of a model that has tools came to: calls, a final answer, or an end in the middle of its work; and from which
of those that end early the model is asked to go on, within bounds.

`announced` is a guess by the text alone. Word lists fire on good answers ("let me know", "I will need to"), and know few
languages. So a step counts as announced by how the text is written, in any language: it is short, and stops where something
has to follow. Besides, the last sentence may say in the first person what is done now: only with a verb of work, and without a
condition or a word to the reader. All other kinds are certain as to what happened; whether the model meant to go on is certain
as `EarlyEnds` says.

A model that is asked the same again may say the same again, for ever: two early ends in a row are the most, and an answer that
repeats the one before it is the last. So is one that asks something, since it is its reader's turn."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from responses_gateway.parsers import marked_call
from responses_gateway.wire.deltas import FinishReason

# Characters. Longer texts are reports.
_LONGEST_ANNOUNCEMENT = 400
_TAIL = 1_000  # the end of a text in which a question would stand
# Question marks of all scripts; `;` is not among them, though Greek writes one like it.
_QUESTION = re.compile(r"[?？؟՞\u037e⸮](?=[\s)\]}\"'»”’」』*_.!。！]|$)")
# Japanese and Chinese questions may do without a mark.
_ASKING_ENDS = ("か", "か。", "吗", "吗。", "嗎", "嗎。", "呢", "呢。")
_CODE = re.compile(r"`[^`\n]*`")
_LIST = re.compile(r"^\s{0,8}(?:[-*+•·]|\d{1,3}[.)、])\s", re.MULTILINE)
# What has something to follow: a colon, or dots that trail off.
_OPEN_ENDS = (":", "：", "…", "...")
_SENTENCE_ENDS = ".!。！"
# A step of one's own, taken now, at the beginning of a sentence in small letters; and what makes it none. By language.
_STEPS: tuple[tuple[str, str], ...] = (
    (
        r"(?:(?:okay|ok|good|great|first|now|next|then|so)[,:]? )*(?:let me|let's|i'll|i will|i'm going to|i am going to) "
        r"(?:(?:now|first|next|then|just|quickly) )*(?:run|open|read|check|look|edit|fix|write|create|search|apply|update|send"
        r"|test|install|inspect|examine|modify|implement|execute|change|list|add|do that) ",
        r"\b(?:if|once|when|unless|until|after|you|your|later|tomorrow|not|back)\b",
    ),
    (
        r"(?:jetzt|nun|als nächstes|zuerst|zunächst) (?:lasse|führe|öffne|lese|prüfe|schreibe|ändere|starte|suche|teste"
        r"|erstelle|behebe|korrigiere) ich |ich (?:führe|öffne|lese|prüfe|schreibe|ändere|starte|suche|teste|erstelle"
        r"|behebe|korrigiere) .*\b(?:jetzt|nun|zuerst|als nächstes)\b",
        r"\b(?:wenn|falls|sobald|du|dein\w*|sie|ihr\w*|nicht|so|dabei|nur)\b",
    ),
    (
        r"(?:maintenant,? |ensuite,? |d'abord,? )?je vais (?:maintenant |d'abord |ensuite )?(?:lancer|ouvrir|lire|vérifier"
        r"|écrire|modifier|corriger|chercher|tester|créer|exécuter|appliquer) |je (?:lance|ouvre|lis|vérifie|écris|modifie"
        r"|corrige|teste|crée|exécute|applique) .*\bmaintenant\b",
        r"\b(?:si|quand|dès|une fois|vous|votre|vos|tu|ton|pas)\b",
    ),
    (
        r"(?:ahora,? |primero,? |a continuación,? )?voy a (?:ejecutar|abrir|leer|comprobar|escribir|modificar|corregir|buscar"
        r"|probar|crear|aplicar|revisar) |(?:ejecuto|abro|leo|compruebo|escribo|modifico|(?:lo )?corrijo|pruebo|creo|aplico) "
        r".*\bahora\b|lo corrijo ahora",
        r"\b(?:si|cuando|en cuanto|tu|tus|te|usted|su|no)\b",
    ),
    (
        r".{0,20}(?:现在|接下来|首先|先)?(?:我现在来|我来|让我)先?(?:运行|测试|修复|修改|查看|检查|打开|执行|读取|创建|添加|编写)",
        r"如果|要是|你|您|之后|再说",
    ),
    (r"(?:次に|今から|これから).+(?:します|直します)", r"れば|たら|なら|ください|あなた"),
)
_STEP_NOW = tuple((re.compile(step), re.compile(other)) for step, other in _STEPS)
# What a model may write around the last word.
_CLOSING = " \t\r\n*_"
TurnOutcome: TypeAlias = Literal[
    "call",  # the model has made calls
    "final",  # it has answered
    "announced",  # it has said what it would do next, and has not done it: a guess
    "reasoning_only",  # it has only thought
    "empty",  # it has said nothing at all
    "finish_without_call",  # its server says that it ended with calls, and none came
    "malformed_call",  # a call is cut, or nobody could read it
    "call_in_thought",  # its thought ends with a call, which is none there
    "length",  # it was cut at a limit
]
# The ends of a model that had more to do. After a call, or at a limit, it is somebody else's turn.
EARLY: frozenset[TurnOutcome] = frozenset(
    {"announced", "reasoning_only", "empty", "finish_without_call", "malformed_call", "call_in_thought"}
)
Continued: TypeAlias = Literal["off", "certain", "all"]
# Early ends from which the model goes on without a call between them, and in one turn of the user's.
MOST_IN_A_ROW = 2
MOST_IN_A_TURN = 6


def asks(text: str) -> bool:
    """Tell whether an answer asks its reader something near its end, so that the turn is theirs."""
    tail = _CODE.sub("", text[-_TAIL:]).rstrip(_CLOSING)
    return tail.endswith(_ASKING_ENDS) or _QUESTION.search(tail) is not None


def announces(text: str) -> bool:
    """Tell whether an answer seems to announce a step that it does not take. A guess, which takes in some good answers."""
    stripped = text.strip()
    if not stripped or len(stripped) > _LONGEST_ANNOUNCEMENT or "```" in stripped:
        return False
    if asks(stripped) or _LIST.search(stripped) is not None:
        return False
    return stripped.rstrip(_CLOSING).endswith(_OPEN_ENDS) or _is_step(stripped)


def _is_step(text: str) -> bool:
    """Tell whether the last sentence of a text says what is done now."""
    prose = _CODE.sub("it", text).rstrip(_CLOSING)
    start = max(map(prose.rstrip(_SENTENCE_ENDS).rfind, f"{_SENTENCE_ENDS}\n")) + 1
    sentence = prose[start:].strip(" ,;、，`*_").lower().replace("’", "'") + " "
    return any(step.match(sentence) and not other.search(sentence) for step, other in _STEP_NOW)


class TurnEnd(msgspec.Struct, frozen=True):
    """How an answer ended, and what it consists of.

    `says_call`: its server says that it ended with calls. `calls` is the number of those that are whole, `broken_calls` that
    of others; `unread`: markup came that began like a call. `text` and `thought` are all that it says. `tools` are the chat
    names of those offered; `tool_ran`: it follows on a tool's output. `stopped`: a string ended it that the client named."""

    reason: FinishReason | None
    says_call: bool = False
    calls: int = 0
    broken_calls: int = 0
    unread: bool = False
    text: str = ""
    thought: str = ""
    tools: Collection[str] = ()
    tool_ran: bool = False
    stopped: bool = False


def outcome_of(end: TurnEnd) -> TurnOutcome | None:
    """Return what an answer came to; None for one that was filtered or broke off, of which nobody can tell."""
    if end.reason == "length":
        return "length"
    if end.reason != "stop":
        return None
    if end.calls:
        return "call"
    if end.stopped:
        return "final"
    if end.broken_calls or end.unread:
        return "malformed_call"
    if end.says_call:
        return "finish_without_call"
    if end.text.strip():
        return _outcome_of_text(end)
    if end.thought.strip():
        return "call_in_thought" if marked_call(end.thought, end.tools) == "whole" else "reasoning_only"
    return "empty"


def _outcome_of_text(end: TurnEnd) -> TurnOutcome:
    if marked_call(end.text, end.tools) != "none":
        return "malformed_call"
    return "announced" if end.tool_ran and announces(end.text) else "final"


class EarlyEnds(msgspec.Struct, frozen=True):
    """How the answers to one request are judged at their ends.

    `continued`: from which of them the model is to go on. `tool_ran`: the request ends with the output of a tool, so that the
    model is in the middle of its work."""

    continued: Continued = "off"
    tool_ran: bool = False

    def are_continued(self, outcome: TurnOutcome, *, tool_ran: bool) -> bool:
        """Tell whether the model is to go on from an answer with this outcome, as far as that alone tells."""
        if self.continued == "all" and outcome == "announced":
            return True
        return self.continued != "off" and is_certain(outcome, tool_ran=tool_ran)


class AsItWas(NamedTuple):
    """How a response ends if the answer that follows on an early end brings nothing: as incomplete for this reason, if any."""

    reason: str | None


class EarlyTurns:
    """The early ends of one response. `as_it_was` is there while an answer follows on one of them, and has brought nothing."""

    __slots__ = ("_in_a_row", "_last", "_total", "as_it_was")

    def __init__(self) -> None:
        self._in_a_row = 0
        self._total = 0
        self._last: TurnEnd | None = None
        self.as_it_was: AsItWas | None = None

    def repeats(self, end: TurnEnd) -> bool:
        """Tell whether an answer says the same as the one that it follows on."""
        last = self._last
        return last is not None and (last.text.strip(), last.thought.strip()) == (end.text.strip(), end.thought.strip())

    def goes_on(self, end: TurnEnd) -> bool:
        """Tell whether the model may go on from an answer whose outcome wants it to."""
        within = self._in_a_row < MOST_IN_A_ROW and self._total < MOST_IN_A_TURN
        return within and not asks(end.text) and not self.repeats(end)

    def begin(self, end: TurnEnd, as_it_was: AsItWas) -> None:
        """Note that the model goes on from an answer."""
        self._in_a_row += 1
        self._total += 1
        self._last = end
        if self.as_it_was is None or as_it_was.reason is not None:
            self.as_it_was = as_it_was

    def progress(self) -> None:
        """Note that the model has made a call, or has answered."""
        self._in_a_row = 0
        self._last = None
        self.as_it_was = None


def is_certain(outcome: TurnOutcome, *, tool_ran: bool) -> bool:
    """Tell whether an answer with this outcome was no end that the model meant. A first thought, before any tool ran, may be
    all that it had to say."""
    return outcome in EARLY and outcome != "announced" and (tool_ran or outcome != "reasoning_only")
