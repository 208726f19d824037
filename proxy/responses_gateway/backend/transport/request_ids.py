"""The id of a request at a backend: a UUID, because some servers (llama-cpp-python) refuse requests with any other id."""

from __future__ import annotations

import re
from functools import lru_cache
from uuid import NAMESPACE_URL, uuid4, uuid5

HEADER = "X-Request-Id"
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# An id that the gateway gave itself: the backend gets the same digits.
_OWN = re.compile(r"req_([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})")


def backend_request_id(request_id: str | None) -> str:
    """Return the UUID for the id of a request: the id itself if it is one, otherwise one that is always the same for the same
    id. Without an id it is a new one."""
    return str(uuid4()) if request_id is None else _derived(request_id)


@lru_cache(maxsize=1024)  # the backend gets it, and later the log
def _derived(request_id: str) -> str:
    if own := _OWN.fullmatch(request_id):
        return "-".join(own.groups())
    return request_id if _UUID.fullmatch(request_id) else str(uuid5(NAMESPACE_URL, f"request:{request_id}"))
