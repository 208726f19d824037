"""The models of Codex's sessions, for its name of a model that no backend serves.

Codex has a request for approval reviewed by the model `codex-auto-review` if it believes to talk to OpenAI. With the gateway's
catalog it asks the model of the session instead, which is what such a request gets here too."""

from __future__ import annotations

from responses_gateway.bounded_memory import TenantValues
from responses_gateway.wire.requests import ResponsesRequest

REVIEW_MODEL = "codex-auto-review"
SESSION_HEADER = "session-id"
_SESSIONS = 1024  # sessions that are remembered, the last ones used


class CodexSessions:
    """Remembers the model of each session, in this process."""

    def __init__(self) -> None:
        self._models: TenantValues[str] = TenantValues(_SESSIONS, _SESSIONS)

    def with_model(self, request: ResponsesRequest, tenant: str, session: str) -> ResponsesRequest:
        """Return the request of a session, for the session's model if it names the review model: or for the model that the
        tenant used last, if the session is not known here. Without any the request stays as it is."""
        if request.model != REVIEW_MODEL:
            self._remember(tenant, session[:64], request.model)
            return request
        model = self._models.get(tenant, session[:64]) or self._models.get(tenant, "")
        return request if model is None else request.model_copy(update={"model": model})

    def _remember(self, tenant: str, session: str, model: str) -> None:
        for name in (session, ""):
            self._models.put(tenant, name, model)
