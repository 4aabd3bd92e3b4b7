"""A TCP proxy before the server that can be slow, fall silent, or cut a connection right after a COMMIT.

Silent is what a broken network is: what is open stays open, and nothing comes through. Cut after a
COMMIT means that the server has done what it was asked to, and the client never hears of it.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Self

from tests.protocol import Moment, Watch, spell_out


@dataclass(eq=False)
class _Link:
    """One connection of a client, and the proxy's own to the server."""

    client: socket.socket
    server: socket.socket
    watch: Watch | None = None
    silent: bool = False
    prepared: dict[bytes, bytes] = field(default_factory=dict)


class Proxy:
    """Forwards to a port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._links: dict[socket.socket, _Link] = {}
        self._accepted: list[socket.socket] = []  # in silence
        self._accepts_silently = False
        self._orders: list[str] = []
        self._moments: list[Moment] = []
        self._ended = False
        self.delay = 0.0  # seconds that each piece of data takes
        self.calls = 0  # connections that were asked for
        self.cuts = 0  # connections that were cut after a COMMIT

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def silence(self, *, new: bool = False) -> None:
        """Forward nothing more on the open connections, nor on new ones if so told."""
        for link in list(self._links.values()):
            link.silent = True
        self._accepts_silently = new

    def cut_after_commit(self, statement: str, answer: str = "") -> None:
        """Cut the next connection whose transaction says and is answered this, after its COMMIT."""
        self._moments.append(Moment(statement.encode(), answer.encode()))

    def drop(self) -> None:
        """Close all connections."""
        self._orders.append("drop")

    def heal(self) -> None:
        """Be an ordinary proxy again. What was silent is closed, as the peers would find out."""
        self._moments.clear()
        self._accepts_silently, self.delay = False, 0.0
        self._orders.append("drop silent")

    def _run(self) -> None:
        while not self._ended:
            watched = [end for end, link in list(self._links.items()) if not link.silent]
            readable, _, _ = select.select([self._listener, *watched], [], [], 0.02)
            for order in [self._orders.pop(0) for _ in self._orders[:]]:
                self._drop(silent_only=order == "drop silent")
            if self.delay and any(end in self._links for end in readable):
                time.sleep(self.delay)  # not to wait: being slow is the proxy's duty here
            for ready in readable:
                if ready is self._listener:
                    self._accept()
                elif link := self._links.get(ready):
                    self._forward(link, ready)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self.calls += 1
        if self._accepts_silently:
            self._accepted.append(client)
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()  # there is no server now
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(client, server)
        self._links |= {client: link, server: link}

    def _forward(self, link: _Link, source: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
            if data and source is link.client:
                self._note_request(link, data)
                link.server.sendall(data)
            elif data:
                self._pass_on(link, data)
        except OSError:
            data = b""
        if not data:
            self._close(link)

    def _note_request(self, link: _Link, data: bytes) -> None:
        data = spell_out(data, link.prepared)
        if link.watch is None:
            moment = next((m for m in self._moments if m.statement in data), None)
            link.watch = Watch(moment) if moment else None
        if link.watch:
            link.watch.sees_request(data)

    def _pass_on(self, link: _Link, data: bytes) -> None:
        if link.watch is None:
            link.client.sendall(data)
        elif link.watch.sees_answer(data) and link.watch.moment in self._moments:
            self._moments.remove(link.watch.moment)
            self.cuts += 1
            self._close(link)
        else:
            link.client.sendall(link.watch.take())
            if not link.watch.asked and not link.watch.held:
                link.watch = None

    def _drop(self, *, silent_only: bool) -> None:
        for link in set(self._links.values()):
            if link.silent or not silent_only:
                self._close(link)
        for client in self._accepted:
            client.close()
        self._accepted.clear()

    def _close(self, link: _Link) -> None:
        for end in (link.client, link.server):
            self._links.pop(end, None)
            end.close()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()
        for end in [self._listener, *self._accepted, *self._links]:
            end.close()
