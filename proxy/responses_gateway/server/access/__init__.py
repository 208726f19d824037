"""Access control: API keys, rate limits, CORS, and the access log."""
