"""Tools that the gateway runs itself: web search, MCP servers, file search, code."""
