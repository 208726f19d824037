"""Steering over a WebSocket: input for a response while it is made."""
