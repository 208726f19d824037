"""Questions about an input, each answered with one token of the backend."""
