"""A person at a terminal: a real tmux window, keys in, screen out."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest


class Window:
    """One program in a tmux window of 80 × 24 or as given."""

    def __init__(self, command: Sequence[str], size: tuple[int, int], env: dict[str, str]) -> None:
        self._tmux = ["tmux", "-L", f"cail-{os.getpid()}-{uuid.uuid4().hex[:8]}", "-f", "/dev/null"]
        words = ["env", *(f"{name}={value}" for name, value in env.items()), *command]
        script = f"{shlex.join(words)}; echo \"ended with $?\"; sleep 600"
        self._run("-u", "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), script)

    def type(self, *keys: str) -> None:
        """Press keys one after the other, by tmux's names: q, Enter, Left, C-c."""
        self._run("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    @property
    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-J")  # lines that the window wrapped in one piece

    def wait_for(self, text: str, timeout_s: float = 30.0) -> str:
        """The screen once `text` is on it."""
        end = time.monotonic() + timeout_s
        while text not in (seen := self.screen):
            over = time.monotonic() > end or ("ended with" in seen and text not in self.screen)
            assert not over, f"expected {text!r} on the screen, found:\n{seen}"
            time.sleep(0.02)
        return seen

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout


@contextmanager
def at_terminal(command: Sequence[str], size: tuple[int, int] = (80, 24), **env: str) -> Iterator[Window]:
    """Start `command` in a window of its own; it is gone afterwards. Skips where there is no tmux."""
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux to press keys as a person would: apt install tmux")
    window = Window(command, size, {"LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", **env})
    try:
        yield window
    finally:
        window.close()
