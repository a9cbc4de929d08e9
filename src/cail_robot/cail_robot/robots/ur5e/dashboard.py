"""The Dashboard server of a control box, with a deadline for every answer (ur_rtde's own client may wait for ever)."""

from __future__ import annotations

import contextlib
import socket

PORT = 29999


class DashboardError(Exception):
    """It does not answer."""


class Dashboard:
    def __init__(self, host: str, timeout_s: float = 1.0) -> None:
        try:
            self._socket = socket.create_connection((host, PORT), timeout=timeout_s)
            self._file = self._socket.makefile("rb")
            self._file.readline()  # the greeting
        except OSError as fault:
            raise DashboardError(f"the Dashboard server of {host} does not answer ({fault})") from None

    def ask(self, line: str) -> str:
        try:
            self._socket.sendall(line.encode() + b"\n")
            reply = self._file.readline()
        except OSError as fault:
            raise DashboardError(f"the Dashboard server does not answer '{line}' ({fault})") from None
        if not reply:
            raise DashboardError(f"the Dashboard server closed the connection at '{line}'")
        return reply.decode("utf-8", "replace").strip()

    def set_waiting(self, waiting: bool) -> None:
        """Whether answers are waited for; if not, use `poll`."""
        self._socket.settimeout(1.0 if waiting else 0.0)

    def poll(self, line: str) -> str:
        """Ask without waiting; gives the last of the answers to earlier questions, or nothing."""
        try:
            answers = self._socket.recv(4096).decode("utf-8", "replace").split()
        except OSError:
            answers = []
        with contextlib.suppress(OSError):
            self._socket.send(line.encode() + b"\n")
        return answers[-1] if answers else ""

    def close(self) -> None:
        self._file.close()
        self._socket.close()
