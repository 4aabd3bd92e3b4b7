"""Tell a connection of one's own from a session that a pooler lends for a transaction at a time.

PostgreSQL names the backend's process when it lets a client in; a pooler makes a number up, to know
the clients apart that ask it to cancel. And connections that are open at once never have the same
backend, nor does one have two of them, unless somebody between lends them out.

Invariant: a yes is proven, so nobody is warned who has a pooler that lends for the whole session;
and nothing is left behind in a session that others get next.
"""

from __future__ import annotations

from contextlib import closing

from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgjobs.sessions import connect

_LOOKS = (
    5  # at the backends of two connections in turn; an idle pooler gives itself away at the first
)


def is_lent(connection: BaseDatabaseWrapper) -> bool:
    """Whether an open connection's session is lent to others between its transactions.

    Where there is something between, one more connection is opened for a moment. What a transaction
    does works on such a connection; LISTEN, SET and the like do not.
    """
    mine, others = {_backend(connection)}, set[int]()
    if connection.connection.info.backend_pid in mine:
        return False
    with closing(connect(connection.alias)) as another:
        for _ in range(_LOOKS):
            # Twice in a row: of two sessions that are lent in turn, each would always get its own.
            mine |= {_backend(connection), _backend(connection)}
            others.add(_backend(another))
    return len(mine) > 1 or not mine.isdisjoint(others)


def _backend(connection: BaseDatabaseWrapper) -> int:
    [backend] = connection.connection.execute("select pg_backend_pid()").fetchone()
    return int(backend)
