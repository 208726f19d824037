"""The Dockerfile: what a linter says, how large the image's Python packages are, and whether its command runs in a container's
file system, which is made here of mounts, without a container engine."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx
import pytest

from tests.deploy.checking_programs import ROOT, run, tool
from tests.server.gateway_process import program
from tests.server.process.test_sockets import certificate
from tests.server.running_gateway import run as run_async
from tests.waiting import PATIENCE

# Bytes that the packages and our code may have; the image of Python below them has about 130 MB.
LARGEST = 180 * 1024 * 1024


def test_the_linter_has_nothing_against_the_dockerfile() -> None:
    done = run(tool("hadolint", "install-deploy-tools"), "--failure-threshold", "info", "Dockerfile")
    assert done.returncode == 0, done.stdout


# Makes a read-only root at $1, of the programs of this machine, the base of Python at $2, its packages at $3 and the folders of
# the image, and runs the other arguments in it as the image's user. What is mounted is seen here alone, and ends with it.
_CONTAINER = """
set -e
root=$1 python=$2 packages=$3
shift 3
mount -t tmpfs tmpfs "$root"
for place in /usr /bin /sbin /lib /lib64 /etc /dev /proc "$python"; do
    if [ -L "$place" ]; then
        cp -P "$place" "$root$place"
    elif [ -e "$place" ]; then
        mkdir -p "$root$place"
        mount --rbind "$place" "$root$place"
    fi
done
mkdir -p "$root/app" "$root/opt/venv" "$root/tmp" "$root/data"
cp -r proxy/responses_gateway "$root/app/"
mount --bind "$packages" "$root/opt/venv"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o uid=10001,mode=700 tmpfs "$root/data"
mount -o remount,ro "$root"
exec chroot --userspec=10001:10001 "$root" "$@"
"""


def instruction(name: str) -> str:
    """Return what follows an instruction of the Dockerfile; of several, the last one counts."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")  # a line goes on, as Docker reads it
    return re.findall(rf"^{name} (.*)$", text, re.MULTILINE)[-1]


def test_the_image_says_what_it_is() -> None:
    labels = dict(word.partition("=")[::2] for word in shlex.split(instruction("LABEL")))
    assert {name.removeprefix("org.opencontainers.image.") for name in labels} == {
        *("title", "description", "licenses", "base.name", "revision")
    }
    assert labels["org.opencontainers.image.base.name"] == "$BASE"
    froms = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert froms == ["${BASE}", "${BASE}"], "one base, which the release workflow gives by its digest"


def test_the_entry_point_serves_stores_and_records_on_a_read_only_file_system(tmp_path: Path) -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("making a mount namespace takes root on Linux")
    variables = dict(word.partition("=")[::2] for word in shlex.split(instruction("ENV")))
    variables["PATH"] = os.environ["PATH"]
    variables["PYTHONPATH"] += ":/opt/venv"  # where the packages of this machine are mounted
    _, *entry = json.loads(instruction("ENTRYPOINT"))
    base = Path(sys.base_prefix)
    python = base / "bin" / f"python3.{sys.version_info.minor}"
    mounts = ["unshare", "--mount", "sh", "-c", _CONTAINER, "sh", str(tmp_path), str(base), sysconfig.get_path("purelib")]
    flags = [
        *json.loads(instruction("CMD")),
        "--simulator",
        "--port",
        "0",
        "--store",
        "/data/file",
        "--record",
        "/tmp/recorded",
    ]
    command = [*mounts, str(python), *entry, *flags]
    with subprocess.Popen(command, cwd=ROOT, env=variables, stderr=subprocess.PIPE, text=True) as gateway:
        try:
            assert gateway.stderr is not None
            port = next(found[1] for line in gateway.stderr if (found := re.search(r"listening url=\S+:(\d+)", line)))
            url = f"http://127.0.0.1:{port}/v1/responses"
            made = httpx.post(url, json={"model": "m", "input": "hi"}, timeout=PATIENCE).json()
            assert made["status"] == "completed"
            assert httpx.get(f"{url}/{made['id']}", timeout=PATIENCE).json()["output"] == made["output"]
            root = Path(f"/proc/{gateway.pid}/root")
            assert (root / "data" / "file").is_file()
            assert list((root / "tmp" / "recorded").rglob("*"))
        finally:
            gateway.terminate()


@pytest.mark.parametrize("tls", [False, True])
def test_the_health_check_asks_the_gateway(tls: bool, tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")  # a line goes on, as Docker reads it
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)
    _, *arguments = json.loads(check)
    variables: dict[str, str] = {}
    if tls:
        cert, key = certificate(tmp_path)
        variables = {"RESPONSES_GATEWAY_TLS_CERT": str(cert), "RESPONSES_GATEWAY_TLS_KEY": str(key)}

    async def status(port: int) -> int:
        environment = {**os.environ, **variables, "RESPONSES_GATEWAY_PORT": str(port)}
        asked = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env=environment, stderr=asyncio.subprocess.DEVNULL
        )
        return await asked.wait()

    async def test() -> None:
        async with program("--simulator", "--store", "none", **variables) as running:
            assert await status(running.port) == 0
        assert await status(running.port) == 1

    run_async(test())


def test_the_packages_of_the_image_are_small() -> None:
    """Measured where they are installed: pip puts the same files into the image."""
    lock = (ROOT / "requirements-image.lock").read_text(encoding="utf-8")
    names = re.findall(r"^([A-Za-z0-9._-]+)==(?!.*sys_platform == 'win32')", lock, re.MULTILINE)
    assert "psycopg" in names  # a store that replicas share
    total = sum(size_of(name) for name in names) + sum(
        file.stat().st_size for file in (ROOT / "proxy" / "responses_gateway").rglob("*.py")
    )
    assert 20 * 1024 * 1024 < total < LARGEST


def size_of(package: str) -> int:
    """Bytes of an installed distribution, twice those of its Python code: it is compiled. 0 for one of another platform."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return 0
    paths = [Path(str(file.locate())) for file in files]
    return sum(
        path.stat().st_size * (2 if path.suffix == ".py" else 1) for path in paths if path.exists() and path.suffix != ".pyc"
    )
