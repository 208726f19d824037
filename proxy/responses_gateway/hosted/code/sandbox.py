"""The embedded sandbox: containers of all tenants, how many there may be, and when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import msgspec

from responses_gateway.ended_tasks import KeptTasks
from responses_gateway.hosted.code.container import Container, ContainerDied, ContainerLimits, SandboxUnavailable
from responses_gateway.hosted.code.runner import CodeOutcome, ContainerKey
from responses_gateway.hosted.images.generation import image_format
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.result_text import plain_text
from responses_gateway.own_folder import OwnFolder

NOT_AVAILABLE = "The code interpreter is not available. Answer without running code."
_MAX_FILES_NAMED = 50
# The folder with the unpacked interpreter, which all containers share and only read: its name begins so.
_PREFIX = "responses-gateway-sandbox-"


class SandboxOptions(msgspec.Struct, frozen=True):
    """How code is run. Workers with the same options share their containers: a rolling restart may bring others, or another
    `version` of the gateway."""

    version: str
    python: str
    limits: ContainerLimits
    containers: int
    idle: float

    @property
    def socket_name(self) -> str:
        """The name of their socket."""
        return f"code-{blake2b(msgspec.json.encode(self), digest_size=4).hexdigest()}"


class _KeptContainer:
    """A container in the table: the files that it was given, by name with a digest, how many calls use it or wait for it, and
    the timer that ends it when it is idle."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.given: dict[str, bytes] = {}
        self.calls = 0
        self.turn = asyncio.Lock()
        self.timer: asyncio.TimerHandle | None = None


class Sandbox:
    """Runs code in containers of its own, each a child process. Use `start` before the first run, and `close`."""

    def __init__(self, options: SandboxOptions) -> None:
        self._options = options
        self._limits = options.limits
        self._share = max(1, options.containers // 2)
        self._entries: dict[ContainerKey, _KeptContainer] = {}  # the one that was used last is the last one
        self._ending: KeptTasks[None] = KeptTasks()
        self._folder: OwnFolder | None = None

    @property
    def containers(self) -> int:
        """The number of containers that exist."""
        return len(self._entries)

    async def start(self) -> None:
        """Unpack the interpreter into a folder that all containers share and none can write to. Raise SandboxUnavailable."""
        self._folder = await asyncio.to_thread(OwnFolder, _PREFIX)
        first = Container(self._options.python, self._folder.path, self._limits)
        try:
            await first.start("prepare")
        except BaseException:
            await self.close()
            raise
        finally:
            await first.close()

    async def close(self) -> None:
        """End all containers and remove their folder."""
        folder = self._folder
        self._folder = None
        for key in list(self._entries):
            self._remove(key)
        await asyncio.gather(*self._ending)
        if folder is not None:
            await asyncio.to_thread(folder.remove)

    async def has(self, container: ContainerKey) -> bool:
        """Return whether the tenant has this container."""
        return container in self._entries

    async def run(self, code: str, container: ContainerKey, files: Mapping[str, bytes]) -> CodeOutcome:
        """Run code; see `CodeRunner`."""
        with self._using(container) as entry:
            async with entry.turn:
                if not entry.container.running:
                    entry.given.clear()
                    await _start(entry.container)
                digests = {name: blake2b(content).digest() for name, content in files.items()}
                new = {name: content for name, content in files.items() if entry.given.get(name) != digests[name]}
                try:
                    answer = await entry.container.run(code, new)
                    entry.given.update(digests)
                except ContainerDied:
                    return CodeOutcome("", error=_ENDED["died"])
                if answer.get("ended") == "output":  # the process ends itself
                    await entry.container.end()
        return self._outcome(answer)

    @contextmanager
    def _using(self, key: ContainerKey) -> Iterator[_KeptContainer]:
        entry = self._entries.pop(key, None)
        if entry is None:
            entry = self._create(key)
        self._entries[key] = entry
        entry.calls += 1
        if entry.timer is not None:
            entry.timer.cancel()
        try:
            yield entry
        finally:
            entry.calls -= 1
            if not entry.calls and self._entries.get(key) is entry:
                entry.timer = asyncio.get_running_loop().call_later(self._options.idle, self._remove, key)

    def _create(self, key: ContainerKey) -> _KeptContainer:
        """Make room and return a new container. A tenant has a share of the room, so that one cannot keep out all others."""
        if self._folder is None:
            raise ToolFailure("The code interpreter is being shut down.")
        own = [other for other in self._entries if other.tenant == key.tenant]
        if len(own) >= self._share:
            self._remove_idle(own)
        elif len(self._entries) >= self._options.containers:
            self._remove_idle(list(self._entries))
        return _KeptContainer(Container(self._options.python, self._folder.path, self._limits))

    def _remove_idle(self, keys: list[ContainerKey]) -> None:
        """Remove the container that was not used for longest."""
        for key in keys:
            if not self._entries[key].calls:
                self._remove(key)
                return
        raise ToolFailure("All containers of the code interpreter are in use. Try again later, or answer without running code.")

    def _remove(self, key: ContainerKey) -> None:
        entry = self._entries.pop(key)
        if entry.timer is not None:
            entry.timer.cancel()
        self._ending.begin(entry.container.close())

    def _outcome(self, answer: Mapping[str, Any]) -> CodeOutcome:
        """Return what the child says. The code may have changed any of it, except its size."""
        contents = [content for content in _list(answer, "images") if isinstance(content, str)]
        images = [f"data:image/{name};base64,{content}" for content in contents if (name := image_format(content[:32]))]
        files = [plain_text(name)[:256] for name in _list(answer, "files") if isinstance(name, str)]
        losses = []
        if answer.get("unwritten"):
            losses.append("code_interpreter: files for which the container has no room")
        if answer.get("cut"):
            losses.append(f"code_interpreter: output beyond {self._limits.output_bytes} bytes")
        if answer.get("left_out") or len(images) < len(_list(answer, "images")):
            losses.append(f"code_interpreter: files that are not images, or larger than {self._limits.image_bytes} bytes")
        return CodeOutcome(
            logs=plain_text(str(answer.get("logs", ""))),
            images=images,
            files=files[:_MAX_FILES_NAMED],
            error=self._ended(answer.get("ended")),
            losses=losses,
        )

    def _ended(self, ended: object) -> str | None:
        if ended == "timeout":
            return f"The code was stopped after {self._limits.timeout:g} seconds. Its variables are lost, its files are kept."
        return _ENDED.get(ended) if isinstance(ended, str) else None


_ENDED = {
    "memory": "The code used up its memory. Its variables are lost, its files are kept.",
    "crash": "The code ended the interpreter. Its variables are lost, its files are kept.",
    "output": "The code printed too much and was stopped. Its variables and files are lost.",
    "died": "The code broke the interpreter or used up its memory or time. Its variables and files are lost.",
}


def _list(answer: Mapping[str, Any], name: str) -> list[Any]:
    value = answer.get(name)
    return value if isinstance(value, list) else []


async def _start(container: Container) -> None:
    try:
        await container.start()
    except SandboxUnavailable:
        raise ToolFailure(NOT_AVAILABLE) from None
    except BaseException:  # cancelled
        container.kill()
        raise
