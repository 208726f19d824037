"""What a backend can do, and which settings fit it."""
