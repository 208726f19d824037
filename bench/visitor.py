"""A visitor of the window: reads the live connection of a gateway, as the page does, until the block ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from threading import Thread


@contextmanager
def visiting(port: int) -> Iterator[None]:
    """Look through the window of the gateway on a local port."""
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/ui/api/live")
    answer = connection.getresponse()
    if answer.status != 200:
        raise OSError(f"the window answered {answer.status}")

    def read() -> None:
        with suppress(OSError, HTTPException, ValueError, AttributeError):  # at the end it is closed from the other side
            while answer.readline():
                pass

    reader = Thread(target=read, name="visitor", daemon=True)
    reader.start()
    try:
        yield
    finally:
        if connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(2)
        reader.join()
        connection.close()
