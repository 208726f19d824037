"""Whether the words of an error say that the prompt does not fit into the model's context.

Servers word it in hundreds of ways, so a sentence is read for its parts: what is measured (the prompt, its tokens, the
context), and that it is more than a limit. Clients compact their history at such an error, and would do so in a loop at any
other one: a limit of what is used in a time, of the output, of bytes, of pictures or of another field is none, whatever its
message says of tokens."""

from __future__ import annotations

import re

# Characters of a message that are read: servers say it early, and some repeat the prompt behind it.
_LONGEST = 2000
_SENTENCES = 50

_MARKS = str.maketrans({"_": " ", "-": " ", "`": " ", '"': " ", "*": " ", "\\": " ", "'": None, "’": None})
_THOUSANDS = re.compile(r"(?<=\d)[,_](?=\d{3}\b)")
_SENTENCE_END = re.compile(r"[.;!?](?=\s|$)|[\n。；！？]")
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")

# What a client sends, but not a field below it (`messages[0].name`), nor a name that begins alike (`prompt_cache_key`).
_SENT = (
    r"(?<![\w.])(?:prompts?|inputs?|messages?|conversation|dialogu?e?|history|context|requests?|query|session|sequence)"
    r"(?![\w\[]|\.\w| cache)"
)
# Its length.
_LENGTH = re.compile(
    rf"{_SENT} (?:text |total |token |sequence )?(?:tokens?|length|len|size|token count)\b"
    rf"|\b(?:length|len|size|range) of (?:\w+ ){{0,3}}?{_SENT}"
    rf"|\b(?:number|count|sum|total|amount) of (?:\w+ ){{0,3}}?{_SENT} (?:\w+ )?(?:tokens?|length)\b"
    rf"|\btokens? (?:\w+ )?(?:in|of|from|for) (?:\w+ ){{0,3}}?(?:{_SENT}|text\b)"
)
# The context, or a setting that has its length.
_CONTEXT = re.compile(
    r"\bcontext (?:length|len|size|window|limit|budget|capacity|tokens)\b|\b(?:max(?:imum)?|models?|tokens?) context\b"
    r"|\bmodels? window\b"
    r"|\bmax(?:imum)? (?:allowed |total )?(?:seq(?:uence)?|model|num|input|prompt|context|message|session|position)s?"
    r" (?:tokens?|len(?:gth)?|size|embeddings)\b"
    r"|\b(?:session|sequence) (?:max )?len(?:gth)?\b|\bn ctx\b|\b(?:model|total|input|prompt)s? tokens? limit\b"
)
_IS_MORE = re.compile(
    r"\bexceed|\boverflow|\bsurpass|\b(?:long|larg|great|bigg|high|small|short)er than\b|\bmore than\b|\bbeyond\b"
    r"|\b(?:over|above) (?:the|this|its|your|our|limit|max(?:imum)?)\b"
    r"|\b(?:length|limit|window|size) (?:is |was |has been )?reached\b|\btoo (?:long|large|big|many)\b|\bless than\b"
    r"|\bat most\b|\b(?:not|\w{2,6}nt) fit\b|\bruns? out of\b|\bran out of\b|\d\)? ?[<>]=? ?(?:\w+ ){0,4}\(?\d"
    r"|\bmust be ?(?:<|under|below|within|no more|shorter|smaller|fewer)|\bshould be \[\d"
)
# Codes of Qianfan, which do not say what is too long.
_CODES = frozenset({"tokens_too_long", "characters_too_long"})
# One of these says it all.
_PHRASES = re.compile(
    r"\bmaximum context length\b|\bout ?of context\b|\bcontext overflow"
    r"|\bmax(?:imum)? (?:prompt|input|sequence) (?:length|tokens?|size|characters) ?(?:is|of|:|=) ?\d"
    r"|\bcontext (?:length|size|window)(?: of the model)?(?: is| of| to| at|:| ?=) ?(?:only |at most )?\d"
    r"|\b(?:prompts?|inputs?|messages?)(?: (?:is|are|was|text|itself|you sent|tokens?|length)){0,3} too (?:long|large|big)\b"
    r"|\b(?:prompt(?! cache)|conversation|history|context)(?: [a-z]+){0,3} too (?:long|large|big)\b"
    r"|\btoo many (?:input|prompt|context) tokens\b"
    r"|\btoo many tokens (?:in|for) (?:\w+ )?(?:prompt|input|messages?|request|context)"
    r"|\b(?:reduce|shorten) (?:the (?:length|size) of )?(?:the |your )?(?:input |chat )?(?:prompt|messages|history|input)\b"
    r"|\d context tokens\b|\bonly (?:[a-z]+ )?\d+ tokens of context\b|\bcontext (?:is )?(?:full|exhausted)\b"
)
_TOKENS = re.compile(r"\d (?:\w+ )?tokens?\b|\btokens?\b.{0,4}\d")
# The tokens of all that the model reads and writes.
_MODEL_TOKENS = re.compile(
    r"\b(?:tokens? (?:limit|count)|total tokens|max(?:imum)? (?:number of )?tokens|max(?:imum)? length)\b"
)
_TOKENS_OR_LENGTH = re.compile(rf"{_TOKENS.pattern}|\bmax(?:imum)? (?:allowed )?len(?:gth)?\b|\btokens? limit\b")
_SENT_AT_ALL = re.compile(_SENT)
# A limit and its number, for what no word tells: another number is larger.
_LIMIT = re.compile(
    r"\b(?:limit|max(?:imum)?|only|supports?|allow(?:s|ed)|capacity|window|context|length)\b"
    r"(?: [a-z]+){0,5}?[ :=(]{0,3}(\d{3,12})\b"
)
_SENT_TOKENS = re.compile(
    r"(?<![\d.])(\d{3,12}) (?:[a-z]+ )?tokens?\b|\b(?:tokens?|received|got|given|sent)[ :=(]{1,3}(\d{3,12})\b"
)
# So many of so many tokens.
_PART_OF_LIMIT = re.compile(r"(?<![\d.])(\d{3,12}) ?(?:/|(?:out )?of) ?(\d{3,12}) (?:[a-z]+ )?tokens?\b")

