"""Pages as text: what is read of them, what is not, and for how long they are kept."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from responses_gateway.cli import main
from responses_gateway.extras import packages_with
from responses_gateway.hosted.fetch import Fetcher
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.search import page_process
from responses_gateway.hosted.search import pages as module
from responses_gateway.hosted.search.page import WebPage
from responses_gateway.hosted.search.page_process import read
from responses_gateway.hosted.search.pages import WebPages, html_packages
from responses_gateway.server.features.hosted_tools.opening import open_web
from responses_gateway.server.process.serve import check
from responses_gateway.settings import Settings, SettingsError
from tests.hosted.pdf_files import document
from tests.hosted.websites import ARTICLE, Website, never, open_site
from tests.server.running_gateway import run
from tests.thoroughness import one_in
from tests.waiting import PATIENCE, until


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def with_pages(test: Callable[[Website, WebPages, Clock], Awaitable[None]], timeout: float = PATIENCE) -> None:
    async def scene() -> None:
        site = Website()
        clock = Clock()
        async with open_site(site):
            fetcher = Fetcher(timeout=PATIENCE, max_bytes=3_000_000, private_hosts=[site.host])
            pages = WebPages(fetcher, timeout=timeout, clock=clock)
            try:
                await test(site, pages, clock)
            finally:
                await pages.close()

    run(scene())


async def refusal(pages: WebPages, url: str) -> str:
    with pytest.raises(ToolFailure) as failure:
        await pages.open(url, "")
    return str(failure.value)


def test_the_text_of_an_html_page_and_its_links() -> None:
    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/tower", ARTICLE)
        page = await pages.open(f"{site.url}/tower", "")
        assert page.title == "The tower of Example"
        assert any("321 metres high" in line for line in page.lines)
        assert not any("never shown" in line for line in page.lines)
        assert page.links == (("Home", f"{site.url}/"), ("Visit", f"{site.url}/visit"))
        assert not page.cut

    with_pages(test)


MANUAL = (
    """<html><head><title>Manual</title><style>p {}</style></head><body>
<nav><ul><li><a href="/a">Chapter A</a></li><li>Chapter B</li></ul></nav>
<div role="main"><h1>Towers</h1><p>A tower is
a tall   building.</p><div><ul><li>high</li><li>slim</li></ul></div>
<table><tr><th>Name</th> <th>Height</th></tr>
<tr><td>Eiffel</td><td></td><td>330</td></tr></table>
<pre><span>def</span> height():
    <b>return</b>  330</pre>"""
    + "<p>More about towers.</p>" * 20
    + """</div>
