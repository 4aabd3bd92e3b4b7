"""Faults to plant into the dead letters of pgmq, their command and their pages: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable


def _change(name: str, *changes: tuple[str, str]) -> None:
    from django_pgjobs.pgmq import calls  # noqa: PLC0415 -- no models before the apps are loaded

    text = getattr(calls, name)
    for old, new in changes:
        if old not in text:
            msg = f"The statement must hold {old!r} for this fault, got {text}. Adapt the fault."
            raise AssertionError(msg)
        text = text.replace(old, new)
    setattr(calls, name, text)


def redriven_letters_stay() -> None:
    """Send dead letters back without deleting them."""
    _change(
        "REDRIVE",
        ("delete from {table} as q using chosen where q.msg_id = chosen.msg_id", ""),
        ("returning q.msg_id", "select q.msg_id"),
        (
            "else headers end as headers",
            "else headers end as headers from {table} as q join chosen using (msg_id)",
        ),
    )


def what_stays_takes_a_place() -> None:
    """Count what has nowhere to go among those that a limit lets go."""
    _change(
        "REDRIVE", ("from {table} as q join pgmq.meta", "from {table} as q left join pgmq.meta")
    )


def viewers_may_act_on_messages() -> None:
    """Let whoever sees queues redrive and purge them."""
    from django_pgjobs.admin.message_acts import MessageAct  # noqa: PLC0415 -- likewise

    MessageAct.allowed = lambda *_: True


def messages_show_secrets() -> None:
    """Show messages as they are."""
    from django_pgjobs.pgmq import peeks  # noqa: PLC0415 -- likewise

    class Plain:
        read = peeks.masking.read
        masked = staticmethod(lambda value: value)

    peeks.masking = Plain


def looks_take_all_messages() -> None:
    """Take a whole queue for a page of it."""
    _change("PAGE", ("limit %(qty)s", "limit %(qty)s * 1000"))


def a_lost_table_hides_the_others() -> None:
    """Count queues as pgmq.metrics_all() does."""
    _change("QUEUES", ("case when", "case when true or"))


def queues_are_counted_to_their_end() -> None:
    """Read all messages of a queue for its figures."""
    _change("QUEUES", ("%(most)s::text", "coalesce('all', %(most)s::text)"))


def purges_ask_nobody() -> None:
    """Delete what is to be purged without a question."""
    from django_pgjobs.management import messages  # noqa: PLC0415 -- likewise

    messages._confirm = lambda _: None


def purges_wait_for_the_queue() -> None:
    """Let a purge in the admin wait for whoever uses the queue."""
    from django_pgjobs.pgmq import calls  # noqa: PLC0415 -- likewise

    calls.PATIENCE = "select set_config('lock_timeout', '20s', true)"


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        redriven_letters_stay,
        what_stays_takes_a_place,
        viewers_may_act_on_messages,
        messages_show_secrets,
        looks_take_all_messages,
        a_lost_table_hides_the_others,
        queues_are_counted_to_their_end,
        purges_ask_nobody,
        purges_wait_for_the_queue,
    )
}