# In Chinese, Japanese and Korean: what is measured and that it is too much, in one sentence; a limit with its number.
_ASIAN_LENGTH = re.compile(
    r"上下文|[输輸]入|提示[词詞]|[对對][话話]|消息|[请請]求的?(?:[内內]容|token)|总 ?token|文本长度"
    r"|messages|prompt|input|context|プロンプト|入力|コンテキスト|프롬프트|입력|컨텍스트"
)
_ASIAN_IS_MORE = re.compile(
    r"超[长長限出过過え]|[过過太][长長大]|[大高][于於]|不能大|長すぎ|大きすぎ|초과|넘었|너무 ?[길깁긴크큽]"
    r"|最大(?:输入|上下文)(?:长度|token\w*) ?[为是:：]? ?\d"
)

# German, French, Spanish, Portuguese, Italian and Russian: what says that something is more or too long; then, with these,
# words of limits and their meanings. An article may be left before one (`l’entrée`).
_EUROPEAN_IS_MORE = (
    r"überschr\w+|überst\w+|dépass\w+|excèd\w+|exced\w+|super(?:a|an|ato|ata|ado|ada|ó|ior|iore)|ultrapass\w+|sobrepas\w+"
    r"|eccede\w*|превы\w+|(?:größer|länger|mehr) als|plus (?:long|grand)\w* que|más (?:larg|grand)\w* que|maior (?:do )?que"
    r"|più (?:lung|grand)\w* d\w+|(?:больше|длиннее) чем"
)
_EUROPEAN_TOO_LONG = (
    r"(?:zu|trop|demasiado|muy|muito|troppo|слишком) (?:lan|gro|lon|grand|larg|exten|lung|volum|длин|больш|велик)\w*"
    r"|(?:long|grand|extens)\w+ demais"
)
_EUROPEAN = [
    (re.compile(rf"\b[dl]?(?:{words})\b"), meaning)
    for words, meaning in (
        (_EUROPEAN_IS_MORE, "exceeds"),
        (rf"(?:[éè] )?(?:{_EUROPEAN_TOO_LONG})", "too long"),
        (r"(?:pro|par|por|al|в|за) (?:minut\w*|tag|stunde|jour|heure|d[ií]a|hora|giorno|минуту|день|час|сутки|месяц)"
         r"|(?:tages|monat|wochen|journali|quotidien|mens[ui]|mensa[il]|di[aá]ri|giornalier)\w+|täglich\w*", "per day"),
        (r"(?:kontingent|crédit|abonn|баланс|тариф|квот)\w*|cuota|cota|guthaben|solde|saldo", "quota"),
        (r"(?:ausgabe|antwort|g[ée]n[ée]r|вывод|ответ)\w*|sortie|réponse|salida|respuesta|saída|r[ei]sposta|uscita", "output"),
        (r"(?:bild|datei|imagen|immagin|изображен|файл)\w*|image[mn]s?|fichiers?|archivos?|arquivos?", "image"),
        (r"kontext(?:l|f|g)\w+|(?:fenêtre|ventana|janela|finestra|окн\w+) (?:d\w+ )?(?:contex\w+|contes\w+|контекст\w*)",
         "context window"),
        (r"(?:kontext|контекст)\w*|contexte|contexto|contesto", "context"),
        (r"(?:eingabe|anfrage|nachricht|gespräch|mensaj|mensage|messaggi|conversa|вход|запрос|сообщен|диалог|промпт)\w*"
         r"|unterhaltung|entrées?|requête|entradas?|solicitud|solicitação|requisição|richiesta|input", "prompt"),
        (r"\w*(?:länge|größe)|longueur|longitud|comprimento|lunghezza|taille|tama[ñn]ho?|(?:длин|размер)\w*|anzahl", "length"),
        (r"(?:maxim|máxim|massim|максим|erlaubt|grenze|лимит|предел)\w*|l[ií]mites?", "maximum"),
        (r"токен\w*|jetons?", "tokens"),
    )
]  # fmt: skip
_EUROPEAN_CLAIM = re.compile(rf"\b(?:{_EUROPEAN_IS_MORE}|{_EUROPEAN_TOO_LONG})\b")
_EUROPEAN_LENGTH = re.compile(r"\b(length|tokens?) (?:\w+ ){0,3}?(prompt|context)\b")

