"""Faults to plant into what roles may do and see, and what they are told: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable


def roles_start_without_a_look() -> None:
    """Let workers start whatever their role lacks."""
    from django_pgjobs import rights  # noqa: PLC0415 -- no models before the apps are loaded

    rights.demand = lambda *_: None


def missing_policies_are_unseen() -> None:
    """Look for privileges alone, as if row security hid nothing."""
    from django_pgjobs import symptoms  # noqa: PLC0415 -- likewise

    old = "row_security_active(oid)"
    if old not in symptoms.RIGHTS:
        msg = f"The statement must hold {old!r} for this fault, got {symptoms.RIGHTS}. Adapt the fault."
        raise AssertionError(msg)
    symptoms.RIGHTS = symptoms.RIGHTS.replace(old, "false")


def what_has_no_rows_is_left() -> None:
    """Leave to roles what row security says nothing of."""
    from django_pgjobs import roles  # noqa: PLC0415 -- likewise

    roles._revoke_what_has_no_rows = lambda _: "select"


def producers_read_payloads() -> None:
    """Grant and show whole jobs to those who enqueue."""
    from django_pgjobs import roles  # noqa: PLC0415 -- likewise

    privileges = dict(roles.PRIVILEGES)
    privileges["producer"] = tuple(
        one._replace(columns=()) if one.command == "select" else one
        for one in privileges["producer"]
    )
    roles.PRIVILEGES = privileges


def producers_see_all_rows() -> None:
    """Show finished jobs, too, to those who enqueue."""
    from django_pgjobs import roles  # noqa: PLC0415 -- likewise

    policies = dict(roles.POLICIES)
    policies["producer"] = tuple(
        one._replace(using="true") if one.using else one for one in policies["producer"]
    )
    roles.POLICIES = policies


def policies_are_for_everybody() -> None:
    """Show the tables to every role of the server."""
    from django_pgjobs import roles  # noqa: PLC0415 -- likewise

    real = roles.enabling

    def enabling(given: roles.Roles, place: roles.Place) -> list[str]:
        names = {roles.quoted(name) for each in given.values() for name in each}
        statements = list(real(given, place))
        for name in names:
            statements = [one.replace(f"TO {name}", "TO PUBLIC") for one in statements]
        return statements

    roles.enabling = enabling


def refused_enqueues_get_no_advice() -> None:
    """Leave the server's words alone."""
    from django_pgjobs import roles  # noqa: PLC0415 -- likewise

    roles.explain = lambda *_: None


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        roles_start_without_a_look,
        missing_policies_are_unseen,
        what_has_no_rows_is_left,
        producers_read_payloads,
        producers_see_all_rows,
        policies_are_for_everybody,
        refused_enqueues_get_no_advice,
    )
}
