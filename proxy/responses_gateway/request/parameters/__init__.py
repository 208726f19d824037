"""The parameters of a request."""
