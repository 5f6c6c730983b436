"""Starting and stopping a dockerd of our own, without systemd, over whatever an earlier run left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from codesdk.provision.engines.endpoint import EndpointState, ping
from codesdk.provision.system.command import ProvisionFailed, Root, output_tail, which
from codesdk.provision.system.process_identity import ProcessIdentity, mark, name, pid_in

START_S = 60.0
"""Seconds until a started dockerd must answer: 2 s here, far more on a loaded machine with many images."""
STOP_S = 30.0
"""Seconds for dockerd to stop its containers; it gives each 15 s by default."""
LEFTOVER_S = 5.0
"""Seconds for what a killed daemon left to end by itself."""
POLL_S = 0.1
SYSTEM_CONTAINERD = Path("/run/containerd/containerd.sock")
"""dockerd uses the containerd of this socket instead of its own wherever the file exists, dead or not."""
REFUSED = 3
PROBE = f"""
import socket, sys
probe = socket.socket(socket.AF_UNIX)
probe.settimeout(5)
try:
    probe.connect(sys.argv[1])
except ConnectionRefusedError:
    sys.exit({REFUSED})
except OSError:
    pass
"""
"""Exits with `REFUSED` where the socket exists and nobody listens; busy and absent ones are let be."""


@dataclass(frozen=True)
class DockerdPaths:
    """Where a dockerd listens and keeps its things; the defaults are dockerd's own."""

    log: Path
    socket: Path = Path("/var/run/docker.sock")
    pid_file: Path = Path("/var/run/docker.pid")
    """The standard one keeps dockerd itself from starting beside another on the same data."""
    exec_root: Path = Path("/var/run/docker")
    data_root: Path | None = None
    """None: what /etc/docker/daemon.json says, or /var/lib/docker."""
    flags: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    """A program that becomes dockerd (`unshare --net`), for one that must not touch the host's network."""

    @property
    def host(self) -> str:
        """The address for clients."""
        return f"unix://{self.socket}"

    def argv(self) -> list[str]:
        """The command line: only what differs from its defaults, since daemon.json may set the rest."""
        standard = DockerdPaths(self.log)
        words = [*self.launcher, "dockerd"]
        if self.pid_file != standard.pid_file:
            words.append(f"--pidfile={self.pid_file}")
        if self.socket != standard.socket:
            words.append(f"--host={self.host}")
        if self.exec_root != standard.exec_root:
            words.append(f"--exec-root={self.exec_root}")
        if self.data_root is not None:
            words.append(f"--data-root={self.data_root}")
        return [*words, *self.flags]


def systemd_runs() -> bool:
    """Whether systemd is this machine's init (sd_booted(3))."""
    return Path("/run/systemd/system").is_dir()


def remove_stale_files(places: DockerdPaths, way: Root) -> None:
    """Remove pid files and sockets of daemons that are gone.

    dockerd refuses to start while the pid in its pid file exists, whichever program has that pid by now; it waits in
    vain for a containerd in the same way, and for one behind a socket file at which nobody listens.
    """
    containerd_pid = places.exec_root / "containerd" / "containerd.pid"
    for pid_file, program in ((places.pid_file, "dockerd"), (containerd_pid, "containerd")):
        pid = pid_in(way.run("cat", str(pid_file), deadline_s=10).stdout)
        left = mark(pid) if pid is not None and name(pid) == program else None
        # dockerd's containerd dies with it (PDEATHSIG), a moment later; one that does not is dockerd's to judge.
        if left is None or left.wait(LEFTOVER_S):
            way.run("rm", "-f", str(pid_file), deadline_s=10)
    # Asked as root: the directory of that socket is closed to others.
    if way.run(sys.executable, "-I", "-c", PROBE, str(SYSTEM_CONTAINERD), deadline_s=20).code == REFUSED:
        way.run("rm", "-f", str(SYSTEM_CONTAINERD), deadline_s=10)


def start(places: DockerdPaths, way: Root) -> ProcessIdentity:
    """Start dockerd in a session of its own and wait until it answers; it outlives this process.

    Raises:
        ProvisionFailed: there is no dockerd, or it ended or did not answer within `START_S`.
    """
    if which("dockerd") is None:
        raise ProvisionFailed(
            "There is no dockerd on this machine.", advice="Install Docker Engine (Debian: docker.io)."
        )
    remove_stale_files(places, way)
    with places.log.open("wb") as log:
        process = subprocess.Popen(
            way.argv(*places.argv()), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    # A child that ends stays a zombie until someone waits, and a zombie still looks like a live pid to dockerd.
    threading.Thread(target=process.wait, name="reap-dockerd", daemon=True).start()
    daemon = None
    try:
        daemon = _await_answer(process, places, way)
    finally:  # also where Ctrl-C ends the wait: nobody knows of it yet, so nobody else would stop it
        if daemon is None and process.poll() is None:
            way.run("sh", "-c", f"kill {process.pid}", deadline_s=10)  # it may be sudo, which only root may signal
    if daemon is not None:
        return daemon
    said = output_tail(places.log.read_text(encoding="utf-8", errors="replace"))
    raise ProvisionFailed(f"dockerd did not start: {said or 'it said nothing'}.", advice=f"Its log is {places.log}.")


def _await_answer(process: subprocess.Popen[bytes], places: DockerdPaths, way: Root) -> ProcessIdentity | None:
    """The daemon once it answers; None where it ended or the time is up."""
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        answered = ping(places.host).answer in {EndpointState.ENGINE, EndpointState.FORBIDDEN}
        pid = pid_in(way.run("cat", str(places.pid_file), deadline_s=10).stdout)
        daemon = None if pid is None else mark(pid)
        if answered and daemon is not None:
            return daemon
        time.sleep(POLL_S)
    return None


def stop(daemon: ProcessIdentity, way: Root) -> None:
    """SIGTERM, `STOP_S`, SIGKILL: this very dockerd and no other.

    Raises:
        ProvisionFailed: it lives on.
    """
    for sign in ("-TERM", "-KILL"):
        if not daemon.alive:
            return
        # The shell's own kill: /bin/kill is in procps, which a minimal Debian lacks.
        way.run("sh", "-c", f"kill {sign} {daemon.pid}", deadline_s=10)
        if daemon.wait(STOP_S):
            return
    raise ProvisionFailed(f"dockerd (pid {daemon.pid}) did not end.", advice=f"Run: sudo kill -9 {daemon.pid}")


def systemd_start(way: Root) -> None:
    """Start the docker unit; the unit counts as started once the engine answers.

    Raises:
        ProvisionFailed: systemd refused.
    """
    _systemctl(way, "start", "docker.service")


def systemd_stop(way: Root) -> None:
    """Stop the docker unit, and its socket, which would start it again at the next connection.

    Raises:
        ProvisionFailed: systemd refused.
    """
    _systemctl(way, "stop", "docker.socket", "docker.service")


def _systemctl(way: Root, verb: str, *units: str) -> None:
    done = way.run("systemctl", verb, *units, deadline_s=START_S)
    if not done.ok:
        raise ProvisionFailed(
            f"systemctl {verb} {' '.join(units)} failed: {done.output_tail()}.",
            advice="See: journalctl -u docker.service -n 50",
        )
