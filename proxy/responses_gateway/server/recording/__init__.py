"""Exchanges written to files, without secrets."""
