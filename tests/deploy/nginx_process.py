"""A real nginx with the configuration of deploy/nginx, on loopback ports."""

from __future__ import annotations

import asyncio
import datetime
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.deploy.checking_programs import DEPLOY, tool
from tests.ports import free_port
from tests.server.running_gateway import until
from tests.waiting import PATIENCE

NGINX = DEPLOY / "nginx"
_MAIN = """
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


@dataclass
class Proxy:
    """One that runs."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def write_configuration(folder: Path, site: str, gateways: list[int]) -> tuple[Path, int]:
    """Adapt the file `site` of deploy/nginx to this machine: ports, paths, certificate. Returns the main file and the port."""
    port = free_port()
    text = (NGINX / site).read_text(encoding="utf-8")
    servers = "".join(rf"server 127.0.0.1:{gateway}\g<1>;" for gateway in gateways)
    text, replaced = re.subn(r"^    server \S+:9000( .*)?;", f"    {servers}", text, flags=re.MULTILINE)
    assert replaced == 1
    text = text.replace("/etc/nginx/responses-gateway/", f"{NGINX}/").replace("/etc/nginx/tls/", f"{folder}/")
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;")
    text = text.replace("listen 80;", f"listen 127.0.0.1:{free_port()};")
    if _version() < (1, 25, 1):
        text = re.sub(r"^    http2 on;.*$", "", text, flags=re.MULTILINE)
    (folder / "site.conf").write_text(text, encoding="utf-8")
    if "ssl_certificate" in text:
        _write_certificate(folder)
    main = folder / "nginx.conf"
    main.write_text(_MAIN.format(folder=folder, user="user root;" if os.geteuid() == 0 else ""), encoding="utf-8")
    return main, port


def check_configuration(main: Path) -> str:
    """Return what `nginx -t` complains of; empty if all is well."""
    done = subprocess.run(
        [_program(), "-t", "-q", "-c", str(main)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.stderr if done.returncode or "[warn]" in done.stderr else ""


@asynccontextmanager
async def nginx(folder: Path, *gateways: int, site: str = "replicas.conf") -> AsyncIterator[Proxy]:
    """Serve in front of gateways on these ports while the block runs."""
    main, port = write_configuration(folder, site, list(gateways))
    with (folder / "nginx.log").open("w") as log:
        process = await asyncio.to_thread(subprocess.Popen, [_program(), "-c", str(main)], stdout=log, stderr=log)
    try:
        await until(lambda: listens(port) or process.poll() is not None, "nginx listens")
        assert process.poll() is None, (folder / "nginx.log").read_text(encoding="utf-8")
        yield Proxy(port)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 10)


def _program() -> str:
    return tool("nginx", "install-servers")


def _version() -> tuple[int, ...]:
    said = subprocess.run([_program(), "-v"], capture_output=True, text=True, timeout=PATIENCE, check=True).stderr
    found = re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", said)
    assert found
    return tuple(map(int, found.groups()))


def listens(port: int) -> bool:
    """Tell whether a connection is accepted there."""
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def _write_certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "responses.example.com")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "fullchain.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "privkey.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption_algorithm=serialization.NoEncryption()
        )
    )
