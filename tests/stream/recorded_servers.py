"""Two vLLM servers of the recorded model: what one has sent for an answer, with the ids of all tokens, and what the other
one sends that continues it from any of them.

Few recordings have ids. So the text of each chunk is looked for in the script that the model plays, which tells how many tokens
it has come with; between such chunks are those with ids alone, as vLLM sends them."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

from tokenizers import Tokenizer

from tests.data_folder import TINY_MODEL
from tests.stream.test_recorded_streams import Recording

_END = 1486  # <|im_end|>
_BROKEN = "\ufffd"


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TINY_MODEL / "tokenizer.json"))


def encode(text: str) -> list[int]:
    """Return the ids of a text as the model writes it: what it quotes in an argument is no marker."""
    before, quoted, after = text.partition('"<think>')
    if quoted:
        return [number for part in (f'{before}"', "<", "think", ">", after) for number in encode(part)]
    return list(tokenizer().encode(text, add_special_tokens=False).ids)


def decode(ids: Sequence[int]) -> str:
    return _decoded(tuple(ids))


@cache
def _decoded(ids: tuple[int, ...]) -> str:
    """Decode ids; kept, because each recording is looked at token by token, many times."""
    return str(tokenizer().decode(ids, skip_special_tokens=False))


class RecordedServers:
    """`prompt` and `ids` are the tokens of an answer, `texts` what comes with each, `chunks` the events that the first server
    sends; the answer may be `cut` by a limit."""

    def __init__(self, recording: Recording) -> None:
        entry = recording.entry
        self._script = entry["script"]
        self.cut = recording.cut
        tail = encode(entry["prompt_tail"])
        self.prompt = [_END] * (entry["server"]["usage"]["prompt_tokens"] - len(tail)) + tail
        ids = encode(self._script)
        self.ids = ids[: entry["expected"]["completion_tokens"]] if self.cut else [*ids, _END]
        self.texts = _texts_of(self.ids)
        self._usage = entry["server"]["usage"]
        self.chunks = self._recorded(recording.data)

    def continued(self, asked: Sequence[int]) -> list[bytes]:
        """Return what `/v1/completions` sends for these ids."""
        known = len(asked) - len(self.prompt)
        assert list(asked) == [*self.prompt, *self.ids[:known]]
        events: list[bytes] = []
        for at in range(known, len(self.ids)):
            last = at == len(self.ids) - 1
            choice = {
                "index": 0,
                "text": "" if self.ids[at] == _END else self.texts[at],
                "finish_reason": ("length" if self.cut else "stop") if last else None,
                "token_ids": [self.ids[at]],
                "prompt_token_ids": list(asked) if at == known else None,
            }
            events.append(_event({"choices": [choice]}))
        usage = {"prompt_tokens": len(asked), "completion_tokens": len(self.ids) - known}
        return [*events, *_end(usage)]

    def _recorded(self, data: bytes) -> list[bytes]:
        events = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
        choices = [event["choices"][0] for event in events if event["choices"]][1:]
        role = _choice({"role": "assistant", "content": ""})
        chunks = [_event({"choices": [role], "prompt_token_ids": self.prompt})]
        sent = 0
        for choice, count in zip(choices, self._counts(choices), strict=True):
            alone = [_choice({}, token_ids=[number]) for number in self.ids[sent : count - 1]]
            ids = self.ids[max(sent, count - 1) : count]
            chunks += [_event({"choices": [entry]}) for entry in (*alone, {**choice, "token_ids": ids})]
            sent = max(sent, count)
        return [*chunks, *_end(self._usage)]

    def _counts(self, choices: Sequence[dict[str, Any]]) -> list[int]:
        """Return for each chunk how many tokens have come with it: as few as have all of its text."""
        begins = list(accumulate(map(len, self.texts[:-1]), initial=0))  # of each text
        counts: list[int] = []
        place = 0  # in the script
        count = 0
        for choice in choices:
            for piece in _pieces(choice["delta"]):
                place = self._behind(piece, place)
            least = bisect_left(begins, place)
            count = min(len(self.ids) - 1, max(count + 1, least))
            counts.append(len(self.ids) if choice["finish_reason"] else count)
        return counts

    def _behind(self, piece: str, place: int) -> int:
        """Return where a piece of what was said ends in the script, from some place on: of arguments that the server has put
        together, their last word."""
        for part in (piece, *reversed(re.findall(r"\w+", piece))):
            at = self._script.find(part, place)
            if at >= 0:
                return at + len(part)
        return place


def servers_of(recording: Recording) -> RecordedServers:
    """Return the servers of a recording, which are made once."""
    key = recording.setting, recording.name
    if key not in _servers:
        _servers[key] = RecordedServers(recording)
    return _servers[key]


_servers: dict[tuple[str, str], RecordedServers] = {}


def _texts_of(ids: Sequence[int]) -> list[str]:
    """Return the text that comes with each token: a character comes with the last of its tokens."""
    texts: list[str] = []
    held: list[int] = []
    for number in ids:
        held.append(number)
        text = decode(held)
        whole = not text.endswith(_BROKEN)
        texts.append(text if whole else "")
        if whole:
            held.clear()
    return texts


def _pieces(delta: dict[str, Any]) -> list[str]:
    pieces = [delta.get("reasoning"), delta.get("content")]
    for call in delta.get("tool_calls") or ():
        pieces += [call["function"].get("name"), call["function"].get("arguments")]
    return [piece for piece in pieces if piece]


def _choice(delta: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **fields}


def _event(payload: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"object": "chat.completion.chunk", **payload}).encode() + b"\n\n"


def _end(usage: dict[str, Any]) -> list[bytes]:
    return [_event({"choices": [], "usage": usage}), b"data: [DONE]\n\n"]
