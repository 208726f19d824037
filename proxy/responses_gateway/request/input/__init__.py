"""The input of a request: items become messages."""
