"""Calls of the models: how valid they are, and what is repaired."""
