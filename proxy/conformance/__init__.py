"""Judges a Responses stream; depends on nothing that writes one."""
