"""Text that a client keeps for us and cannot read: compacted histories and reasoning.

Sealed with AES-256-GCM, bound to the kind of content and to the API key it was made for. A sealed text names the key it was
sealed with: one of another server is passed over like any foreign content, one of ours that was tampered with is refused.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.wire.errors import ApiError, invalid_request

Kind = Literal["compaction", "reasoning"]
Item = dict[str, Any]

_MARK = "rp1."
_NONCE = 12
#: Largest text that is unsealed, in bytes: what was sealed was an answer of a model.
_LIMIT = 64 * 1024 * 1024

_COMPACTED = (
    "The conversation up to here was replaced by this summary of it. Build on the work that was done and do not repeat it.\n\n"
)
#: A tuple, since what a client calls a type may be anything, even what has no hash.
_COMPACTIONS = ("compaction", "compaction_summary", "context_compaction")
_SEALED = (*_COMPACTIONS, "reasoning")

#: The user message that stands for a `compaction_trigger`.
COMPACTION_PROMPT = (
    "The conversation is about to be replaced by a summary, which is all that will be left of it. Write this handoff summary "
    "now, for a model that takes over the work: what the user wants, in their own words where they matter; what was done and "
    "found so far, with file names, commands, identifiers and numbers; decisions and the reasons for them; what is left to do "
    "and what comes next. Write the summary alone, and call no tools."
)


class Seal:
    """Seals and opens for one gateway (all that share the key)."""

    def __init__(self, key: bytes) -> None:
        """`key`: any secret; 32 random bytes are best."""
        derived = hashlib.sha256(b"responses-proxy seal\0" + key).digest()
        self._cipher = AESGCM(derived)
        self._mark = f"{_MARK}{hashlib.sha256(derived).hexdigest()[:12]}."

    def close(self, kind: Kind, tenant: str, model: str, text: str) -> str:
        """The sealed text. It remembers the model that wrote it."""
        payload = zlib.compress(msgspec.json.encode([model, text.encode("utf-8", "replace").decode()]))
        nonce = secrets.token_bytes(_NONCE)
        sealed = nonce + self._cipher.encrypt(nonce, payload, _bound_to(kind, tenant))
        return self._mark + base64.urlsafe_b64encode(sealed).decode()

    def open(self, kind: Kind, tenant: str, sealed: str, param: str) -> tuple[str, str] | None:
        """Model and text; None if it was not sealed with this key. Raises `ApiError` 400 if it was changed since, or belongs
        to somebody else."""
        if not sealed.startswith(self._mark):
            return None
        try:
            data = base64.b64decode(sealed[len(self._mark) :], altchars=b"-_", validate=True)
            if self._mark + base64.urlsafe_b64encode(data).decode() != sealed:  # bits that no byte is made of
                raise _tampered(param)
            payload = self._cipher.decrypt(data[:_NONCE], data[_NONCE:], _bound_to(kind, tenant))
            model, text = msgspec.json.decode(zlib.decompressobj().decompress(payload, _LIMIT), type=tuple[str, str])
        except (InvalidTag, ValueError, zlib.error):
            raise _tampered(param) from None
        return model, text

    def open_items(self, items: list[Any], tenant: str, model: str, path: str) -> list[Any]:
        """The items as the model is to read them: summaries as messages, sealed reasoning as text if this model thought it.
        Others stay as they are. Raises `ApiError` 400."""
        return [self._opened(item, tenant, model, f"{path}[{index}]") for index, item in enumerate(items)]

    def since_compaction(self, items: list[Any]) -> list[Any]:
        """A history without what its last compaction has replaced."""
        replaced = self.replaced(items)
        return [item for index, item in enumerate(items) if index not in replaced]

    def replaced(self, items: Sequence[Any]) -> frozenset[int]:
        """The places of what the last compaction stands for: all before it but the instructions that were given on the way.
        One that was sealed elsewhere cannot be read here, and stands for nothing."""
        last = max((index for index, item in enumerate(items) if self._is_ours(item)), default=0)
        return frozenset(index for index in range(last) if not is_instruction(items[index]))

    def _is_ours(self, item: Any) -> bool:
        sealed = item.get("encrypted_content") if is_compaction(item) else None
        return isinstance(sealed, str) and sealed.startswith(self._mark)

    def _opened(self, item: Any, tenant: str, model: str, path: str) -> Any:
        sealed = item.get("encrypted_content") if isinstance(item, dict) else None
        if sealed is None or item.get("type") not in _SEALED:
            return item
        kind, param = item["type"], f"{path}.encrypted_content"
        if not isinstance(sealed, str):
            raise invalid_request(f"Invalid type for '{param}': a string is expected.", param, "invalid_type")
        if kind in _COMPACTIONS:
            found = self.open("compaction", tenant, sealed, param)
            return item if found is None else _message(_COMPACTED + found[1])
        found = self.open("reasoning", tenant, sealed, param)  # also where the text is there: nobody may have changed the seal
        if found is not None and found[0] == model and not item.get("content"):
            return {**item, "content": [{"type": "reasoning_text", "text": found[1]}]}
        return item


def is_compaction(item: Any) -> bool:
    """The item, if it is one at all, stands for all that came before it."""
    return isinstance(item, dict) and item.get("type") in _COMPACTIONS


def is_instruction(item: Any) -> bool:
    """The item, if it is one at all, is a system or developer message."""
    return isinstance(item, dict) and item.get("type", "message") == "message" and item.get("role") in ("system", "developer")


def _bound_to(kind: Kind, tenant: str) -> bytes:
    return f"{kind}\0{tenant}".encode()


def _message(text: str) -> Item:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _tampered(param: str) -> ApiError:
    message = "The encrypted content could not be verified: it was changed, or made for another API key."
    return invalid_request(message, param, "invalid_encrypted_content")