# Limits of something else, wherever they stand in a message: of what is used in a time or paid for; of ids of tokens; of a
# prompt that is to be cut; of a context that is too small.
_OTHER_LIMIT = re.compile(
    r"\bper (?:minute|min|second|hour|day|week|month)\b|\b[rto]+p[mdsh]\b|\brate ?limit|\bthrottl|\bquota|\btoo many requests\b"
    r"|\bwait (?:before|and|a)\b|\btry again (?:later|in|after)\b|\bretry (?:after|later)\b|\b(?:dai|month|week|hour)ly\b"
    r"|\bbilling\b|\bbalance\b|\bcredits?\b|\bpayment\b|\bconcurren|\b(?:account|organi[sz]ation|plan|subscription|tier|upgrade)\b"
    r"|\bkey has\b|\byour key\b"
    r"|每分钟|每秒|每天|每日|限流|限速|[频頻][率繁]|[额額]度|[余餘][额額]|[配限]额|欠费|[并併]发|套餐|当日"
    r"|1分あたり|毎[分日]|レート|クォータ|분당|일일|할당량|쿼터"
    r"|\btoken ids?\b|\bvocab|\btruncate prompt tokens\b|\btoo small\b"
)
_LOWER_LIMIT = re.compile(r"\b(?:at least|minimum|above|below|fewer)\b")
# The output, whose limit is no matter of the prompt unless both are added up.
_OUTPUT = re.compile(
    r"\bmax(?:imum)? ?(?:completion|output|new|response|generation) ?tokens?\b|\bmax tokens\b(?! allowed)|\bmin tokens\b"
    r"|\bn predict\b|\b(?:completion|output|generated|reasoning|thinking) tokens\b|\bmaximum tokens (?:you|value|requested)"
    r"|\bbudget tokens\b|\bthinking budget\b|\bgenerat(?:e|ed|ion)\b|[输輸]出|生成|出力|출력|생성"
)
_INPUT = re.compile(
    r"\b(?:prompt|messages|conversation|history)\b|\binputs?\b.{0,12}\b(?:tokens?|length|messages)\b"
    r"|\btokens (?:from the|of) input\b|[输輸]入|入力|입력"
)
# A server that takes the prompt from the context for the output, and has less than nothing left.
_NO_ROOM = re.compile(r"\bmax_(?:completion_|new_|output_)?tokens\b[^.\d]{0,40}1\b[^.\d]{0,20}\b(?:got|is|was|given)\b:? -\d")
# The tokens that were asked for, the whole context, and those of the prompt.
_ASKED = re.compile(
    r"\bmax (?:completion |output |new )?tokens\b[^.\d]{0,60}?(\d{2,12})\b"
    r"|\b(\d{2,12}) (?:(?:output|completion) tokens|(?:tokens )?(?:in|for) the (?:completion|output))\b"
)
_WINDOW = re.compile(r"\bcontext (?:length|window|size)\b\D{0,20}(\d{2,12})\b")
_OF_PROMPT = re.compile(
    r"\b(\d{1,12}) (?:(?:input|prompt) tokens|(?:tokens )?(?:in|from) the (?:input )?(?:messages|prompt))\b"
)
# What may be such a limit: no part of a name, an id or a date. No model writes less, and the numbers of statuses are smaller.
_TOKEN_COUNT = re.compile(r"(?<![A-Za-z0-9_.-])\d{4,7}(?![A-Za-z0-9_-]|\.\d)")
_EXCLUSIVE = re.compile(r"\bexclusive\b|\b(?:less|lower|fewer|smaller) than \W{0,2}\d")
# Sizes in bytes and pixels; parts of a request that have limits of their own.
_BYTES = re.compile(r"\d ?(?:[kmgt]i?b|bytes?|px|pixels?)\b|\b(?:mega|kilo)?bytes?\b|\bpixels?\b")
_PART = re.compile(
    r"\b(?:images?|photos?|pictures?|audio|videos?|files?|attachments?|pdf|upload\w*|body|payload|entity|string|array|urls?"
    r"|headers?|descriptions?|schemas?|enums?|arguments?|function name|tool name|stop sequences?|logit bias)\b"
)
_ASIAN_PART = re.compile(r"图|音频|视频|文件|附件|画像|ファイル|音声|動画|이미지|파일|工具|函数")
_OF_TOKENS = re.compile(r"\btokens?\b|\bcontext\b")
_CHARACTERS = re.compile(r"(?<!input )\bcharacters?\b|\bchars\b|字符")
_PROMPT = re.compile(r"\b(?:prompt|conversation|context|messages)\b")


