"""One file per model family: its markup as data."""
