"""A real browser, driven over the Chrome DevTools Protocol: the installed Chromium, headless, with an empty profile."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.waiting import PATIENCE, until

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0",
    "--force-color-profile=srgb", "--hide-scrollbars", "--lang=en-GB",
)  # fmt: skip
# Returns the middle of an element, once it is in sight.
_MIDDLE = """selector => {
    const found = document.querySelector(selector);
    found.scrollIntoView({block: "center"});
    const box = found.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
}"""
# Seconds that the browser may take to end by itself.
_CLOSE_TIMEOUT = 10


def program() -> str | None:
    """Return the browser that is installed, if there is one."""
    return next((found for found in map(shutil.which, _NAMES) if found), None)


class Page:
    """One tab. `problems` has what went wrong in it: exceptions, errors on the console, requests that the policy refused."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session_id: str) -> None:
        self.problems: list[str] = []
        self.addresses: list[str] = []  # of all requests of the page
        self._socket = socket
        self._session_id = session_id
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 1000

    async def open(self, url: str) -> None:
        """Go to an address, and wait until the document is there."""
        await self.send("Page.navigate", url=url)
        await self.holds("document.readyState === 'complete'")

    async def value(self, expression: str) -> Any:
        """Return the value of an expression in the page. A promise is awaited."""
        found = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (expression, found["exceptionDetails"])
        return found["result"].get("value")

    async def holds(self, expression: str, what: str = "") -> None:
        """Wait until an expression is true."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            with suppress(AssertionError):  # while another document comes
                if await self.value(expression):
                    return
            assert asyncio.get_running_loop().time() < deadline, f"never: {what or expression}; {self.problems}"
            await asyncio.sleep(0.05)

    async def text(self, selector: str) -> str:
        """Return the visible text of an element; empty if there is none."""
        return str(await self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def click(self, selector: str) -> None:
        """Click with the mouse in the middle of an element."""
        await self.holds(f"document.querySelector({json.dumps(selector)}) !== null", f"{selector} is there")
        place = await self.value(f"({_MIDDLE})({json.dumps(selector)})")
        for kind in ("mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    async def press(self, key: str) -> None:
        """Press a key: a character, or the name of another one."""
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
        fields: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        await self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **fields)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **fields)

    async def type(self, text: str) -> None:
        """Write into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def resize(self, width: int, height: int) -> None:
        """Give the page another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **size)

    async def prefer(self, scheme: str) -> None:
        """Prefer `dark` or `light`."""
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def screenshot(self, path: Path) -> None:
        """Write what is seen to a PNG file."""
        found = await self.send("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))

    async def accessibility(self) -> list[dict[str, Any]]:
        """Return the nodes that a screen reader gets, as role and name."""
        nodes = (await self.send("Accessibility.getFullAXTree"))["nodes"]
        seen = (node for node in nodes if not node["ignored"])
        return [{"role": node["role"]["value"], "name": node.get("name", {}).get("value", "")} for node in seen]

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to the tab and return its result."""
        self._number += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        command = {"id": self._number, "sessionId": self._session_id, "method": method, "params": parameters}
        await self._socket.send_str(json.dumps(command))
        return await asyncio.wait_for(answer, PATIENCE)

    async def listen(self) -> None:
        """Take what the browser says, until the connection ends."""
        async for message in self._socket:
            said = json.loads(message.data)
            answer = self._answers.pop(said.get("id", 0), None)
            if answer is not None and not answer.done():
                if "error" in said:
                    answer.set_exception(AssertionError(said["error"]["message"]))
                else:
                    answer.set_result(said["result"])
            self._note(said.get("method", ""), said.get("params", {}))

    def _note(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(said["exceptionDetails"].get("exception", said["exceptionDetails"])))
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.problems.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.addresses.append(said["request"]["url"])


@asynccontextmanager
async def browser(profile: Path, width: int = 1280, height: int = 800) -> AsyncIterator[Page]:
    """Start the browser with an empty profile in this folder, and yield its tab."""
    found = program()
    assert found is not None
    command = [found, *_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
    silent = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=silent, stderr=silent, start_new_session=True)
    try:
        await until(lambda: _address(profile), "the browser listens")
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(_address(profile), max_msg_size=0, heartbeat=None) as socket,
        ):
            page = await _tab(socket)
            listening = asyncio.create_task(page.listen())
            try:
                for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
                    await page.send(f"{domain}.enable")
                await page.resize(width, height)
                yield page
                await socket.send_str(json.dumps({"id": 1, "method": "Browser.close"}))
                await asyncio.wait({listening}, timeout=_CLOSE_TIMEOUT)
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
    finally:
        await _end(process)


async def _tab(socket: aiohttp.ClientWebSocketResponse) -> Page:
    """Attach to the tab that is open."""
    targets = await _ask(socket, 1, "Target.getTargets", {})
    target = next(entry["targetId"] for entry in targets["targetInfos"] if entry["type"] == "page")
    attached = await _ask(socket, 2, "Target.attachToTarget", {"targetId": target, "flatten": True})
    return Page(socket, attached["sessionId"])


async def _ask(socket: aiohttp.ClientWebSocketResponse, number: int, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    await socket.send_str(json.dumps({"id": number, "method": method, "params": parameters}))
    while True:
        said = await socket.receive_json(timeout=PATIENCE)
        if said.get("id") == number:
            result: dict[str, Any] = said["result"]
            return result


def _address(profile: Path) -> str:
    """Return where the browser listens; empty as long as it does not."""
    file = profile / "DevToolsActivePort"
    lines = file.read_text().splitlines() if file.exists() else []
    return f"ws://127.0.0.1:{lines[0]}{lines[1]}" if len(lines) == 2 else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let the browser end, and all that it has started."""
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _CLOSE_TIMEOUT)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
