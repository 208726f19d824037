"""The sockets that the gateway listens on, and its certificate.

With several workers the parent opens the sockets and hands them down, so that a connection waits in the queue while one worker
is replaced by the next. Plain HTTP that is sent to a port of HTTPS gets an answer that says so; TLS alone would close it."""

from __future__ import annotations

import errno
import json
import resource
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from responses_gateway.backend.transport.keepalive import notice_vanished
from responses_gateway.settings import Settings, SettingsError, flag
from responses_gateway.settings.serving import UNIX
from responses_gateway.wire.errors import ApiError

BACKLOG = 2048  # connections that may wait to be accepted
# Open files that are enough for a process, and those that macOS always allows. Shells allow 1,024, on macOS 256.
_OPEN_FILES = (65_536, 10_240)
# What is wrong with a port: it is taken, or reserved.
_WRONG_PORT = {errno.EADDRINUSE, errno.EACCES}
_ERROR = ApiError(400, "This port speaks HTTPS: the URL has to begin with https://.", code="https_required")


class Listeners(NamedTuple):
    """Listening sockets: those of clients, and those of operators, if these have their own. A context manager closes them."""

    clients: list[socket.socket]
    operators: list[socket.socket]
    file: Path | None = None  # of a Unix socket

    def __enter__(self) -> Listeners:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove_file()
        self.close()

    def copy(self) -> Listeners:
        """Return the same sockets, which are open until both are closed. The file belongs to the first ones."""
        return Listeners([each.dup() for each in self.clients], [each.dup() for each in self.operators])

    def close(self) -> None:
        """Take no more connections in this process."""
        for listener in (*self.clients, *self.operators):
            listener.close()

    def remove_file(self) -> None:
        """Delete the file of a Unix socket, if this process has made one."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)


def open_listeners(settings: Settings) -> Listeners:
    """Open the sockets of the settings. Raises `OSError` with the address in `filename`."""
    _allow_open_files()
    file = Path(settings.host.removeprefix(UNIX)) if settings.host.startswith(UNIX) else None
    listeners = Listeners(_tcp(settings.host, settings.port, "port") if file is None else [_unix(file)], [], file)
    if file is None:  # a client that takes no data for this time is dropped, also if its machine has vanished
        for listener in listeners.clients:
            notice_vanished(listener, settings.idle_timeout)
    if settings.operations_port is None:
        return listeners
    host = settings.operations_host or (settings.host if file is None else "127.0.0.1")
    try:
        return listeners._replace(operators=_tcp(host, settings.operations_port, "operations_port"))
    except OSError:
        listeners.close()
        listeners.remove_file()
        raise


def url_of(listener: socket.socket, tls: bool) -> str:
    """Return the address as a client writes it, with the port that was chosen for port 0."""
    if listener.family == socket.AF_UNIX:
        return f"{UNIX}{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Read the certificate; None without one. Raises `SettingsError`."""
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise SettingsError(f"{flag('tls_key')} needs {flag('tls_cert')}")
        return None
    for name, path in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        try:
            if path is not None:
                path.open("rb").close()
        except OSError as error:
            raise SettingsError(f"{flag(name)}: {path}: {error.strerror}") from None
    context = TLSContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, settings)
    return context


def renew_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Have new connections use the certificate as it is now. Raise `SettingsError` and change nothing if it is wrong."""
    tls_context(settings)  # because a context keeps the certificate of a pair whose key it has refused
    _load_certificate(context, settings)


def certificate_expiry(path: Path) -> float:
    """Return when the certificate expires, in seconds since 1970. It is the first one in its file, before its chain."""
    from cryptography import x509  # noqa: PLC0415  (a gateway without TLS needs none of it)

    return x509.load_pem_x509_certificates(path.read_bytes())[0].not_valid_after_utc.timestamp()


def _load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    assert settings.tls_cert is not None
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            raise SettingsError(f"{flag('tls_key')}: this is not the key of the certificate in {settings.tls_cert}") from None
        files = " and ".join(str(path) for path in (settings.tls_cert, settings.tls_key) if path is not None)
        message = f"{files}: a certificate and its key are expected, in PEM, the key without a password ({reason})"
        raise SettingsError(f"{flag('tls_cert')}: {message}") from None


def _allow_open_files() -> None:
    """Raise the limit of open files as far as the system lets a user, because each stream needs two of them, and a connection
    that has none is closed without a word."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in _OPEN_FILES:
        limit = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        if allowed == resource.RLIM_INFINITY or allowed >= limit:
            return
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
            return


def _tcp(host: str, port: int, setting: str) -> list[socket.socket]:
    """Open a socket for each address of the host; port 0 is the same free port for all of them. The port comes from `setting`,
    which the `OSError` names if another port would do."""
    opened: list[socket.socket] = []
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if host == "::":  # with a socket of their own, because clients by IPv4 have another kind of address in one of IPv6
            infos += socket.getaddrinfo("0.0.0.0", port, type=socket.SOCK_STREAM)
        for family, _, _, _, address in dict.fromkeys(infos):
            listener = socket.socket(family, socket.SOCK_STREAM)
            opened.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            chosen = port or opened[0].getsockname()[1] if len(opened) > 1 else port
            listener.bind((address[0], chosen, *address[2:]))
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in opened:
            listener.close()
        way_out = f": choose another port with {flag(setting)}" if error.errno in _WRONG_PORT else ""
        raise OSError(error.errno, f"{error.strerror}{way_out}", f"{host}:{port}") from None
    return opened


def _unix(path: Path) -> socket.socket:
    """Listen on the file. The file of a killed gateway is replaced, that of a running one is an error."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        if path.is_socket():
            if _answers(path):
                raise OSError(errno.EADDRINUSE, "Address already in use")
            path.unlink()
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror or str(error), f"{UNIX}{path}") from None
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True


class TLSContext(ssl.SSLContext):
    """A context whose connections answer plain HTTP."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **more: Any) -> ssl.SSLObject:
        """Return a connection, which learns where to write."""
        connection = super().wrap_bio(incoming, outgoing, *args, **more)
        assert isinstance(connection, _Connection)
        connection.outgoing = outgoing
        return connection


class _Connection(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    answered = False

    def do_handshake(self) -> None:
        """Shake hands. OpenSSL recognises HTTP in the first bytes of a client."""
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason != "HTTP_REQUEST" or self.answered:
                raise
            self.answered = True
            self.outgoing.write(_answer())
            raise ssl.SSLWantReadError from None  # so that what was written is sent; the client closes the connection


TLSContext.sslobject_class = _Connection


def _answer() -> bytes:
    body = json.dumps(_ERROR.body()).encode()
    head = (
        f"HTTP/1.1 {_ERROR.status} Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