def says_overflow(message: str) -> bool:
    """Tell whether a server's message says that the prompt does not fit."""
    text = _THOUSANDS.sub("", message[:_LONGEST].lower()).translate(_MARKS)
    text = " ".join(_in_english(text).split(" "))
    if _NO_ROOM.search(message[:_LONGEST]):
        return True
    if _OTHER_LIMIT.search(text) or (_OUTPUT.search(text) and not _INPUT.search(text)) or _asks_for_too_much(text):
        return False
    sentences = [" ".join(sentence.split()) for sentence in _SENTENCE_END.split(text)[:_SENTENCES]]
    return any(map(_is_overflow, sentences)) or _is_above_limit(" ".join(sentences))


def names_overflow(code: str) -> bool:
    """Tell whether a code or a type of an error (`context_length_exceeded`, `ContextWindowExceededError`) says it."""
    return code in _CODES or (len(code) <= 100 and says_overflow(_WORD_START.sub(" ", code)))


def most_output(message: str, limit: int) -> int | None:
    """Return the most tokens of output that a server lets a request ask for, whose `limit` is more; None if its message
    says nothing of that: the largest number below what was asked for, where only the output is spoken of."""
    lowered = _THOUSANDS.sub("", message[:_LONGEST].lower())
    text = lowered.translate(_MARKS)
    if paid := re.search(r"\bcan only afford (\d{4,7})\b", text):  # OpenRouter; with fewer there is no answer worth it
        return int(paid[1])
    if not _OUTPUT.search(text) or any(other.search(text) for other in (_INPUT, _WINDOW, _OTHER_LIMIT)):
        return None
    most = max((number for number in map(int, _TOKEN_COUNT.findall(lowered)) if number < limit), default=None)
    return most - 1 if most is not None and _EXCLUSIVE.search(text) else most


