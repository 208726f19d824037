"""Servers behind a router, a real nginx, are killed in the middle of answers: the gateway goes on through the same URL."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chaos.faults import IMPATIENT, ask, ended, shows, simulators
from tests.chaos.test_backend_continued import DEMO, WEATHER, busy, spoken
from tests.deploy.nginx_process import nginx
from tests.server.gateway_process import program
from tests.server.running_gateway import RawClient, run


def test_the_server_of_an_answer_is_killed_and_started_again_and_the_next_one_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            simulators(2, "--tokens-per-second", "30") as several,
            nginx(tmp_path, *(one.port for one in several)) as router,
        ):
            settings = tmp_path / "gateway.yaml"
            settings.write_text(json.dumps({"backends": {"pool": {"url": router.url, "router": True}}, "store": "none"}))
            async with program("--config", str(settings), *IMPATIENT) as running:
                fields = {"input": DEMO, "tools": [WEATHER]}
                whole = (await ask(running, **fields)).final
                client = await RawClient.connect(running)
                await client.post(**fields)
                await client.read_until(b"response.reasoning_text.delta")
                first = await busy(list(several))
                await first.kill()
                (second,) = (one for one in several if one is not first)
                await client.read_until(b"response.output_text.delta")
                second.halt()  # else the answer may be over before the first one is there again
                await first.start()
                await second.kill()
                assert spoken(await ended(client)) == spoken(whole)
                await shows(running, lambda line: 'continuations_total{outcome="continued",reason="broke"} 2.0' in line)
                await shows(running, lambda line: 'backend_breaker_state{backend="pool",state="closed"} 1.0' in line)

    run(test())
