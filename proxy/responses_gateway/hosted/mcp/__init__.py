"""MCP servers: connections, lists of tools, calls."""
