"""Adapters for trainers, checked with the real types of each framework: see `make trainers`."""