<div>Related: bridges</div><footer>Imprint</footer></body></html>"""
)


def read_html(html: str) -> dict[str, object]:
    return read(html.encode(), "http://a.example/", None, html_packages(), 10_000, 10)


def test_the_main_part_of_a_page_is_read_with_its_form() -> None:
    lines = [line for line in str(read_html(MANUAL)["text"]).splitlines() if line]
    assert lines[:6] == [
        "# Towers",
        "A tower is a tall building.",
        "- high",
        "- slim",
        "| Name | Height |  | ",
        "|---|---|---|",
    ]
    assert lines[6:9] == ["| Eiffel |  | 330 | ", "def height():", "    **return**  330"]
    assert not any(word in "".join(lines) for word in ("Chapter", "Related", "Imprint"))
    assert read_html(MANUAL)["links"] == [["Chapter A", "http://a.example/a"]]


@pytest.mark.parametrize(
    ("html", "found", "left_out"),
    [
        ("<nav>Home</nav><p>" + "text " * 100, "text", "Home"),
        ("<p>" + "text " * 100 + "<main>aside</main>", "text", None),
        ("<nav>" + "text " * 100, "text", None),  # never closed
        ("<main>" + "text " * 100 + "<main>more</main></main>", "more", None),
        ("<div role=main><div>" + "text " * 100 + "</div></div>", "text", None),
        ("<nav>Home</nav>short", "Home\nshort", None),
        ("<p>in <b>one</b>\n line<script>hidden</script><p>and another", "and another", "hidden"),
        ("<table><tr><td>a<td>b<tr><td>c</table>short", "a | b\nc", None),
        ("</main></nav></pre>" + "text " * 100, "text", None),
        ("\0\1a<td>b", "a", "\0"),
    ],
)
def test_wrong_html_loses_nothing(html: str, found: str, left_out: str | None) -> None:
    text = str(read_html(html)["text"])
    assert found in text
    assert left_out is None or left_out not in text


def test_links_are_those_to_other_pages() -> None:
    html = """<base href="/docs/"><a href="one">One</a> <a href="one">again</a> <a href="#top">Top</a> <a>none</a>
        <a href="mailto:x@a.example">Mail</a> <a href="http://[">odd</a> <a href="//b.example/"><img></a>
        <a href="//b.example/#part"> <b>B</b>
        example </a>"""
    assert read_html(html)["links"] == [["One", "http://a.example/docs/one"], ["B example", "http://b.example/"]]


def test_without_the_extra_web_search_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        with pytest.raises(ValueError, match=r"pip install '\.\[web\]'"):
            open_web(Settings(web_search_url="http://b.example"))

    packages_with.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    try:
        run(scene())
    finally:
        packages_with.cache_clear()


@pytest.mark.parametrize(
    ("body", "content_type", "line"),
    [
        ("just text\nin lines", "text/plain", "just text"),
        ('{"answer": 42}', "application/json", '{"answer": 42}'),
        ("<feed>news</feed>", "application/atom+xml", "<feed>news</feed>"),
        ("Grüße".encode("latin-1"), "text/plain; charset=iso-8859-1", "Grüße"),
        (b"x", "text/plain; charset=no-such", "x"),
        ("Grüße".encode(), "text/plain", "Grüße"),
        ("Grüße".encode("cp1252"), "text/plain", "Grüße"),
        ("“Grüße”".encode("cp1252"), "text/plain; charset=us-ascii", "“Grüße”"),
        ("Grüße".encode("utf-16"), "text/plain; charset=utf-16", "Grüße"),
        ("ไทย".encode("cp874"), "text/plain; charset=windows-874", "ไทย"),
        ("こんにちは".encode("shift_jis"), "text/html; charset=x-sjis", "こんにちは"),
        ("안녕".encode("euc_kr"), "text/plain; charset=ks_c_5601-1987", "안녕"),
        ("<p>a page without a type, which is all of its text</p>", "application/octet-stream", "a page without a type"),
        ('<meta charset="iso-8859-1"><p>Grüße</p>'.encode("latin-1"), "text/html", "Grüße"),
        # Programs that make HTML of XML declare UTF-16, and write UTF-8.
        ('<META http-equiv="Content-Type" content="text/html; charset=UTF-16"><p>Grüße</p>'.encode(), "text/html", "Grüße"),
        ('<?xml version="1.0" encoding="windows-1251"?><p>Привет</p>'.encode("cp1251"), "text/html", "Привет"),
        ('<?xml version="1.0" encoding="windows-1251"?><rss>Привет</rss>'.encode("cp1251"), "application/rss+xml", "Привет"),
        ("Привет".encode("utf-16"), "text/plain", "Привет"),
        ("<p>Привет</p>".encode("utf-16"), "text/html", "Привет"),
        ("Grüße".encode("utf-8-sig"), "text/plain; charset=iso-8859-1", "Grüße"),
        ('a lesson: <meta charset="windows-1251"> grüßt'.encode(), "text/plain", "grüßt"),
        ("<title>never closed <p>text", "text/html", ""),
    ],
)
def test_kinds_of_text(body: str | bytes, content_type: str, line: str) -> None:
    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", body, content_type)
        page = await pages.open(f"{site.url}/", "")
        assert line in "\n".join(page.lines)

    with_pages(test)


@pytest.mark.parametrize(
    "charset", one_in(3, ["idna", "undefined", "punycode", "utf-7", "unicode_escape", "rot13", "zlib", "x" * 5000])
)
@pytest.mark.parametrize("kind", ["text/plain", "text/html"])
def test_encodings_that_are_none_of_the_web_are_not_used(kind: str, charset: str) -> None:
    body = b"<p>before" + b"a" * 100_000 + b"-" + b"a" * 100_000

    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", body, f"{kind}; charset={charset}")
        assert "before" in (await pages.open(f"{site.url}/", "")).lines[0]

    with_pages(test)


@pytest.mark.parametrize("data", ["Grüße".encode() * 10_000 + b"\xc3", b"\xc3"])
def test_a_page_that_ends_within_a_character_keeps_the_others(data: bytes) -> None:
    text = str(read(data, "http://a.example/", None, None, 200_000, 10)["text"])
    assert "Ã" not in text


@pytest.mark.parametrize(
    ("content_type", "named"), [("application/pdf", "PDF"), ("image/png", "image/png"), ("application/zip", "application/zip")]
)
def test_what_is_not_text_is_named(content_type: str, named: str) -> None:
    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", b"%PDF-1.7", content_type)
        assert named in await refusal(pages, f"{site.url}/")

    with_pages(test)


def test_a_pdf_is_read_as_text() -> None:
    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", document("Towers are high.", "So are trees."), "application/pdf")
        page = await pages.open(f"{site.url}/", "")
        assert [line for line in page.lines if line] == ["[page 1]", "Towers are high.", "[page 2]", "So are trees."]
        assert not page.cut

    with_pages(test)


def test_long_lines_are_split_and_long_pages_are_cut() -> None:
    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", "word " * 100_000, "text/plain")
        page = await pages.open(f"{site.url}/", "")
        assert max(map(len, page.lines)) <= 400
        assert 150_000 < page.size <= 200_000
        assert page.cut

    with_pages(test)


def test_marks_of_citations_and_control_characters_do_not_reach_the_model() -> None:
    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", "as 【1】 says\x1b[2J\u202e", "text/plain")
        assert (await pages.open(f"{site.url}/", "")).lines == ("as [1] says [2J",)

    with_pages(test)


def test_a_page_is_kept_for_a_while_and_for_its_tenant() -> None:
    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", "text", "text/plain")
        for tenant in ("ada", "ada", "bob", "ada"):
            await pages.open(f"{site.url}/", tenant)
        assert len(site.requests) == 2
        clock.now = 1000.0
        await pages.open(f"{site.url}/", "ada")
        assert len(site.requests) == 3

    with_pages(test)


@pytest.mark.slow
def test_pages_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_PAGES", 3)
    monkeypatch.setattr(module, "KEPT_CHARACTERS", 1000)

    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/small", "small", "text/plain")
        site.page("/large", "word " * 150, "text/plain")
        for number in range(5):
            await pages.open(f"{site.url}/small?{number}", "")
        assert len(site.requests) == 5
        await pages.open(f"{site.url}/small?4", "")
        assert len(site.requests) == 5
        await pages.open(f"{site.url}/small?0", "")
        assert len(site.requests) == 6
        await pages.open(f"{site.url}/large?0", "")
        await pages.open(f"{site.url}/large?1", "")
        await pages.open(f"{site.url}/large?0", "")
        assert len(site.requests) == 9

    with_pages(test)


def test_no_more_pages_are_in_memory_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    monkeypatch.setattr(module, "SHARE_AT_ONCE", 2)

    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        async def hang(request: web.Request) -> web.StreamResponse:
            await never()
            return web.Response()

        site.pages["/"] = hang
        first = [asyncio.create_task(pages.open(f"{site.url}/?{number}", "")) for number in range(2)]
        await until(lambda: len(site.requests) == 2, "two pages are fetched")
        assert "too many pages" in await refusal(pages, f"{site.url}/third")
        for task in first:
            task.cancel()
        await asyncio.wait(first)
        assert "404" in await refusal(pages, f"{site.url}/third")  # there is room again

    with_pages(test, timeout=0.3)


def test_one_tenant_does_not_keep_others_from_reading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "reader.py"
    script.write_text(f"""
