"""Responses that run without a client: in this process, and taken over from processes that died."""
