"""The two languages as they stand on the wire: types and codecs, no decisions."""
