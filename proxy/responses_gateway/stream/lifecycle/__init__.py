"""The state machine of a response."""
