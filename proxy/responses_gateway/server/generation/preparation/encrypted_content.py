"""Encrypted content: compacted histories and reasoning, which a client keeps for us and cannot read.

Encrypted with AES-256-GCM, bound to the kind of content and to the tenant it was made for. An encrypted text names the key it
was made with: one of another server is passed over like any foreign content, one of ours that was changed is refused. Reasoning
has a signature of its own, which tells whether it was changed, or made for another tenant: then it is passed over, too."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import zlib
from collections.abc import Container, Iterable, Sequence
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from responses_gateway.request.input.call_matching import open_items
from responses_gateway.request.input.items import reasoning_text
from responses_gateway.stream.items.text_items import sealed_members
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.requests import user_message

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Kind = Literal["compaction", "reasoning", "client_key"]
Item = dict[str, Any]

_MARK = "rp1."
# Of a text after which its signature stands.
_SIGNED_MARK = "rp2."
# Bytes of a signature, and of the nonce of AES-GCM.
_SIGNATURE = 16
_NONCE = 12
# Largest text that is decrypted, in bytes, because what was encrypted was an answer of a model.
_LIMIT = 64 * 1024 * 1024

_COMPACTED = (
    "The conversation up to here was replaced by this summary of it. Build on the work that was done and do not repeat it.\n\n"
)
# A tuple, since a client may give anything as a type, even something that has no hash.
_COMPACTIONS = ("compaction", "compaction_summary", "context_compaction")
_ENCRYPTED = (*_COMPACTIONS, "reasoning")

# The user message that takes the place of a `compaction_trigger`.
COMPACTION_PROMPT = (
    "The conversation is about to be replaced by a summary, which is all that will be left of it. Write this handoff summary "
    "now, for a model that takes over the work: what the user wants, in their own words where they matter; what was done and "
    "found so far, with file names, commands, identifiers and numbers; decisions and the reasons for them; what is left to do "
    "and what comes next. Write the summary alone, and call no tools."
)


class Encryption:
    """Encrypts and decrypts for one gateway, and for all that share its key."""

    def __init__(self, key: bytes) -> None:
        """`key`: any secret; 32 random bytes are best."""
        self._key = hashlib.sha256(b"responses-gateway seal\0" + key).digest()
        name = hashlib.sha256(self._key).hexdigest()[:12]
        self._mark = f"{_MARK}{name}."
        self._signed_mark = f"{_SIGNED_MARK}{name}."

    @cached_property
    def _cipher(self) -> AESGCM:
        """The cipher: its library takes 7 MB, and many gateways never encrypt anything."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        return AESGCM(self._key)

    def encrypt(self, kind: Kind, tenant: str, model: str, text: str) -> str:
        """Return the encrypted text, which remembers the model that wrote it."""
        payload = zlib.compress(msgspec.json.encode([model, text.encode("utf-8", "replace").decode()]))
        nonce = secrets.token_bytes(_NONCE)
        encrypted = nonce + self._cipher.encrypt(nonce, payload, _bound_to(kind, tenant))
        if kind == "reasoning":
            return self._signed_mark + base64.urlsafe_b64encode(encrypted + self._signature(encrypted)).decode()
        return self._mark + base64.urlsafe_b64encode(encrypted).decode()

    def _signature(self, encrypted: bytes) -> bytes:
        """Return what only a holder of the key can make, whatever the tenant."""
        return hmac.digest(self._key, encrypted, "sha256")[:_SIGNATURE]

    def decrypt(self, kind: Kind, tenant: str, content: str, param: str) -> tuple[str, str] | None:
        """Return model and text; None if it was not encrypted with this key, or is reasoning of another tenant. Raise
        `ApiError` 400 if it was changed since, or belongs to another tenant."""
        signed = kind == "reasoning" and content.startswith(self._signed_mark)
        mark = self._signed_mark if signed else self._mark
        if not content.startswith(mark):
            return None
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  (as above)

        try:
            data = base64.b64decode(content[len(mark) :], altchars=b"-_", validate=True)
            if mark + base64.urlsafe_b64encode(data).decode() != content:  # spare bits of the last character were changed
                raise _changed_since(param)
            if signed:
                signature = data[-_SIGNATURE:]
                data = data[:-_SIGNATURE]
                if not hmac.compare_digest(signature, self._signature(data)):
                    raise _changed_since(param)
            payload = self._cipher.decrypt(data[:_NONCE], data[_NONCE:], _bound_to(kind, tenant))
            model, text = msgspec.json.decode(zlib.decompressobj().decompress(payload, _LIMIT), type=tuple[str, str])
        except InvalidTag:
            if signed:  # unchanged, so that it is another tenant's
                return None
            raise _changed_since(param) from None
        except (ValueError, zlib.error):
            raise _changed_since(param) from None
        return model, text

    def decrypt_items(self, items: list[Any], tenant: str, model: str, path: str, start: int = 0) -> list[Any]:
        """Return the items as the model is to read them: summaries as messages, encrypted reasoning as text if this model
        wrote it. Others stay as they are; where all do, it is the same list. `start` items come before them at `path`. Raise
        `ApiError` 400."""
        for item in items:
            if type(item) is dict and "encrypted_content" in item:
                break
        else:
            return items
        new_items = [
            self._decrypted(item, tenant, model, f"{path}[{index}]")
            if isinstance(item, dict) and "encrypted_content" in item
            else item
            for index, item in enumerate(items, start)
        ]
        return items if all(map(is_, new_items, items)) else new_items

    def since_compaction(self, items: list[Any], inputs: Container[int] = ()) -> list[Any]:
        """Return a history without what its last compaction has replaced. One at a position in `inputs` replaces nothing."""
        replaced = self.replaced(items, inputs)
        return [item for index, item in enumerate(items) if index not in replaced] if replaced else items

    def replaced(self, items: Sequence[Any], inputs: Container[int] = ()) -> frozenset[int]:
        """Return the positions of what the last compaction replaces: all items before it, except system and developer messages,
        approvals that are open, and asynchronous calls without output. A compaction that was encrypted elsewhere cannot be read
        here, and replaces nothing, and neither does one at a position in `inputs`."""
        encrypted = [index for index, item in enumerate(items) if isinstance(item, dict) and "encrypted_content" in item]
        last = next((index for index in reversed(encrypted) if index not in inputs and self._is_ours(items[index])), 0)
        if not last:
            return frozenset()
        kept = open_items(items[:last])
        return frozenset(index for index in range(last) if index not in kept and not is_instruction(items[index]))

    def _is_ours(self, item: Any) -> bool:
        content = item.get("encrypted_content") if is_compaction(item) else None
        return isinstance(content, str) and content.startswith(self._mark)

    def _decrypted(self, item: Item, tenant: str, model: str, path: str) -> Any:
        content = item["encrypted_content"]
        if content is None or item.get("type") not in _ENCRYPTED:
            return item
        kind = item["type"]
        param = f"{path}.encrypted_content"
        if not isinstance(content, str):
            raise invalid_request(f"Invalid type for '{param}': a string is expected.", param, "invalid_type")
        if kind in _COMPACTIONS:
            decryption = self.decrypt("compaction", tenant, content, param)
            return item if decryption is None else user_message(_COMPACTED + decryption[1])
        decryption = self.decrypt("reasoning", tenant, content, param)  # verified even where the text is given too
        if decryption is None or decryption[0] != model:
            return item
        missing = {name: value for name, value in sealed_members(decryption[1]).items() if not item.get(name)}
        return {**item, **missing} if missing else item


