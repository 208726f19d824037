"""Ask a server's own tokenizer (vLLM's `/tokenize`) how the chat template of its model ends, and which tokens mark thoughts."""

from __future__ import annotations

import json
from typing import Any

from responses_gateway import parsers
from responses_gateway.parsers.prompt_end import ends_open, prompt_end_of
from responses_gateway.probing.known_models import KnownModel
from responses_gateway.probing.questions import USER, Questions


async def ask_chat_template(questions: Questions) -> KnownModel:
    """Find out whether the prompt of a plain request ends inside reasoning, and by which tokens that is seen, there and in an
    answer. Nothing is found out where the server does not tell. Raise `ApiError` if it cannot be reached."""
    openings, _ = parsers.reasoning_markers("auto")
    words = "\n".join(parsers.thought_markers()) + "\n\n "
    tokens = await _tokens(questions, prompt=words, add_special_tokens=False)
    prompt_end = prompt_end_of(tokens, openings)
    prompt = "".join(text for _, text in await _tokens(questions, messages=[USER]))
    return KnownModel(
        opens=ends_open(prompt, openings) if prompt else None,
        prompt_end=prompt_end if prompt_end.openings else None,
        thoughts=parsers.thought_tokens({text: token for token, text in tokens}),
    )


async def _tokens(questions: Questions, **what: Any) -> list[tuple[int, str]]:
    """Return the ids and texts of the tokens of a prompt, or of messages in their template; none where the server refuses."""
    body = {"model": questions.profile.model, "return_token_strs": True, **what}
    status, answer = await questions.get("tokenize", below=questions.backend.root, data=json.dumps(body).encode())
    ids, texts = (answer.get("tokens"), answer.get("token_strs")) if isinstance(answer, dict) else (None, None)
    if status != 200 or not isinstance(ids, list) or not isinstance(texts, list):
        return []
    return [(token, text) for token, text in zip(ids, texts, strict=False) if isinstance(token, int) and isinstance(text, str)]
