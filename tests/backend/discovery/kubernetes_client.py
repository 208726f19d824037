"""A client that others wrote follows the watch of an API server: `python kubernetes_client.py URL FOLDER` prints one line of
JSON for each event, until its standard input ends. It runs in an environment of its own (scripts/install-deploy-tools)."""

import asyncio
import json
import sys
from pathlib import Path

from kubernetes_asyncio import client, watch


async def main(url: str, folder: Path) -> None:
    settings = client.Configuration(host=url)
    settings.ssl_ca_cert = str(folder / "ca.crt")
    settings.api_key = {"BearerToken": "Bearer " + (folder / "token").read_text()}
    async with client.ApiClient(settings) as api:
        slices = client.DiscoveryV1Api(api)
        listed = await slices.list_namespaced_endpoint_slice("models", label_selector="kubernetes.io/service-name=vllm")
        print(json.dumps(["LISTED", [each.metadata.name for each in listed.items]]), flush=True)
        following = watch.Watch().stream(
            slices.list_namespaced_endpoint_slice,
            "models",
            label_selector="kubernetes.io/service-name=vllm",
            resource_version=listed.metadata.resource_version,
        )
        async for event in following:
            each = event["object"]
            addresses = [address for one in each.endpoints or () for address in one.addresses]
            print(json.dumps([event["type"], each.metadata.name, addresses]), flush=True)


async def until_told() -> None:
    running = asyncio.create_task(main(sys.argv[1], Path(sys.argv[2])))
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait((running, told), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()


asyncio.run(until_told())
