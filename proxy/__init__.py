"""responses-proxy: OpenAI's Responses API in front of any Chat Completions server."""

__version__ = "0.1.0"
