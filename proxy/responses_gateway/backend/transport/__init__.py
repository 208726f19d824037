"""HTTP to a chat server."""
