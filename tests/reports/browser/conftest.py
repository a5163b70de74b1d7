"""A headless Chromium, driven over the DevTools protocol by pipes: the standard library alone is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 30.0


class Tab:
    """One tab: opens pages, runs scripts and keys in them, and keeps what was logged and requested."""

    def __init__(self, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The protocol is spoken on file descriptors 3 and 4 of the browser.
        command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "chromium", str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self._session = b"", 0, ""
        self.logged: list[str] = []
        self.requested: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self.send("Browser.close")
        self._process.wait(PATIENCE)
        os.close(self._in)
        os.close(self._out)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._in, 1 << 20)
            assert read, "the browser ended"
            self._buffer += read
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message = dict(json.loads(raw))
        told = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])
        elif message.get("method") == "Log.entryAdded":
            self.logged.append(told["entry"]["text"])
        elif message.get("method") == "Runtime.consoleAPICalled":
            self.logged.append(str(told["args"]))
        elif message.get("method") == "Runtime.exceptionThrown":
            self.logged.append(json.dumps(told["exceptionDetails"]))
        return message

    def open(self, page: str, *, width: int = 1280, height: int = 900, scheme: str = "light") -> float:
        """Open a page at a window's size, in a colour scheme; gives the seconds until it had loaded."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        started = time.monotonic()
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=page)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return time.monotonic() - started

    def run(self, script: str) -> Any:
        """The value of an expression in the page, a promise's once it is kept."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        told = {"key": key, "code": key, "windowsVirtualKeyCode": {"Enter": 13, "Tab": 9, "Escape": 27}[key]}
        self.send("Input.dispatchKeyEvent", type="keyDown", text="\r" if key == "Enter" else "", **told)
        self.send("Input.dispatchKeyEvent", type="keyUp", **told)

    def picture(self, file: Path) -> None:
        """Save what the whole page looks like."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000), "scale": 1}
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        file.write_bytes(base64.b64decode(shot))


@pytest.fixture(scope="session")
def start_tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Tab]]:
    """Starts browsers that end with the tests; skips where there is none, fails where there must be one."""
    if CHROMIUM is None:
        if os.environ.get("BENCH_TEST_BROWSER") == "required":
            pytest.fail("no Chromium on this machine: apt-get install chromium")
        pytest.skip("no Chromium on this machine")
    started: list[Tab] = []

    def start() -> Tab:
        started.append(Tab(tmp_path_factory.mktemp("profile")))
        return started[-1]

    yield start
    for tab in started:
        tab.close()


@pytest.fixture(scope="module")
def tab(start_tab: Callable[[], Tab]) -> Tab:
    """A browser of this file's tests."""
    return start_tab()
