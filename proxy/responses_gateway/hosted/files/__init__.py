"""Searching in files, by the tools of MCP servers."""
