"""Making one response, whoever asks for it. No HTTP."""
