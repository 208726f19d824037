"""The real Claude Code in front of gateway and simulator: what its user sees, and what becomes of the files."""
