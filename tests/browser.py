"""A real Chromium, driven over its DevTools protocol on a pipe: JSON with a NUL after each message."""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT_S = 60.0


class Browser:
    """One tab."""

    def __init__(self, to: int, back: int) -> None:
        self._to = to
        self._back = back
        self._numbers = itertools.count(1)
        self._waiting = b""
        self.requested: list[str] = []
        """Every address that the page asked for."""
        self.violations: list[str] = []
        """What the console said."""
        self.exceptions: list[str] = []
        """Errors of scripts."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.view()

    _session = None

    def view(self, width: int = 390, height: int = 844, *, scale: float = 2, dark: bool = False) -> None:
        """The size of the screen in CSS pixels, a phone's below 800, and the preferred colours."""
        screen = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 800}
        self.call("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]})

    def key(self, name: str, *, code: int, loads: bool = False, text: str = "") -> None:
        """Press a key of the keyboard. `loads`: wait for the page that follows."""
        for kind in ("keyDown", "keyUp"):
            pressed: dict[str, Any] = {"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", pressed | ({"text": text} if text and kind == "keyDown" else {}))
        if loads:
            self._loaded()

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """One command and its result; events that come in between are noted."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params or {}}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == number:
                assert "error" not in heard, heard
                return heard["result"]

    def open(self, url: str) -> None:
        """Go there, and wait until it is loaded."""
        self.call("Page.navigate", {"url": url})
        self._loaded()

    def look(self, script: str) -> Any:
        """What a script finds in the page."""
        return self.call("Runtime.evaluate", {"expression": script, "returnByValue": True})["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until a script finds what it looks for. The page may be replaced meanwhile."""
        ends = time.monotonic() + LIMIT_S
        while self.look(f"document.readyState == 'complete' && ({script})") is not True:
            assert time.monotonic() < ends, f"{script}: not in time; the page says {self.text()!r}"
            time.sleep(0.05)

    def text(self) -> str:
        """What a person reads."""
        return str(self.look("document.body.innerText"))

    def type(self, selector: str, text: str) -> None:
        """Write into a field."""
        self.look(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", {"text": text})

    def press(self, selector: str) -> None:
        """Press a button where it is, as a finger would, and wait for the page that follows."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.look(f"{find}.scrollIntoView({{block: 'center'}})")
        box = self.look(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({find}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            at = {"type": kind, "x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", at)
        self._loaded()

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        self._shoot(path, captureBeyondViewport=True)

    def screenshot(self, path: Path) -> None:
        """What the screen shows, as PNG."""
        self._shoot(path)

    def _shoot(self, path: Path, **how: Any) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", how)["data"]))

    def _loaded(self) -> None:
        ends = time.monotonic() + LIMIT_S
        while time.monotonic() < ends:
            if self._hear().get("method") == "Page.loadEventFired":
                return
        raise AssertionError("the page did not load")

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            received = os.read(self._back, 1 << 16)
            assert received, "the browser has ended"
            self._waiting += received
        message, _, self._waiting = self._waiting.partition(b"\0")
        heard: dict[str, Any] = json.loads(message)
        match heard.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(heard["params"]["request"]["url"])
            case "Runtime.exceptionThrown":
                self.exceptions.append(json.dumps(heard["params"]["exceptionDetails"]))
            case "Log.entryAdded":
                self.violations.append(heard["params"]["entry"]["text"])
            case _:
                pass
        return heard


@contextmanager
def browsing(command: str) -> Iterator[Browser]:
    """A browser that nothing was ever opened in."""
    with tempfile.TemporaryDirectory(prefix="codesdk-browser-", ignore_cleanup_errors=True) as home:
        commands, to = os.pipe()
        back, answers = os.pipe()
        script = f'exec "$@" 3<&{commands} 4>&{answers}'
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={home}/profile"]
        argv = ["bash", "-c", script, "bash", command, *options, "--remote-debugging-pipe"]
        environment = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
        browser = subprocess.Popen(
            argv,
            pass_fds=(commands, answers),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        try:
            yield Browser(to, back)
        finally:
            os.close(to)
            os.close(back)
            browser.terminate()
            browser.wait(20)
