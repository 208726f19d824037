"""Compares bridges from Responses to Chat Completions: the same streams through each, judged by the same rules.

`make bridges` installs the bridges, runs them, and writes docs/comparison.md.
"""