import sys, time
sys.stdin.buffer.readline()
while b"slow" in sys.stdin.buffer.read():
    time.sleep({10 * PATIENCE})
print('{{"title": "", "text": "read", "links": [], "cut": false}}')
""")
    monkeypatch.setattr(module, "PAGE_PROCESS", script)

    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/slow", "slow")
        site.page("/fast", "fast")
        site.page("/text", "fast", "text/plain")
        slow = [asyncio.create_task(pages.open(f"{site.url}/slow?{number}", "ada")) for number in range(8)]
        await until(lambda: len(site.requests) == 8, "the slow pages are fetched")
        for path in ("fast", "text"):
            assert (await pages.open(f"{site.url}/{path}", "bob")).lines == ("read",)
        assert (await pages.open(f"{site.url}/text", "ada")).lines == ("read",)
        for task in slow:
            task.cancel()
        await asyncio.wait(slow)
        assert (await pages.open(f"{site.url}/fast", "ada")).lines == ("read",)

    with_pages(test)


def test_a_page_that_waits_in_vain_for_its_turn_is_not_called_too_large(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "forever.py"
    script.write_text("import time; time.sleep(1000)")
    monkeypatch.setattr(module, "PAGE_PROCESS", script)
    monkeypatch.setattr(module, "SHARE_OF_PROCESSES", 1)

    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", ARTICLE)
        waiting = [asyncio.create_task(refusal(pages, f"{site.url}/?{number}")) for number in range(8)]
        said = [await each for each in waiting]
        assert sum("too complicated" in each for each in said) <= 2
        assert sum("too many pages" in each for each in said) >= 6

    with_pages(test, timeout=0.5)


@pytest.mark.slow
def test_html_that_takes_forever_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    script = tmp_path / "forever.py"  # type: ignore[operator]
    script.write_text("while True: pass")
    monkeypatch.setattr(module, "PAGE_PROCESS", script)

    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", ARTICLE)
        assert "too complicated" in await refusal(pages, f"{site.url}/")

    with_pages(test, timeout=1.0)


def test_html_that_breaks_its_reader_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    script = tmp_path / "broken.py"  # type: ignore[operator]
    script.write_text("raise SystemExit(3)")
    monkeypatch.setattr(module, "PAGE_PROCESS", script)

    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", ARTICLE)
        assert "cannot be read" in await refusal(pages, f"{site.url}/")

    with_pages(test)


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Have the program that reads pages lack a library."""
    script = tmp_path / "lacking.py"
    script.write_text("""print('{"cannot_start": "No module named lxml_html_clean"}')""", encoding="utf-8")
    monkeypatch.setattr(module, "PAGE_PROCESS", script)
    module.page_obstacle.cache_clear()
    yield
    module.page_obstacle.cache_clear()


