"""Web search: providers, pages as text, the tool of a response, and the commands of Codex."""
