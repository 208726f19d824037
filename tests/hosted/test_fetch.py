"""Fetching pages of strangers: nothing private is reached, and nothing is larger or slower than allowed."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from responses_gateway.hosted.fetch import Fetched, Fetcher
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.public_connections import PrivateAddressError, PublicResolver
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.public_urls import may_be_private
from tests.hosted.websites import ARTICLE, Website, never, open_site
from tests.server.running_gateway import run
from tests.waiting import PATIENCE

PUBLIC = "93.184.215.14"
LIMIT = 100_000


class Names(AbstractResolver):
    """A DNS that answers each question for a name with the next of its answers."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = {name.replace("_", "."): given for name, given in answers.items()}
        self.asked = 0

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
        self.asked += 1
        given = self._answers[host]
        addresses = given.pop(0) if len(given) > 1 else given[0]
        return [ResolveResult(hostname=host, host=each, port=port, family=family, proto=0, flags=0) for each in addresses]

    async def close(self) -> None:
        pass


def with_site(test: Callable[[Website, Fetcher], Awaitable[None]], timeout: float = PATIENCE, **options: object) -> None:
    """Run a test with a site that may be fetched though it is on loopback."""

    async def scene() -> None:
        site = Website()
        async with open_site(site):
            fetcher = Fetcher(timeout=timeout, max_bytes=LIMIT, private_hosts=[site.host], **options)  # type: ignore[arg-type]
            try:
                await test(site, fetcher)
            finally:
                await fetcher.close()

    run(scene())


async def refusal(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(ToolFailure) as failure:
        await fetcher.fetch(url)
    return str(failure.value)


def test_a_page_with_its_type_and_encoding() -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        site.page("/tower", ARTICLE, "text/html; charset=utf-8")
        page = await fetcher.fetch(f"{site.url}/tower")
        assert page == Fetched(f"{site.url}/tower", "text/html", "utf-8", ARTICLE.encode(), cut=False)
        [request] = site.requests
        assert "Cookie" not in request.headers
        assert "Referer" not in request.headers

    with_site(test)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/", "http://127.0.0.1:{port}/",
        "http://localhost:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "http://127.1:{port}/",
        "http://0x7f000001:{port}/", "http://2130706433:{port}/", "http://10.0.0.1/", "http://192.168.1.1/", "http://0.0.0.0/",
        "http://[fd00::1]/", "http://[64:ff9b::7f00:1]/", "http://user@127.0.0.1:{port}/", "http://public.example@127.0.0.1/",
        "http://127.0.0.1\\@public.example/", "http://public.example#@127.0.0.1/", "http://①②⑦.⓪.⓪.①/", "file:///etc/passwd",
        "ftp://public.example/", "gopher://127.0.0.1/", "data:text/html,x", "javascript:alert(1)", "http://", "", "http://[",
        "http://public.example:22/", "http://public.example:6379/", "http://public.example:99999/", "http:///etc",
    ],
)  # fmt: skip
def test_what_is_not_a_public_page_is_not_asked_for(url: str) -> None:
    async def scene() -> None:
        site = Website()
        dns = Names(public_example=[["127.0.0.1"]])
        async with open_site(site):
            port = site.url.rpartition(":")[2]
            fetcher = Fetcher(timeout=PATIENCE, max_bytes=LIMIT, resolver=dns)
            said = await refusal(fetcher, url.replace("{port}", port))
            await fetcher.close()
        assert said
        assert "Traceback" not in said
        assert site.requests == []

    run(scene())


def test_a_name_that_resolves_to_a_private_address_is_not_connected_to() -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        said = await refusal(fetcher, "http://rebind.example/")
        assert "private or special address" in said
        assert "127.0.0.1" not in said
        assert site.requests == []

    with_site(test, resolver=Names(rebind_example=[["127.0.0.1", "::1"]]))


def test_every_connection_resolves_anew_and_takes_public_addresses_only() -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        dns = Names(rebind_example=[[PUBLIC], ["10.0.0.1"], [PUBLIC, "169.254.169.254", "::1"]])
        resolver = PublicResolver(AllowedHosts(), dns)
        assert [found["host"] for found in await resolver.resolve("rebind.example", 80)] == [PUBLIC]
        with pytest.raises(PrivateAddressError):
            await resolver.resolve("rebind.example", 80)
        assert [found["host"] for found in await resolver.resolve("rebind.example", 80)] == [PUBLIC]

    with_site(test)


def test_names_are_not_remembered_between_pages() -> None:
    dns = Names(wiki_lan=[["127.0.0.1"]])

    async def scene() -> None:
        site = Website()
        site.page("/", "hello", "text/plain")
        async with open_site(site):
            port = site.url.rpartition(":")[2]
            fetcher = Fetcher(timeout=PATIENCE, max_bytes=LIMIT, private_hosts=["wiki.lan"], resolver=dns)
            for _ in range(2):
                assert (await fetcher.fetch(f"http://wiki.lan:{port}/")).body == b"hello"
            await fetcher.close()
        assert dns.asked == 2

    run(scene())


