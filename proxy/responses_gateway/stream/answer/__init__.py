"""One answer of a backend, from its bytes to the deltas of the lifecycle."""
