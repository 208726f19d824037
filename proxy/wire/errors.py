"""The error object of the Responses API, as an exception that any package may raise."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """An error as the client will see it: HTTP status and the four fields of OpenAI's error object. `code` is a string or None,
    never a number (the SDKs' models require it). `retry_after` is in seconds. `quoted`: message and `param` come from a backend
    and may repeat parts of the request."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        quoted: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.quoted = quoted

    def copy(self) -> ApiError:
        """Return the same error without its traceback, whose frames would keep the whole request in memory."""
        copied = ApiError(self.status, self.message)
        copied.__dict__.update(self.__dict__)
        return copied

    def body(self) -> dict[str, Any]:
        """Return the JSON body: `{"error": {"message", "type", "param", "code"}}`."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def invalid_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return a 400: the request itself is wrong; `param` names the field (e.g. `input[3].output`)."""
    return ApiError(400, message, param=param, code=code)


def server_error(message: str, status: int = 502) -> ApiError:
    """Return the error for a failure of the backend or of the gateway: 502 by default; clients may retry."""
    return ApiError(status, message, type="server_error", code="server_error")