def is_compaction(item: Any) -> bool:
    """Tell whether something is an item that replaces all that came before it."""
    return isinstance(item, dict) and item.get("type") in _COMPACTIONS


def is_instruction(item: Any) -> bool:
    """Tell whether something is a system or developer message."""
    return isinstance(item, dict) and item.get("type") in (None, "message") and item.get("role") in ("system", "developer")


def _bound_to(kind: Kind, tenant: str) -> bytes:
    return f"{kind}\0{tenant}".encode()


def _changed_since(param: str) -> ApiError:
    message = "The encrypted content could not be verified: it was changed, or made for another API key."
    return invalid_request(message, param, "invalid_encrypted_content")


def removed_reasoning(items: Iterable[Any], encryption: Encryption, tenant: str, model: str) -> list[Item]:
    """Return an entry for each reasoning item that is encrypted and has no other text, unless this model wrote it. `items` are
    as the client gave them, after a translation without error."""
    notices = []
    for item in items:
        if isinstance(item, dict) and item.get("type") == "reasoning" and isinstance(item.get("id"), str):
            content = item.get("encrypted_content")
            reason = None if content is None or reasoning_text(item, "") else _reason(content, encryption, tenant, model)
            if reason is not None:
                notices.append({"type": "reasoning", "id": item["id"], "action": "removed", "reason": reason})
    return notices


def _reason(content: str, encryption: Encryption, tenant: str, model: str) -> str | None:
    read = encryption.decrypt("reasoning", tenant, content, "input")
    if read is None:
        return "organization_mismatch"
    return None if read[0] == model else "model_mismatch"
