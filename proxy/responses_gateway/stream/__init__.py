"""A chat stream becomes a Responses stream: bytes in, bytes out, no I/O."""
