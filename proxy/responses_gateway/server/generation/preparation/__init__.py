"""From a Responses request to all that is needed to ask a backend and to read its answer."""
