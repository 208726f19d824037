"""A real SearXNG with the settings of `docker-compose.yml`, whose one engine asks a site of this test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hosted.websites import ARTICLE, Website, open_site
from tests.ports import free_port
from tests.server.running_gateway import ask, gateway, run
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".cache" / "searxng"
pytestmark = pytest.mark.skipif(
    not (FOLDER / ".installed").exists(), reason="SearXNG is not installed: run scripts/install-searxng"
)
NOWHERE = "http://127.0.0.1:9"


def settings_of(site: Website, port: int) -> dict[str, Any]:
    """Return the settings of the compose file with one engine, which takes JSON from the site."""
    settings: dict[str, Any] = yaml.safe_load((ROOT / "deploy/searxng/settings.yml").read_text(encoding="utf-8"))
    engine = {
        "name": "index",
        "engine": "json_engine",
        "shortcut": "ix",
        "categories": "general",
        "search_url": f"{site.url}/index?q={{query}}",
        "url_query": "url",
        "title_query": "title",
        "content_query": "text",
        "enable_http": True,
    }
    settings["use_default_settings"] = {"engines": {"keep_only": []}}
    settings["server"] |= {"port": port, "bind_address": "127.0.0.1", "secret_key": "of-this-test"}
    return settings | {"engines": [engine]}


@asynccontextmanager
async def searxng(settings: dict[str, Any], folder: Path) -> AsyncIterator[str]:
    """Run it, and return its URL when it answers."""
    file = folder / "settings.yml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        str(FOLDER / "venv/bin/python"),
        "-m",
        "searx.webapp",
        cwd=FOLDER / "source",
        env={"PATH": os.environ["PATH"], "SEARXNG_SETTINGS_PATH": str(file), "HOME": str(folder), "NO_PROXY": "127.0.0.1"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = settings["server"]["port"]
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    assert process.returncode is None, "SearXNG has ended"
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    break
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def test_what_it_finds_is_shown_and_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.features.hosted_tools.opening.FETCH_SECONDS", PATIENCE)

    async def test() -> None:
        site = Website()
        async with open_site(site):
            found = f'[{{"url": "{site.url}/tower", "title": "The tower", "text": "All about the tower."}}]'
            site.page("/index", found, "application/json", Connection="close")  # SearXNG would keep it open
            site.page("/tower", ARTICLE)
            async with (
                searxng(settings_of(site, free_port()), tmp_path) as url,
                gateway(NOWHERE, adapt=False, web_search_url=url, web_fetch_private_hosts=[site.host]) as served,
            ):
                commands = {"search_query": [{"q": "tower"}], "open": [{"ref_id": f"{site.url}/tower"}]}
                answer = await ask(served, "POST", "/v1/alpha/search", json={"commands": commands})
        assert f"The tower\nref_id: {site.url}/tower\nAll about the tower." in answer.json["output"]
        assert "321 metres high" in answer.json["output"]

    run(test())
