"""Faults to plant into how connections are kept and left: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable


def listen_through_poolers() -> None:
    """Take every session for one's own."""
    from django_pgjobs import listener  # noqa: PLC0415 -- no models before the apps are loaded

    listener.is_lent = lambda _: False


def keeper_stays_where_it_is_refused() -> None:
    """Let the keeper leave a server only when its connection is lost."""
    from django_pgjobs import keeper  # noqa: PLC0415 -- likewise

    keeper.DATABASE_ERRORS = ()


def handlers_stay_where_they_are_refused() -> None:
    """Keep a connection that answers, whatever it answers."""
    from django_pgjobs import leftovers  # noqa: PLC0415 -- likewise

    leftovers._is_doubtful = lambda _: False


def forks_share_connections() -> None:
    """Leave forks to themselves."""
    from django_pgjobs import forks  # noqa: PLC0415 -- likewise

    forks.guard = lambda: None


def silence_is_borne() -> None:
    """Wait for the answer to a heartbeat until the lease may be over."""
    from django_pgjobs.conf import Settings  # noqa: PLC0415 -- likewise

    Settings.silence = Settings.unanswered


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        listen_through_poolers,
        keeper_stays_where_it_is_refused,
        handlers_stay_where_they_are_refused,
        forks_share_connections,
        silence_is_borne,
    )
}
