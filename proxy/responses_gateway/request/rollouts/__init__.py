"""Rollouts: runs of an agent whose tokens are kept for a trainer. What names one, and which of its calls a prompt continues."""
