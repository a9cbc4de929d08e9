"""A real headless Chromium, driven over its debugging pipe: no driver and no network in between."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe")
PATIENCE_S = 60.0


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page at a time; `said` are its console errors and exceptions, `asked` the addresses that it requested."""

    def __init__(self, program: str) -> None:
        self._home = tempfile.TemporaryDirectory()
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        words = [program, *FLAGS, f"--user-data-dir={self._home.name}", "about:blank"]
        script = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(["bash", "-c", script, "bash", *words], pass_fds=(to_browser, from_browser),
                                         stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._count, self._session = b"", 0, ""
        self.said: list[str] = []
        self.asked: list[str] = []
        self._loaded = False

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        for _ in range(50):  # its helper processes let go of the profile a moment later
            try:
                self._home.cleanup()
                break
            except OSError:
                time.sleep(0.1)

    def call(self, method: str, **parameters: Any) -> Any:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        os.write(self._to, json.dumps(message | ({"sessionId": self._session} if self._session else {})).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, file: Path, *, width: int, height: int = 844, dark: bool = False) -> None:
        self.said, self.asked, self._loaded = [], [], False
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=file.resolve().as_uri())
        while not self._loaded:
            self._receive()

    def value(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["text"])
        return result["result"].get("value")

    def screenshot(self, *, whole: bool = True) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], PATIENCE_S)[0]:
                raise TimeoutError(f"Chromium said nothing for {PATIENCE_S:.0f} s")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise RuntimeError("Chromium ended by itself")
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        self._notice(message.get("method", ""), message.get("params", {}))
        return message

    def _notice(self, method: str, about: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.asked.append(about["request"]["url"][:200])
        elif method == "Runtime.exceptionThrown":
            self.said.append(str(about["exceptionDetails"].get("exception", about["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.said.append(str(about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.said.append(about["entry"]["text"])
