"""Faults to plant into consumers of pgmq: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _change(name: str, old: str, new: str) -> None:
    from django_pgjobs.pgmq import acks  # noqa: PLC0415 -- no models before the apps are loaded

    text = getattr(acks, name)
    if old not in text:
        msg = f"{name} must hold {old!r} for this fault, got {text}. Adapt the fault."
        raise AssertionError(msg)
    setattr(acks, name, text.replace(old, new))


def messages_have_no_fence() -> None:
    """Archive, delete and fail a message whoever has read it since."""
    for name in ("_ARCHIVE", "_DELETE", "_FAIL"):
        _change(name, " and q.read_ct = held.read_ct", "")


def late_messages_commit() -> None:
    """Commit what an atomic handler wrote though somebody else has read its message."""
    from django_pgjobs.pgmq import hands  # noqa: PLC0415 -- likewise

    class Believing(hands.Acks):
        def acknowledge(self, held: Any) -> set[int]:
            return super().acknowledge(held) or {one.id for one in held}

    hands.Acks = Believing


def atomic_messages_end_outside() -> None:
    """Archive the message of an atomic handler on another connection than its writes."""
    from django_pgjobs.pgmq import hands  # noqa: PLC0415 -- likewise
    from django_pgjobs.sessions import Session  # noqa: PLC0415 -- likewise

    hands.execute_on_django = lambda alias: Session(alias).execute


def messages_are_popped() -> None:
    """Delete messages as they are read."""
    from django_pgjobs.pgmq import calls  # noqa: PLC0415 -- likewise

    calls.READ = calls.POP


def dead_letters_move_in_two_steps() -> None:
    """Delete what is given up, and send it to the dead letters after that."""
    from django_pgjobs.pgmq.acks import Acks  # noqa: PLC0415 -- likewise

    def bury(self: Any, held: Any, _reason: str) -> set[int]:
        gone = self.acknowledge([held])
        params = {"queue": self._consumer.dead_letters.name, "text": held.text}
        self._execute("select pgmq.send(%(queue)s::text, %(text)s::jsonb)", params)
        return gone

    Acks.bury = bury


def poison_is_read_for_ever() -> None:
    """Leave a message in its queue, however often it was read."""
    from django_pgjobs.pgmq.pumps import Pump  # noqa: PLC0415 -- likewise

    Pump._give_up = lambda self, held, _: self._held.discard(held)


def visibility_is_not_prolonged() -> None:
    """Let messages be seen again while their handlers run."""
    from django_pgjobs.pgmq.acks import Acks  # noqa: PLC0415 -- likewise

    Acks.prolong = lambda _self, held: {one.id for one in held}


def stops_keep_messages() -> None:
    """Keep what no handler has begun hidden until its time is over."""
    from django_pgjobs.pgmq.acks import Acks  # noqa: PLC0415 -- likewise

    Acks.give_back = lambda _self, _held: set()


def messages_given_back_count() -> None:
    """Count a read that led to nothing."""
    _change("_GIVE_BACK", "q.read_ct - 1", "q.read_ct")


def locked_messages_are_waited_for() -> None:
    """Have the writes of a consumer wait for whatever somebody has locked."""
    from django_pgjobs.pgmq import pumps  # noqa: PLC0415 -- likewise

    class Waiting(pumps.Acks):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, waits=True)

    pumps.Acks = Waiting


def locked_messages_are_lost() -> None:
    """Take what somebody has locked for what somebody else has read."""
    from django_pgjobs.pgmq.acks import Acks  # noqa: PLC0415 -- likewise

    Acks.still_mine = lambda _self, _held: set()


def short_messages_are_waited_for() -> None:
    """Wake no further thread for messages behind one that takes longer than those before it."""
    from django_pgjobs.pgmq.hands import Threads  # noqa: PLC0415 -- likewise

    Threads.hurry = lambda _self: None


def notifications_are_not_heard() -> None:
    """Leave consumers to their polling."""
    from django_pgjobs.pgmq.crew import _QueueListener  # noqa: PLC0415 -- likewise

    _QueueListener._is_for_us = lambda *_: False


def consumers_start_without_a_look() -> None:
    """Let consumers start whatever they lack."""
    from django_pgjobs.pgmq import readiness  # noqa: PLC0415 -- likewise

    readiness.faults = lambda *_: iter(())


def dropped_queues_are_waited_for_by_drains() -> None:
    """Take a queue that is dropped for one that may have messages yet."""
    from django_pgjobs.pgmq.pumps import Pump  # noqa: PLC0415 -- likewise

    Pump._missing = lambda *_: None


def messages_count_for_nothing() -> None:
    """Read messages whatever `--max-jobs` says."""
    from django_pgjobs.pgmq.allowances import Allowance  # noqa: PLC0415 -- likewise

    Allowance.take = lambda _self, wanted: wanted
    Allowance.note = Allowance.give_back = lambda *_: None


def jobs_count_no_messages() -> None:
    """Claim as many jobs as if no message had been read."""
    from django_pgjobs.shares import Share  # noqa: PLC0415 -- likewise

    Share.left = lambda self, jobs: self._limit - jobs


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        messages_have_no_fence,
        late_messages_commit,
        atomic_messages_end_outside,
        messages_are_popped,
        dead_letters_move_in_two_steps,
        poison_is_read_for_ever,
        visibility_is_not_prolonged,
        stops_keep_messages,
        messages_given_back_count,
        locked_messages_are_waited_for,
        locked_messages_are_lost,
        short_messages_are_waited_for,
        notifications_are_not_heard,
        consumers_start_without_a_look,
        dropped_queues_are_waited_for_by_drains,
        messages_count_for_nothing,
        jobs_count_no_messages,
    )
}
