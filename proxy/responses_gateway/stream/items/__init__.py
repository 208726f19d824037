"""The items of a response, as they are written."""