@pytest.mark.usefixtures("lacking")
def test_a_library_that_is_missing_is_not_the_fault_of_the_page() -> None:
    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", ARTICLE)
        said = await refusal(pages, f"{site.url}/")
        assert "lxml_html_clean" in said
        assert "too large" not in said

    with_pages(test)


@pytest.mark.slow
@pytest.mark.usefixtures("lacking")
def test_a_library_that_is_missing_is_found_before_the_first_page(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(backend=["http://127.0.0.1:9/v1"], web_search_url="http://b.example", store="none")
    with pytest.raises(SettingsError, match=r"No module named lxml_html_clean.*'\.\[web\]'"):
        check(settings)
    gc.collect()  # which would tell of a session that was left open
    assert main(["doctor", "http://127.0.0.1:9"]) == 2
    assert "the gateway cannot read web pages: No module named lxml_html_clean" in capsys.readouterr().err


def test_what_reads_pages_says_which_library_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert page_process.missing_library(None) == ""
    assert page_process.missing_library(html_packages()) == ""
    monkeypatch.setitem(sys.modules, "trafilatura", None)
    assert "trafilatura" in page_process.missing_library(html_packages())


HOSTILE = {
    "links": b"<a href='x'>" * 50_000,
    "deep": b"<div>" * 100_000,
    "signs": b"<" * 1_000_000,
    "comments": b"<!--" * 200_000,
    "entities": b"&#x41;" * 300_000,
    "bytes": b"\xff" * 100_000,
    "tables": b"<table><tr><td>" * 30_000,
    "cdata": b"<![CDATA[" * 100_000,
    "scripts": b"<script>" * 100_000,
    "empty": b"",
}


@pytest.mark.slow
@pytest.mark.parametrize("html", [pytest.param(HOSTILE[name], id=name) for name in one_in(2, list(HOSTILE))])
def test_hostile_html_ends_in_a_page_or_in_words(html: bytes) -> None:
    async def test(site: Website, pages: WebPages, clock: Clock) -> None:
        site.page("/", html)
        outcome: WebPage | str
        try:
            outcome = await pages.open(f"{site.url}/", "")
        except ToolFailure as failure:
            outcome = str(failure)
        assert "cannot be read" in outcome if isinstance(outcome, str) else len(outcome.links) <= 300

    with_pages(test)
