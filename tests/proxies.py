"""A TCP proxy before the server that can fall silent: what is open stays open, and nothing comes through."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import Self


class Proxy:
    """Forwards to a port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._silent: set[socket.socket] = set()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._accepts_silently = False
        self._ended = False

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def silence(self, *, new: bool = False) -> None:
        """Forward nothing more on the open connections, nor on new ones if so told."""
        self._silent |= set(self._pairs)
        self._accepts_silently = new

    def _run(self) -> None:
        while not self._ended:
            watched = [s for s in list(self._pairs) if s not in self._silent]
            readable, _, _ = select.select([self._listener, *watched], [], [], 0.05)
            for ready in readable:
                if ready is self._listener:
                    self._accept()
                elif ready in self._pairs:
                    self._forward(ready)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._accepts_silently:
            self._pairs[client] = client
            self._silent.add(client)
            return
        server = socket.create_connection(("127.0.0.1", self._target))
        self._pairs |= {client: server, server: client}

    def _forward(self, source: socket.socket) -> None:
        peer = self._pairs[source]
        data = b""
        with suppress(OSError):
            data = source.recv(1 << 16)
            peer.sendall(data)
        if not data:
            for end in (source, peer):
                self._pairs.pop(end, None)
                end.close()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()
        for end in [self._listener, *self._pairs]:
            end.close()
