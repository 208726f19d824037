"""The secrets that the gateway encrypts with: the setting `seal_key`, or what takes its place."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from responses_gateway.settings import Settings
from responses_gateway.state import Sqlite, Store
from responses_gateway.telemetry import logs

_LENGTH = 32  # bytes of a secret that is made here


async def content_secret(settings: Settings, store: Store | None) -> bytes:
    """Return the secret for what clients keep for us: that of the settings, or one that is made once and kept in the store;
    without either, one for this process. Raise `StoreUnavailable`."""
    if settings.seal_key:
        return settings.seal_key.get_secret_value().encode()
    return await store.secret("seal") if store is not None else secrets.token_bytes(_LENGTH)


async def client_key_secret(settings: Settings, store: Store | None) -> bytes | None:
    """Return the secret for the keys of clients that the store keeps: that of the settings, or the one in a file beside a
    SQLite file. None without either, because one in the store would be in each copy of it, beside what it protects."""
    if settings.seal_key:
        return settings.seal_key.get_secret_value().encode()
    database = store.database if store is not None else None
    if not isinstance(database, Sqlite) or database.path is None:
        return None
    return await asyncio.to_thread(_secret_in, database.path.with_name(f"{database.path.name}.key"))


def _secret_in(path: Path) -> bytes | None:
    """Return what a file has, which is made if absent; None, with a warning in the log, if that cannot be done. Several
    processes get the same."""
    try:
        if not path.exists():
            _make(path)
        secret = path.read_bytes()
    except OSError as error:
        _warn(path, str(error))
        return None
    if len(secret) != _LENGTH:
        _warn(path, "not made by this gateway")
        return None
    return secret


def _warn(path: Path, reason: str) -> None:
    logs.logger().warning("keys of clients are not kept", extra=logs.fields(file=str(path), reason=reason))


def _make(path: Path) -> None:
    """Make the file, with a mode of 600, at once whole: it is linked, so that the first process wins."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_LENGTH))
        with suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)
