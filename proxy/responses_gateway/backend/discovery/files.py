"""Targets in files, in the form of Prometheus' `file_sd`: a list of `{"targets": ["host:port", …], "labels": {…}}`, as JSON or
YAML.

Of the labels, `weight` (a number) and `__scheme__` (`http` or `https`) count. Files are looked at every few seconds: what
mounts a ConfigMap replaces a symbolic link, which notifications of the file system do not tell. A file that cannot be read or
understood keeps the targets that it had, and the others count; a file that is gone takes its targets along."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import msgspec

from responses_gateway.backend.discovery.interface import MOST_TARGETS, Report, SourceKind, Target, is_address

# In bytes.
_LARGEST_FILE = 8 * 1024 * 1024
_HEAVIEST = 1000

# What tells whether a file has changed: its inode, length and time in nanoseconds.
_Signature: TypeAlias = tuple[int, int, int]


class _Broken(Exception):
    """A file does not say what a source has to say; the message tells why, without its contents."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Reads the files that match `patterns`, every `interval` seconds."""

    kind: ClassVar[SourceKind] = "file"
    patterns: tuple[str, ...]
    interval: float

    async def watch(self, report: Report) -> None:
        files = _Files(self.patterns)
        said: tuple[list[Target], str] | None = None
        while True:
            await asyncio.to_thread(files.read)  # a network file system may hang
            found = files.targets(), files.problem()
            if found != said:
                report(*found)
                said = found
            await asyncio.sleep(self.interval)


class _Files:
    """The files of one source, as they were when each of them could be read."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._signatures: dict[str, _Signature] = {}
        self._targets: dict[str, list[Target]] = {}
        self._problems: dict[str, str] = {}

    def read(self) -> None:
        """Read what is new or has changed."""
        paths = sorted({path for pattern in self._patterns for path in glob(pattern, recursive=True)})
        self._problems = {path: problem for path, problem in self._problems.items() if path in paths}
        self._targets = {path: targets for path, targets in self._targets.items() if path in paths}
        self._signatures = {path: signature for path, signature in self._signatures.items() if path in paths}
        for path in paths:
            try:
                self._read_one(path)
            except OSError as error:
                self._problems[path] = f"{path}: {error.strerror}"
            except _Broken as error:
                self._problems[path] = f"{path}: {error}"

    def targets(self) -> list[Target]:
        """Return the targets of all files; of several with the same address the first counts."""
        found = {target.address: target for targets in reversed(self._targets.values()) for target in reversed(targets)}
        return sorted(found.values(), key=lambda target: target.address)

    def problem(self) -> str:
        """Return what is wrong with the files."""
        if not self._signatures and not self._problems:
            return f"there is no file {' or '.join(self._patterns)}"
        return "; ".join(self._problems.values())

    def _read_one(self, path: str) -> None:
        state = Path(path).stat()
        signature = (state.st_ino, state.st_size, state.st_mtime_ns)
        if self._signatures.get(path) == signature:
            return
        if state.st_size > _LARGEST_FILE:
            raise _Broken(f"it has more than {_LARGEST_FILE} bytes")
        text = Path(path).read_bytes()
        self._signatures[path] = signature
        self._targets[path] = targets_of(text)
        self._problems.pop(path, None)


def targets_of(text: bytes) -> list[Target]:
    """Return the targets of a file. Raises `_Broken`."""
    groups = _parsed(text)
    if not isinstance(groups, list):
        raise _Broken("a list of groups with `targets` is expected")
    targets: list[Target] = []
    for group in groups:  # aliases of YAML can make many of a few bytes
        targets += _targets_of_group(group)
        if len(targets) > MOST_TARGETS:
            raise _Broken(f"it names more than {MOST_TARGETS} targets")
    return targets


def _targets_of_group(group: Any) -> list[Target]:
    addresses = group.get("targets") if isinstance(group, dict) else None
    if not isinstance(addresses, list):
        raise _Broken("each group has to have a list `targets`")
    labels = group.get("labels") or {}
    if not isinstance(labels, dict):
        raise _Broken("`labels` has to be a mapping")
    if not all(isinstance(address, str) and is_address(address) for address in addresses):
        raise _Broken("each target has to be host:port")
    scheme = labels.get("__scheme__", "")
    if scheme not in ("", "http", "https"):
        raise _Broken("the label `__scheme__` has to be http or https")
    weight = _weight(labels["weight"]) if "weight" in labels else None
    return [Target(address, scheme, weight) for address in addresses]


def _weight(label: Any) -> float:
    try:
        weight = float(label)
    except (TypeError, ValueError, OverflowError):
        weight = math.nan
    if not 0 < weight <= _HEAVIEST:
        raise _Broken(f"the label `weight` has to be a number above 0, at most {_HEAVIEST}")
    return weight


def _parsed(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass
    import yaml  # noqa: PLC0415  (only for files that are not JSON)

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError):  # of invalid dates and tags, deep lists
        raise _Broken("neither JSON nor YAML") from None
