"""Chat chunks, and the markup in their text, become deltas."""
