"""Check the `web_search` tool of a request: a restriction that cannot be read must not be searched without."""

from __future__ import annotations

from responses_gateway.request.fields import Object, optional_object, quote, wrong_type
from responses_gateway.wire.errors import invalid_request

MOST_DOMAINS = 100
_SIZES = ("low", "medium", "high")


def check_web_search(tool: Object, path: str) -> None:
    """Raise `ApiError` 400 for filters, a location or a size that are not what they should be."""
    filters = optional_object(tool, "filters", path) or {}
    for name in ("allowed_domains", "blocked_domains"):
        _check_domains(filters.get(name), f"{path}.filters.{name}")
    optional_object(tool, "user_location", path)
    size = tool.get("search_context_size")
    if size is not None and size not in _SIZES:
        param = f"{path}.search_context_size"
        supported = ", ".join(f"'{name}'" for name in _SIZES)
        raise invalid_request(f"Invalid value: {quote(size)}. Supported values are: {supported}.", param, "invalid_value")


def _check_domains(domains: object, param: str) -> None:
    if domains is None:
        return
    if not isinstance(domains, list):
        raise wrong_type(param, "a list of domains")
    if len(domains) > MOST_DOMAINS:
        raise invalid_request(f"'{param}' has more than {MOST_DOMAINS} domains.", param, "invalid_value")
    for index, domain in enumerate(domains):
        if not isinstance(domain, str) or not domain.strip():
            raise wrong_type(f"{param}[{index}]", "a domain, such as 'example.com'")
