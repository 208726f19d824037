"""A client's own key for the backend, of a response that may outlive the process that was asked for it: sealed, it is kept with
the response, and deleted with what is kept.

Nobody can read it with the store alone, because the key it is sealed with is not in there (`server/setup/seal_key.py`). Where
there is no such key, no client's key is kept."""

from __future__ import annotations

import msgspec

from responses_gateway.backend.models import ServedModels
from responses_gateway.server.generation.preparation.context import Caller
from responses_gateway.server.generation.preparation.encrypted_content import Encryption
from responses_gateway.server.generation.preparation.kept_response import KeptResponse, UnreadableResponse
from responses_gateway.settings import Settings
from responses_gateway.wire.errors import ApiError

_HEADER = "Authorization"


class ClientKeys(msgspec.Struct, frozen=True, eq=False):
    """Seals and opens the keys. `encryption`: None where none is kept."""

    models: ServedModels
    encryption: Encryption | None

    def kept(self, caller: Caller, model: str, settings: Settings) -> bool:
        """Tell whether what a backend needs of the client's key is there after the request, too."""
        return self.encryption is not None or not self._needed(caller, model, settings)

    def sealed(self, caller: Caller, model: str, settings: Settings) -> str | None:
        """Return the client's key, sealed; empty where no backend of the model gets it, None where it is not kept."""
        if not self._needed(caller, model, settings):
            return ""
        if self.encryption is None:
            return None
        # As the bytes that were sent, because a header may have any.
        key = caller.headers[_HEADER].encode("utf-8", "surrogateescape").decode("latin-1")
        return self.encryption.encrypt("client_key", caller.tenant, model, key)

    def headers(self, kept: KeptResponse) -> dict[str, str]:
        """Return the headers of the client's request, its key among them. Raise `UnreadableResponse`."""
        if not kept.client_key:
            return dict(kept.headers)
        opened = self._opened(kept)
        if opened is None:
            raise UnreadableResponse("the client's key was sealed with another seal_key")
        return {**kept.headers, _HEADER: opened.encode("latin-1").decode("utf-8", "surrogateescape")}

    def _opened(self, kept: KeptResponse) -> str | None:
        if self.encryption is None:
            return None
        try:
            decryption = self.encryption.decrypt("client_key", kept.tenant, kept.client_key, "")
        except ApiError:
            return None
        return None if decryption is None else decryption[1]

    def _needed(self, caller: Caller, model: str, settings: Settings) -> bool:
        """Tell whether a backend gets the client's key: one that has a key of its own does not."""
        return settings.forwards_client_key and _HEADER in caller.headers and self.models.take_client_key(model)
