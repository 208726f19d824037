"""The addresses of backends while the DNS cannot be reached."""

from __future__ import annotations

import socket
import time
from threading import Event
from typing import Any
from unittest import mock

import pytest

from tests.server.running_gateway import gateway, post, run
from tests.server.scripted_backend import HEAD, Connection, backend, chat_stream
from tests.waiting import PATIENCE

AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
real = socket.getaddrinfo


class Names:
    """What the DNS says of `backend.example`: an address, or a failure."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.answers = Event()
        self.answers.set()

    def look_up(self, host: str, *arguments: Any, **named: Any) -> Any:
        if host != "backend.example":
            return real(host, *arguments, **named)
        self.answers.wait(PATIENCE)
        if self.failure is not None:
            raise self.failure
        return real("127.0.0.1", *arguments, **named)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "silent", "status"), [(AGAIN, False, "completed"), (AGAIN, True, "completed"), (UNKNOWN, False, None)]
)
def test_connections_are_made_to_the_last_addresses(failure: Exception, silent: bool, status: str | None) -> None:
    names = Names()

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*chat_stream())
        connection.transport.close()  # so that each request needs another connection

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url.replace("127.0.0.1", "backend.example")) as served:
            assert (await post(served, stream=False)).json["status"] == "completed"
            names.failure = failure
            if silent:
                names.answers.clear()
            later = time.monotonic() + 60  # addresses are kept for 30 seconds
            with mock.patch("aiohttp.connector.monotonic", return_value=later):
                answer = await post(served, stream=False)
            names.answers.set()
            assert answer.json.get("status") == status, answer.body

    with mock.patch("socket.getaddrinfo", names.look_up):
        run(test(), "asyncio")
