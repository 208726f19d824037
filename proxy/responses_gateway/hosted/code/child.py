"""The program of one container: reads a JSON line with code, runs it in WebAssembly, writes a JSON line with the result.

`container.py` starts this file as a script, with an interpreter that may have nothing but pyeryx, an empty environment and a
process group of its own. WebAssembly is what keeps the code in; the limits here are for what it may use up, and for the case
that it gets out: such code would find a process that can open no file, start no program and reach no address, on kernels with
Landlock. The process ends as soon as its standard input does.

Arguments: the limits as JSON, and `prepare` to unpack the interpreter into the temporary folder, and end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import resource
import struct
import sys
import threading
import time
from typing import Any, BinaryIO

# Address space for a 32-bit memory and the guards around it, twice: while a session is replaced there are two.
_ADDRESS_SPACE = 24 * 1024**3
_OWN_MEMORY = 96 * 1024**2  # what the interpreter outside needs beside the memory of the code
_SPARE_MEMORY = 4 * 1024**2  # kept for what the code prints when it has used up all memory
# Output beyond this ends the process, since it is collected in memory before it can be cut. A multiple of the limit.
_OUTPUT_FACTOR = 64
_CPU_MARGIN = 10.0
# Seconds for output beyond the time limit of the code: of very many small pieces more may be waiting, and ends the process.
_PRINT_MARGIN = 1.0
_PIECE = 1024**2  # characters of base64, a multiple of four

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_READ = 1 << 2 | 1 << 3  # files and folders
# Version of the interface -> number of kinds of access to files, to ports, and to other processes that it knows.
_LANDLOCK_KINDS = {1: (13, 0, 0), 2: (14, 0, 0), 3: (15, 0, 0), 4: (15, 2, 0), 5: (16, 2, 0), 6: (16, 2, 2)}


class PrintedOutput:
    """What the code printed: the beginning and the end, if it is too long for `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        """Append output."""
        self.size += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def text(self) -> str:
        """Return what is kept, with a note where something is left out."""
        tail = bytes(self._tail[-self._half :])
        left_out = self.size - len(self._head) - len(tail)
        head = self._head.decode("utf-8", "replace")
        if not left_out:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        return f"{head}\n[... {left_out} bytes left out ...]\n{tail.decode('utf-8', 'replace')}"

    @property
    def cut(self) -> bool:
        """Whether something is left out."""
        return self.size > 2 * self._half


class Interpreter:
    """A Python session in WebAssembly. Its files outlive its variables."""

    def __init__(self, limits: dict[str, Any], guest: str, channel: GatewayChannel, memory: Memory) -> None:
        import eryx  # noqa: PLC0415  (once the limits hold)

        self._eryx = eryx
        self._limits = limits
        self._guest = guest
        self._channel = channel
        self._memory = memory
        self._output = PrintedOutput(limits["output_bytes"])
        self._deadline = float("inf")
        self._spare = bytes(_SPARE_MEMORY)
        self._files = eryx.VfsStorage()
        self._session = self._open()

    def run(self, code: str, files: dict[str, str]) -> dict[str, Any]:
        """Run code; return its output, the files and images that it wrote, and what ended it, if it did not end by itself."""
        _limit_cpu(self._limits["timeout"] + _CPU_MARGIN)
        self._session.execution_timeout_ms = int(self._limits["timeout"] * 1000)
        unwritten = self._write(files)
        self._output = PrintedOutput(self._limits["output_bytes"])
        self._spare = self._spare or bytes(_SPARE_MEMORY)
        ended = None
        written: dict[str, Any] = {}
        self._deadline = time.monotonic() + self._limits["timeout"] + _PRINT_MARGIN
        call = f"result = await run_cell({code!r}, {self._limits['image_bytes']!r})"
        try:
            written = _as_object(self._session.execute(call).result_json)
            if self._memory.used() > self._limits["memory_bytes"]:
                ended = "memory"
        except self._eryx.TimeoutError:
            ended = "timeout"
        except self._eryx.EryxError:  # all that the code may raise is caught inside
            ended = "crash"
        self._deadline = float("inf")
        answer = {**written, "logs": self._output.text(), "cut": self._output.cut, "ended": ended, "unwritten": unwritten}
        if ended is not None:
            self._session = None
            self._session = self._open()
        return answer

    def _write(self, files: dict[str, str]) -> int:
        """Write files (base64), piece by piece: each takes several times its size. Return how many were not written."""
        unwritten = 0
        for name, content in files.items():
            try:
                self._session.execute(f"write_file({name!r}, '', 'wb')")
                for start in range(0, len(content), _PIECE):
                    self._session.execute(f"write_file({name!r}, {content[start : start + _PIECE]!r}, 'ab')")
            except self._eryx.EryxError:  # no room, or the code has replaced what writes
                unwritten += 1
                with contextlib.suppress(self._eryx.EryxError):  # rather no file than half of it
                    self._session.execute(f"remove_file({name!r})")
        return unwritten

    def _open(self) -> Any:
        """Open a session: new variables, the same files."""
        session = self._eryx.Session(vfs=self._files, vfs_mount_path="/mnt/data", on_stdout=self._add, on_stderr=self._add)
        session.execute(self._guest)
        return session

    def _add(self, data: bytes) -> None:
        try:
            self._output.add(data)
        except MemoryError:  # the code has used up what there is for this process
            self._spare = b""
            self._output.add(data)
        if self._output.size > self._limits["output_bytes"] * _OUTPUT_FACTOR or time.monotonic() > self._deadline:
            self._channel.write({"logs": self._output.text(), "cut": self._output.cut, "ended": "output"})
            os._exit(0)


def _as_object(text: str | None) -> dict[str, Any]:
    """Return a JSON object, or an empty one for anything else: the code may have replaced what makes it."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class Memory:
    """The memory of this process that counts for its limit. WebAssembly gives none back, and without any this process aborts
    where the code would only get a MemoryError: so a session that used up its share is replaced."""

    def __init__(self) -> None:
        self._status = os.open("/proc/self/statm", os.O_RDONLY) if sys.platform == "linux" else None

    def used(self) -> int:
        """Return the number of bytes, or 0 where it is not known."""
        if self._status is None:
            return 0
        return int(os.pread(self._status, 200, 0).split()[5]) * resource.getpagesize()


class GatewayChannel:
    """JSON lines from and to the gateway. The code can write to the standard streams of this process, so they lead nowhere
    and the channel has descriptors of its own."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._input: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._answers: BinaryIO = os.fdopen(os.dup(1), "wb")
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.close(nowhere)

    def open(self) -> None:
        """Begin to read. The process ends when the gateway has closed its end."""
        threading.Thread(target=self._read, daemon=True).start()

    def read(self) -> Any:
        """Wait for the next request."""
        return self._requests.get()

    def write(self, answer: Any) -> None:
        """Send an answer."""
        self._answers.write(json.dumps(answer).encode() + b"\n")
        self._answers.flush()

    def _read(self) -> None:
        for line in self._input:
            self._requests.put(json.loads(line))
        os._exit(0)


def main() -> None:
    """Run what is asked for, until the input ends."""
    limits = json.loads(sys.argv[1])
    prepare = sys.argv[2:] == ["prepare"]
    channel = GatewayChannel()
    with open(os.path.join(os.path.dirname(__file__), "guest.py"), encoding="utf-8") as file:
        guest = file.read()
    try:
        import eryx  # noqa: PLC0415  (its files can be opened only now)
    except ImportError:
        channel.write({"error": "missing", "version": ".".join(map(str, sys.version_info[:3]))})
        return
    memory = Memory()
    confined = _confine(limits["memory_bytes"], prepare=prepare)
    channel.open()
    try:
        interpreter = Interpreter(limits, guest, channel, memory)
    except eryx.EryxError:
        channel.write({"error": "refused"})
        return
    channel.write({"ready": True, "landlock": confined})
    if prepare:
        return
    while True:
        request = channel.read()
        channel.write(interpreter.run(request["code"], request["files"]))


def _confine(memory_bytes: int, *, prepare: bool) -> bool:
    """Take away what the code needs least: all that this process could do beside computing. Return whether files and ports are
    out of reach. Who prepares must write files."""
    if sys.platform == "linux":  # elsewhere they are not enforced, or refused
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes + _OWN_MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    if prepare:
        return False
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return sys.platform == "linux" and _confine_linux()


def _limit_cpu(seconds: float) -> None:
    """Allow so much more time on the processor. It is for the case that nothing else stops the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, hard))


def _confine_linux() -> bool:
    """Forbid this process, and all threads that it will start, new rights, files except those of the interpreter, ports, and
    signals to others. Return whether the kernel can do so."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    kinds = _LANDLOCK_KINDS[min(version, max(_LANDLOCK_KINDS))]
    ruleset = struct.pack("QQQ", *((1 << number) - 1 for number in kinds))
    rules = libc.syscall(_LANDLOCK_CREATE_RULESET, ruleset, 8 * (3 - kinds.count(0)), 0)
    folder = os.open(os.environ["TMPDIR"], os.O_PATH | os.O_DIRECTORY)
    readable = struct.pack("=Qi", _LANDLOCK_READ, folder)
    added = libc.syscall(_LANDLOCK_ADD_RULE, rules, 1, readable, 0)
    restricted = libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0)
    os.close(folder)
    os.close(rules)
    return bool(added == 0 and restricted == 0)


if __name__ == "__main__":
    main()
