"""Find out what a backend can do, and which settings fit it."""