def test_a_private_host_is_the_one_that_is_looked_up() -> None:
    async def scene() -> None:
        site = Website()
        site.page("/", "hello", "text/plain")
        dns = Names(**{"xn--fa-hia_lan": [["127.0.0.1"]], "fass_lan": [["127.0.0.1"]]})
        async with open_site(site):
            port = site.url.rpartition(":")[2]
            fetcher = Fetcher(timeout=PATIENCE, max_bytes=LIMIT, private_hosts=["xn--fa-hia.lan"], resolver=dns)
            assert (await fetcher.fetch(f"http://faß.lan:{port}/")).body == b"hello"
            assert "local name" in await refusal(fetcher, f"http://fass.lan:{port}/")
            await fetcher.close()

    run(scene())


def test_a_private_host_is_allowed_by_name_and_port() -> None:
    allowed = AllowedHosts.read(["wiki.lan", "10.1.2.3:8080", "[fd00::1]:81"])
    inside = [("wiki.lan", 80), ("WIKI.lan", 9999), ("10.1.2.3", 8080), ("fd00::1", 81)]
    outside = [("10.1.2.3", 80), ("x.wiki.lan", 80), ("wiki.lan.example", 80), ("fd00::1", 80), ("10.1.2.38", 80)]
    assert [may_be_private(*place, allowed) for place in inside + outside] == [True] * 4 + [False] * 5


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/",
        "http://127.0.0.1:1/",
        "//localhost/",
        "file:///etc/passwd",
        "http://user@10.0.0.1/",
        "http://[",
    ],
)
def test_a_redirect_is_judged_like_a_url(target: str) -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        site.redirect("/", target)
        assert await refusal(fetcher, f"{site.url}/")
        assert len(site.requests) == 1

    with_site(test)


def test_redirects_are_followed_to_an_end() -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        site.redirect("/old", "/new?x=1")
        site.page("/new", "moved", "text/plain")
        page = await fetcher.fetch(f"{site.url}/old")
        assert (page.url, page.body) == (f"{site.url}/new?x=1", b"moved")
        site.redirect("/loop", "/loop")
        assert "redirects more than" in await refusal(fetcher, f"{site.url}/loop")

    with_site(test)


def test_of_a_huge_page_the_beginning_is_read() -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        sent = 0

        async def endless(request: web.Request) -> web.StreamResponse:
            nonlocal sent
            response = web.StreamResponse(headers={"Content-Type": "text/plain"})
            await response.prepare(request)
            for _ in range(1000):  # 100 MB
                await response.write(b"x" * LIMIT)
                sent += LIMIT
            return response

        site.pages["/"] = endless
        page = await fetcher.fetch(f"{site.url}/")
        assert (len(page.body), page.cut) == (LIMIT, True)
        assert sent < 50_000_000  # what the kernel buffers, and no more

    with_site(test)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_bomb_is_unpacked_up_to_the_limit(encoding: str) -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        pack = gzip.compress if encoding == "gzip" else zlib.compress
        site.page("/", pack(b"\0" * 50_000_000), "text/plain", **{"Content-Encoding": encoding})
        page = await fetcher.fetch(f"{site.url}/")
        assert (len(page.body), page.cut) == (LIMIT, True)

    with_site(test)


def test_a_compressed_page_is_unpacked() -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        site.page("/", gzip.compress(ARTICLE.encode()), **{"Content-Encoding": "gzip"})
        assert (await fetcher.fetch(f"{site.url}/")).body == ARTICLE.encode()
        site.page("/cut", gzip.compress(ARTICLE.encode())[:-20], **{"Content-Encoding": "gzip"})
        assert "damaged" in await refusal(fetcher, f"{site.url}/cut")
        site.page("/br", b"whatever", **{"Content-Encoding": "br"})
        assert "compressed" in await refusal(fetcher, f"{site.url}/br")

    with_site(test)


def test_a_slow_page_is_given_up() -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        async def slow(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"<html>")
            await never()
            return response

        site.pages["/"] = slow
        assert "did not arrive within 0.5 seconds" in await refusal(fetcher, f"{site.url}/")

    with_site(test, timeout=0.5)


def test_errors_of_a_site_are_told_in_words() -> None:
    async def test(site: Website, fetcher: Fetcher) -> None:
        assert "status 404" in await refusal(fetcher, f"{site.url}/missing")
        assert "not known" in await refusal(fetcher, "http://unknown.example/")
        assert "longer than" in await refusal(fetcher, f"{site.url}/{'x' * 5000}")

    class Unknown(Names):
        async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
            raise OSError(None, "no such name")

    with_site(test, resolver=Unknown())


def test_a_server_that_is_no_web_server() -> None:
    async def scene() -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n")
            writer.close()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        fetcher = Fetcher(timeout=PATIENCE, max_bytes=LIMIT, private_hosts=[host])
        assert "does not answer as a web server" in await refusal(fetcher, f"http://{host}/")
        await fetcher.close()
        server.close()
        await server.wait_closed()

    run(scene())
