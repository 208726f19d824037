"""Plain values become the events of a client protocol, and the JSON of its response. No decisions are made here."""