def _in_english(text: str) -> str:
    """Return a text of another European language with those of its words in English that tell a limit."""
    if _EUROPEAN_CLAIM.search(text) is None:
        return text
    for words, meaning in _EUROPEAN:
        text = words.sub(meaning, text)
    return _EUROPEAN_LENGTH.sub(r"\2 \1", text)


def _is_overflow(sentence: str) -> bool:
    if _is_of_something_else(sentence):
        return False
    if _PHRASES.search(sentence):
        return True
    if _IS_MORE.search(sentence):
        of_prompt = _SENT_AT_ALL.search(sentence) and _TOKENS_OR_LENGTH.search(sentence)
        of_model = "model" in sentence and _MODEL_TOKENS.search(sentence)
        return bool(_CONTEXT.search(sentence) or _LENGTH.search(sentence) or of_prompt or of_model)
    return bool(_ASIAN_IS_MORE.search(sentence) and _ASIAN_LENGTH.search(sentence))


def _is_of_something_else(sentence: str) -> bool:
    """Tell whether a sentence is about bytes, characters of a field, or a part of the request."""
    if _BYTES.search(sentence):
        return True
    if (_PART.search(sentence) or _ASIAN_PART.search(sentence)) and not _OF_TOKENS.search(sentence):
        return True
    return _CHARACTERS.search(sentence) is not None and _PROMPT.search(sentence) is None


def _asks_for_too_much(text: str) -> bool:
    """Tell whether the output that was asked for would not fit by itself, and the prompt would: no shorter one helps."""
    output = number_in(_ASKED, text)
    window = number_in(_WINDOW, text)
    return bool(output and window and output >= window and (number_in(_OF_PROMPT, text) or 0) < window)


def number_in(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the number that one of a pattern's groups finds in a text."""
    match = pattern.search(text)
    return next((int(group) for group in match.groups() if group is not None), None) if match is not None else None


def _is_above_limit(text: str) -> bool:
    """Tell whether a text about tokens of the prompt has the number of a limit, and a larger one."""
    if not (_INPUT.search(text) and _OF_TOKENS.search(text)) or _PART.search(text) or _LOWER_LIMIT.search(text):
        return False
    if any(int(match[1]) > int(match[2]) for match in _PART_OF_LIMIT.finditer(text)):
        return True
    limits = [int(match[1]) for match in _LIMIT.finditer(text)]
    sent = [int(match[1] or match[2]) for match in _SENT_TOKENS.finditer(text)]
    return bool(limits and sent) and max(sent) > min(limits)
