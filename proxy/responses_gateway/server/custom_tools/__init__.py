"""Inputs of custom tools, checked against their grammars."""
