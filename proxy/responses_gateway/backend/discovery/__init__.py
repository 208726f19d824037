"""Finds the members of pools: backends that come and go by themselves."""
