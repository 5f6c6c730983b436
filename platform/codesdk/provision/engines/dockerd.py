"""Starts and stops a dockerd without systemd, and cleans up after runs that were killed."""

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
"""Seconds for dockerd to stop its containers; by default it waits 15 s for each."""
LEFTOVER_S = 5.0
"""Seconds for the child processes of a killed daemon to exit."""
POLL_S = 0.1
SYSTEM_CONTAINERD = Path("/run/containerd/containerd.sock")
"""If this socket exists, dockerd uses its containerd instead of starting one, even if nothing listens there."""
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
"""Exits with `REFUSED` if the socket exists and nobody listens. A busy or missing socket passes."""


@dataclass(frozen=True)
class DockerdPaths:
    """Socket and file paths of a dockerd; the defaults are dockerd's own."""

    log: Path
    socket: Path = Path("/var/run/docker.sock")
    pid_file: Path = Path("/var/run/docker.pid")
    """dockerd refuses to start while its pid file names a live process, so two daemons can't share the standard data.
    """
    exec_root: Path = Path("/var/run/docker")
    data_root: Path | None = None
    """None: the value in /etc/docker/daemon.json, or /var/lib/docker."""
    flags: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    """A command that execs dockerd (`unshare --net`), for a daemon that must not change the host's network."""

    @property
    def host(self) -> str:
        """The address for clients."""
        return f"unix://{self.socket}"

    def argv(self) -> list[str]:
        """The command line.

        Passes only values that differ from dockerd's defaults, because daemon.json may set the rest.
        """
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
    """Remove pid files and sockets of daemons that no longer run.

    dockerd refuses to start while the pid in its pid file exists, even if another program has reused that pid. In the
    same way it waits in vain for a dead containerd, or for one behind a socket on which nobody listens.
    """
    containerd_pid = places.exec_root / "containerd" / "containerd.pid"
    for pid_file, program in ((places.pid_file, "dockerd"), (containerd_pid, "containerd")):
        pid = pid_in(way.run("cat", str(pid_file), deadline_s=10).stdout)
        left = mark(pid) if pid is not None and name(pid) == program else None
        # dockerd's containerd dies with it (PDEATHSIG) within moments. If it survives, the new dockerd decides.
        if left is None or left.wait(LEFTOVER_S):
            way.run("rm", "-f", str(pid_file), deadline_s=10)
    # Runs as root: other users can't enter the socket's directory.
    if way.run(sys.executable, "-I", "-c", PROBE, str(SYSTEM_CONTAINERD), deadline_s=20).code == REFUSED:
        way.run("rm", "-f", str(SYSTEM_CONTAINERD), deadline_s=10)


def start(places: DockerdPaths, way: Root) -> ProcessIdentity:
    """Start dockerd in a new session and wait until it answers. It outlives this process.

    Raises:
        ProvisionFailed: dockerd is missing, or it exited or did not answer within `START_S`.
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
    # Reap the child when it exits: dockerd takes a zombie's pid for a live process.
    threading.Thread(target=process.wait, name="reap-dockerd", daemon=True).start()
    daemon = None
    try:
        daemon = _await_answer(process, places, way)
    finally:  # also after Ctrl-C: the daemon isn't recorded yet, so nothing else would stop it
        if daemon is None and process.poll() is None:
            way.run("sh", "-c", f"kill {process.pid}", deadline_s=10)  # may be sudo: only root may signal it
    if daemon is not None:
        return daemon
    tail = output_tail(places.log.read_text(encoding="utf-8", errors="replace"))
    raise ProvisionFailed(f"dockerd did not start: {tail or 'it printed nothing'}.", advice=f"Its log is {places.log}.")


def _await_answer(process: subprocess.Popen[bytes], places: DockerdPaths, way: Root) -> ProcessIdentity | None:
    """Wait until the daemon answers. Returns None if it exits or the time is up."""
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
    """Stop exactly this dockerd: SIGTERM, `STOP_S`, SIGKILL.

    Raises:
        ProvisionFailed: it survives.
    """
    for option in ("-TERM", "-KILL"):
        if not daemon.alive:
            return
        # The shell's builtin: /bin/kill is in procps, which a minimal Debian lacks.
        way.run("sh", "-c", f"kill {option} {daemon.pid}", deadline_s=10)
        if daemon.wait(STOP_S):
            return
    raise ProvisionFailed(f"dockerd (pid {daemon.pid}) did not exit.", advice=f"Run: sudo kill -9 {daemon.pid}")


def systemd_start(way: Root) -> None:
    """Start the docker unit, which counts as started once the engine answers.

    Raises:
        ProvisionFailed: systemd refused.
    """
    _systemctl(way, "start", "docker.service")


def systemd_stop(way: Root) -> None:
    """Stop the docker unit and its socket, which would restart the unit on the next connection.

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
