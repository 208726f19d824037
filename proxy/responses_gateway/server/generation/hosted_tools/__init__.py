"""The tools that the gateway runs itself, in one response."""
