"""The fake API server of the tests, held against a client that others wrote. `scripts/install-deploy-tools` installs it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.backend.discovery.api_server import api_server, endpoint
from tests.backend.discovery.followed import READY, following
from tests.deploy.checking_programs import installed_python
from tests.server.running_gateway import run, until


def test_the_fake_is_true_enough_for_a_client_that_others_wrote(tmp_path: Path) -> None:
    async def test() -> None:
        python = installed_python()
        async with api_server(tmp_path, window=8) as server, following(server, tmp_path) as found:
            server.put("a", "vllm", [endpoint("10.0.0.1", **READY)])
            program = await asyncio.create_subprocess_exec(
                python, str(Path(__file__).with_name("kubernetes_client.py")), server.url, str(tmp_path),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert program.stdout is not None
            assert program.stdin is not None
            assert json.loads(await program.stdout.readline()) == ["LISTED", ["a"]]
            await until(lambda: server.open == 2)
            seen = {"a": ["10.0.0.1"]}
            server.put("b", "vllm", [endpoint("10.0.0.2", **READY), endpoint("10.0.0.3", **READY)])
            server.fault("end")  # both watches go on where they were
            server.put("a", "vllm", [endpoint("10.0.0.4", **READY)])
            server.delete("b")
            while seen != {"a": ["10.0.0.4"]}:
                kind, name, addresses = json.loads(await program.stdout.readline())
                seen.pop(name) if kind == "DELETED" else seen.update({name: addresses})
            await until(lambda: set(found.members) == {"10.0.0.4:8000"})
            program.stdin.close()
            assert await program.wait() == 0

    run(test())
