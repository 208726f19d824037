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
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec

from responses_gateway.backend.discovery.interface import MOST_TARGETS, Report, SourceKind, Target, is_address

_LARGEST_FILE = 8 * 1024 * 1024  # bytes of a file
_HEAVIEST = 1000  # the largest value of the label `weight`

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
        files: dict[str, _File] = {}
        while True:
            files = await asyncio.to_thread(self._read, files)  # a network file system may hang
            # Of several targets with the same address the first counts.
            targets = {target.address: target for file in reversed(files.values()) for target in reversed(file.targets)}
            problems = [f"{path}: {file.problem}" for path, file in files.items() if file.problem]
            problem = "; ".join(problems) if files else f"there is no file {' or '.join(self.patterns)}"
            report(sorted(targets.values(), key=lambda target: target.address), problem)
            await asyncio.sleep(self.interval)

    def _read(self, known: dict[str, _File]) -> dict[str, _File]:
        """Return the files that there are now; those that have not changed are not read again."""
        paths = sorted({path for pattern in self.patterns for path in glob(pattern, recursive=True)})
        return {path: _read_again(Path(path), known.get(path, _File())) for path in paths}


class _File(NamedTuple):
    """What a file said when it could be read and understood last, and what is wrong with it now; `signature`: of that time."""

    signature: _Signature | None = None
    targets: Sequence[Target] = ()
    problem: str = ""


def _read_again(path: Path, known: _File) -> _File:
    try:
        state = path.stat()
        signature = (state.st_ino, state.st_size, state.st_mtime_ns)
        if known.signature == signature:
            return known
        if state.st_size > _LARGEST_FILE:
            return known._replace(signature=signature, problem=f"it has more than {_LARGEST_FILE} bytes")
        text = path.read_bytes()
    except OSError as error:
        return known._replace(signature=None, problem=str(error.strerror))
    try:
        return _File(signature, targets_of(text))
    except _Broken as error:
        return known._replace(signature=signature, problem=str(error))


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
