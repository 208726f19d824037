"""The tools of a request, and the way back to their names."""
