"""URLs in settings."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

_VERSION_SEGMENT = re.compile(r"v\d+[a-z0-9]*")
#: A password in the URL of a database.
_PASSWORD = re.compile(r"(://[^:/@]*:)[^@]*@")


def backend_url(text: str) -> str:
    """The base URL of a Chat Completions server, without a slash at the end: `/v1` is added unless it names a version.

    Raises ValueError for a URL without scheme or host, and for one with credentials, a query or a fragment: those would
    end up in logs. The message does not repeat them.
    """
    text = text.strip()
    if "://" not in text:
        raise ValueError(f"a backend is a URL: did you mean http://{text.rpartition('@')[2]} ?")
    try:
        url = urlsplit(text)
        _ = url.port  # parsed on access, raises for one that is no number
    except ValueError:
        raise ValueError("not a valid URL") from None
    if url.scheme not in ("http", "https"):
        raise ValueError(f"a backend is reached over http or https, not {url.scheme}")
    if "@" in url.netloc or url.query or url.fragment:
        raise ValueError("no user, password, query or fragment in a backend's URL: put its key into backend_api_key")
    if not url.hostname:
        raise ValueError("the URL names no host")
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    if not _VERSION_SEGMENT.fullmatch(path.rpartition("/")[2]):
        path += "/v1"
    return urlunsplit((url.scheme, url.netloc, path, "", ""))


def without_password(url: str) -> str:
    """The URL of a database, its password hidden."""
    return _PASSWORD.sub(r"\1**********@", url)
