"""Reaching GPU servers."""
