"""The wire formats of both APIs: types and codecs, no decisions."""
