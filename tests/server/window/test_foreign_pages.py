"""A page of somebody else, in a real browser, tries to use a gateway on the machine of its visitor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web

from tests.server.running_gateway import run, simulated
from tests.server.window.chromium import browser, program

pytestmark = pytest.mark.skipif(program() is None, reason="no Chromium is installed: run scripts/install-browser")
# Ways of sending a request from a page: blindly, asking for permission, by a form, as a beacon.
ATTEMPTS = [
    "fetch(URL, {method: 'POST', mode: 'no-cors', body: BODY})",
    "fetch(URL, {method: 'POST', mode: 'no-cors', referrerPolicy: 'no-referrer', body: BODY})",
    "fetch(URL, {method: 'POST', mode: 'no-cors', body: new Blob([BODY])})",
    "fetch(URL, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: BODY}).catch(error => error.name)",
    "navigator.sendBeacon(URL, BODY)",
]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_no_foreign_page_has_the_model_work(tmp_path: Path, name: str) -> None:
    """`localhost` is another site than 127.0.0.1, where the gateway is; another port there is another origin."""

    async def page_of_somebody(_request: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>evil</title>", content_type="text/html")

    async def test() -> None:
        app = web.Application()
        app.router.add_get("/", page_of_somebody)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            async with simulated(cors_origins=[]) as served, browser(tmp_path) as page:
                await page.open(f"http://{name}:{runner.addresses[0][1]}/")
                body = json.dumps({"model": "simulator", "input": "hi"})
                for path in ("/v1/responses", "/v1/chat/completions"):
                    for attempt in ATTEMPTS:
                        script = attempt.replace("URL", json.dumps(served.url + path)).replace("BODY", json.dumps(body))
                        await page.value(f"Promise.resolve({script}).then(String)")
                await page.holds("true")
                refused = served.metric("access_refusals_total", reason="origin")
                assert refused >= 2 * (len(ATTEMPTS) - 1)  # a beacon may still be on its way
                (backend,) = served.parts.pool.members.by_name
                assert served.metric("backend_requests_total", backend=backend) == 0
                # The gateway's own page may.
                await page.open(f"{served.url}/ui/")
                options = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": body}
                assert await page.value(f"fetch('/v1/responses', {json.dumps(options)}).then(answer => answer.status)") == 200
        finally:
            await runner.cleanup()

    run(test())
