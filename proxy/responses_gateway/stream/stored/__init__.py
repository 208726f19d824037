"""Streams of stored responses: replayed from the finished response, or ended in place of a gateway that died."""
