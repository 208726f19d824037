"""Who may ask, and how much: keys, rate limits, CORS."""
