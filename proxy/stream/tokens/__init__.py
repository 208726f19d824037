"""Counting the tokens of a response."""
