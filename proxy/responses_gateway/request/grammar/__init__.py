"""Grammars of custom tools, as regular expressions."""
