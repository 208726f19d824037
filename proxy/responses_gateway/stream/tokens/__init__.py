"""Tokens of an answer by kind, counted or estimated."""
