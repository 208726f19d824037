"""Readers of the arguments of a call, by notation."""
