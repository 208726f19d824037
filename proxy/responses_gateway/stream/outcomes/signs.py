"""Signs of what an answer is, by its text alone: does it ask something, or announce a step?

Word lists fire on good answers ("let me know", "I will need to"), and know few languages. So a step counts as announced by how
the text is written, in any language: it is short, and stops where something has to follow. Besides, the last sentence may say
in the first person what is done now: only with a verb of work, and without a condition or a word to the reader."""

from __future__ import annotations

import re

# Characters. Longer texts are reports.
_LONGEST_ANNOUNCEMENT = 400
# The end of a text in which a question would stand.
_TAIL = 1_000
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
    said = _CODE.sub("it", text).rstrip(_CLOSING)
    start = max(map(said.rstrip(_SENTENCE_ENDS).rfind, f"{_SENTENCE_ENDS}\n")) + 1
    sentence = said[start:].strip(" ,;、，`*_").lower().replace("’", "'") + " "
    return any(step.match(sentence) and not other.search(sentence) for step, other in _STEP_NOW)
