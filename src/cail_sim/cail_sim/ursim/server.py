"""Sockets and time: one thread, one select loop, a control cycle every 2 ms.

Clients cannot hurt each other or the cycle: their requests are done in turns, in the time that the cycle leaves; what a client
may make the box keep is bounded; who sends what is not the protocol is let go. Periodic data for a client that does not read is
dropped in whole packages.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cail_core.errors import BadInput
from cail_sim.ursim import dashboard, faults, robotiq, rtde
from cail_sim.ursim.controller import Controller, RobotMode
from cail_sim.ursim.motion import CYCLE_S
from cail_sim.ursim.plant import Plant
from cail_sim.ursim.script import ScriptReader, TooLong

MOST_CLIENTS = 64
CHUNK = 4096
REQUESTS_AT_LEAST = 4
"""In each cycle, even if it is late."""
MOST_UNSENT = 1 << 18
MOST_BEHIND = 10
"""Cycles that are made up for when the process was kept from running; more are left out."""


@dataclass(frozen=True)
class Ports:
    """As on a real box; ur_rtde knows no others."""

    dashboard: int = 29999
    script: int = 30003
    rtde: int = 30004
    robotiq: int = 63352
    faults: int = faults.PORT


class Disconnect(Exception):
    """This client is to be let go."""


class Client(ABC):
    """One connection: what it sent and is not yet handled, what it is to get and has not yet taken."""

    is_robot = True
    """Whether injected network faults concern it."""

    def __init__(self, server: Server, connection: socket.socket) -> None:
        self.server = server
        self.socket = connection
        self.received = bytearray()
        self.pending = False
        """Whether `received` may hold a whole request."""
        self.unsent = b""
        self.last_words = False
        """Whether it is let go as soon as `unsent` is gone."""

    @abstractmethod
    def handle(self) -> bool:
        """Do one request; False if the received bytes hold none."""

    def send(self, data: bytes) -> None:
        self.unsent += data
        if len(self.unsent) > MOST_UNSENT:
            raise Disconnect
        self.flush()

    def flush(self) -> None:
        if self.unsent:
            try:
                sent = self.socket.send(self.unsent)
            except BlockingIOError:
                return
            except OSError:
                raise Disconnect from None
            self.unsent = self.unsent[sent:]
        if self.last_words and not self.unsent:
            raise Disconnect

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


class RtdeClient(Client):
    def __init__(self, server: Server, connection: socket.socket) -> None:
        super().__init__(server, connection)
        self.session = rtde.Session(server.box, server.claimed)

    def handle(self) -> bool:
        request = rtde.take(self.received)
        if request is None:
            return False
        if reply := self.session.answer(*request):
            self.send(reply)
        return True

    def close(self) -> None:
        self.session.close()
        super().close()


class LineClient(Client):
    """Lines in, lines out."""

    longest = dashboard.LONGEST_LINE
    greeting = ""

    def __init__(self, server: Server, connection: socket.socket) -> None:
        super().__init__(server, connection)
        if self.greeting:
            self.send(self.greeting.encode() + b"\n")

    @abstractmethod
    def answer(self, line: str) -> str | None:
        """What is said to a line; None: nothing."""

    def handle(self) -> bool:
        end = self.received.find(b"\n")
        if end < 0:
            if len(self.received) > self.longest:
                raise Disconnect
            return False
        line = self.received[:end].decode("utf-8", "replace").strip()
        del self.received[: end + 1]
        reply = self.answer(line)
        self.last_words = reply is None
        self.send(b"Disconnected\n" if reply is None else reply.encode() + b"\n")
        return True


class DashboardClient(LineClient):
    greeting = dashboard.GREETING

    def answer(self, line: str) -> str | None:
        return dashboard.answer(self.server.box, line)


class RobotiqClient(LineClient):
    longest = robotiq.LONGEST_LINE

    def handle(self) -> bool:
        if self.server.gripper.silent:
            self.received.clear()
        return super().handle()

    def answer(self, line: str) -> str:
        return self.server.gripper.answer(line)


class FaultsClient(LineClient):
    longest = faults.LONGEST_LINE
    is_robot = False

    def answer(self, line: str) -> str:
        try:
            return json.dumps(faults.apply(self.server, line))
        except faults.BadFault as fault:
            return json.dumps({"error": str(fault)})


class ScriptClient(Client):
    def __init__(self, server: Server, connection: socket.socket) -> None:
        super().__init__(server, connection)
        self.reader = ScriptReader()

    def handle(self) -> bool:
        piece = bytes(self.received[:1024])
        del self.received[:1024]
        for script in self.reader.feed(piece):
            self.server.box.run_script(script)
        return bool(piece)


class Server:
    """The whole box: controller, gripper, listeners, clients."""

    def __init__(self, make_plant: Callable[[], Plant], host: str = "127.0.0.1", ports: Ports | None = None) -> None:
        self.host, self.ports = host, ports or Ports()
        self._make_plant = make_plant
        self.box = Controller(make_plant())
        self.gripper = robotiq.Robotiq(self.box.plant)
        self.claimed: dict[str, rtde.Session] = {}
        self.clients: list[Client] = []
        self.overruns = 0
        self.longest_cycle_s = 0.0
        self.left_out = 0
        self._running = True
        self._frozen_until = 0.0
        self._refuse_until = 0.0
        self._dead: list[tuple[float, Client]] = []
        self._boot_at: float | None = None
        loopback = host if host.startswith("127.") else "127.0.0.1"
        kinds: list[tuple[str, int, type[Client]]] = [
            (host, self.ports.dashboard, DashboardClient),
            (host, self.ports.script, ScriptClient),
            (host, self.ports.rtde, RtdeClient),
            (host, self.ports.robotiq, RobotiqClient),
            (loopback, self.ports.faults, FaultsClient),
        ]
        self._listeners: dict[socket.socket, type[Client]] = {}
        try:
            for address, port, kind in kinds:
                self._listeners[_listen(address, port)] = kind
        except BadInput:
            self.close()
            raise

    # Running

    def run(self, each_second: Callable[[], None] | None = None) -> None:
        """Until `stop`."""
        due = time.monotonic() + CYCLE_S
        told = time.monotonic()
        while self._running:
            now = time.monotonic()
            if now >= due:
                behind = int((now - due) / CYCLE_S)
                if behind:
                    self.overruns += 1
                if behind > MOST_BEHIND:
                    self.left_out += behind - MOST_BEHIND
                    due += (behind - MOST_BEHIND) * CYCLE_S
                self._cycle(now)
                self.longest_cycle_s = max(self.longest_cycle_s, time.monotonic() - now)
                due += CYCLE_S
                if each_second is not None and now - told >= 1.0:
                    told = now
                    each_second()
            self._serve(due)
        self.close()

    def stop(self) -> None:
        self._running = False

    def close(self) -> None:
        for client in [*self.clients, *(client for _, client in self._dead)]:
            client.close()
        for listener in self._listeners:
            listener.close()
        self.box.plant.close()

    def _cycle(self, now: float) -> None:
        self.box.cycle()
        for client in [client for at, client in self._dead if at <= now]:
            client.close()
        self._dead = [(at, client) for at, client in self._dead if at > now]
        if self._boot_at is not None and now >= self._boot_at:
            self._boot_at = None
            self._boot()
        if now < self._frozen_until:
            return
        values: dict[str, Any] | None = None
        for client in list(self.clients):
            with self._letting_go(client):
                if isinstance(client, RtdeClient) and client.session.started and self.box.cycles % client.session.every == 0:
                    client.flush()
                    if client.unsent:
                        continue  # it does not keep up: this package is dropped
                    values = values or self.box.outputs()
                    client.send(client.session.data(values))
                elif client.unsent:
                    client.flush()

    def _serve(self, due: float) -> None:
        """Wait for clients until the next cycle is due, and do some of what they ask."""
        frozen = time.monotonic() < self._frozen_until
        heard = [c for c in self.clients if not (frozen and c.is_robot)]
        readers: dict[socket.socket, Client | type[Client]] = {c.socket: c for c in heard if not c.pending}
        readers.update((s, kind) for s, kind in self._listeners.items() if not (frozen and kind.is_robot))
        waiting = any(c.pending for c in heard)
        ready, _, _ = select.select(readers, (), (), 0.0 if waiting else max(0.0, due - time.monotonic()))
        for one in ready:
            client = readers[one]
            if isinstance(client, Client):
                self._read(client)
            else:
                self._accept(one, client)
        asking = [c for c in heard if c.pending]
        for count in itertools.count(1):
            if not asking or (count > REQUESTS_AT_LEAST and time.monotonic() >= due):
                break
            client = asking.pop(0)
            client.pending = False
            with self._letting_go(client):
                client.pending = client.handle()
            if client.pending:
                asking.append(client)
        # Who was not reached now comes first the next time.
        self.clients.sort(key=lambda c: c not in asking)

    def _read(self, client: Client) -> None:
        with self._letting_go(client):
            try:
                data = client.socket.recv(CHUNK)
            except BlockingIOError:
                return
            except OSError:
                raise Disconnect from None
            if not data:
                raise Disconnect
            client.received += data
            client.pending = True

    def _accept(self, listener: socket.socket, kind: type[Client]) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        refused = kind.is_robot and (time.monotonic() < self._refuse_until or self._boot_at is not None)
        if refused or len(self.clients) + len(self._dead) >= MOST_CLIENTS:
            connection.close()
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.clients.append(kind(self, connection))
        except Disconnect:
            connection.close()

    @contextlib.contextmanager
    def _letting_go(self, client: Client) -> Iterator[None]:
        try:
            yield
        except (Disconnect, rtde.BadPackage, TooLong):
            client.pending = False
            client.close()
            if client in self.clients:
                self.clients.remove(client)

    # Faults

    def drop(self, refuse_s: float) -> None:
        for client in [c for c in self.clients if c.is_robot]:
            client.close()
            self.clients.remove(client)
        self._refuse_until = time.monotonic() + refuse_s

    def freeze(self, seconds: float) -> None:
        self._frozen_until = time.monotonic() + seconds

    def half_open(self, seconds: float) -> None:
        """The connections are forgotten but not closed; their registers stay in use until they are."""
        until = time.monotonic() + seconds
        self._dead += [(until, c) for c in self.clients if c.is_robot]
        self.clients = [c for c in self.clients if not c.is_robot]

    def garbage(self, size: int) -> None:
        for client in list(self.clients):
            if isinstance(client, RtdeClient):
                with self._letting_go(client):
                    client.send(os.urandom(size))

    def restart(self, seconds: float) -> None:
        """Power is cut: the brakes hold the arm at once."""
        self.drop(0.0)
        self.box.power_off()
        self._boot_at = time.monotonic() + seconds

    def _boot(self) -> None:
        old = self.box
        self.box = Controller(old.plant, old.version)
        self.box.speed_commands, self.box.moving_at = old.speed_commands, old.moving_at
        self.box.robot_mode = RobotMode.POWER_OFF
        self.box.said = "controller started; power is off"

    def reset(self) -> None:
        self.drop(0.0)
        self.box.plant.close()
        self.box = Controller(self._make_plant())
        self.gripper = robotiq.Robotiq(self.box.plant)
        self._frozen_until = self._refuse_until = 0.0

    def status(self) -> dict[str, Any]:
        return {
            "clients": sum(c.is_robot for c in self.clients),
            "overruns": self.overruns,
            "left_out": self.left_out,
            "longest_cycle_ms": round(1000.0 * self.longest_cycle_s, 3),
            "now": time.monotonic(),
        }


def _listen(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(16)
        made.setblocking(False)
    except OSError as fault:
        made.close()
        raise BadInput(
            f"cannot listen on {host}:{port}: {fault.strerror or fault}; is another control box running there? "
            "choose another address, such as --host 127.0.0.2"
        ) from None
    return made
