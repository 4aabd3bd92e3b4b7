"""Faults to plant into the admin: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable


def filters_know_the_code_alone() -> None:
    """Offer no queue and no kind that only rows have."""
    from django_pgjobs import inspection  # noqa: PLC0415 -- no models before the apps are loaded

    inspection.NAMES = "select '', '' where %(most)s < 0"


def filters_offer_all_names() -> None:
    """Offer whatever names there are."""
    from django_pgjobs import inspection  # noqa: PLC0415 -- likewise

    inspection.NAMES = inspection.NAMES.replace("%(most)s", "(%(most)s * 1000)")


def acts_on_many_are_anybody_s() -> None:
    """Show an act on many in the history of jobs that its filters exclude."""
    from django_pgjobs.admin import histories  # noqa: PLC0415 -- likewise

    histories._can_mean = lambda *_: True


def acts_on_many_leave_no_history() -> None:
    """Show an act on many in the history of no job."""
    from django_pgjobs.admin import histories  # noqa: PLC0415 -- likewise

    histories.acts_on_many = lambda _: []


def lanes_that_were_seen_are_all() -> None:
    """Say nothing of lanes that were not looked at."""
    from django_pgjobs import inspection  # noqa: PLC0415 -- likewise

    sql = inspection.KEYED_BY_PRIORITY
    inspection.KEYED_BY_PRIORITY = sql.replace("count(*) < %(lanes)s", "true or %(lanes)s = 0")


def keyed_jobs_are_listed_by_key() -> None:
    """List the first jobs with a key, whatever their priority."""
    from django_pgjobs.windows import _KEYS, Choice  # noqa: PLC0415 -- likewise

    Choice._first = lambda self, keyed, most, **_: keyed.order_by(*_KEYS)[:most]


def what_was_not_counted_is_none() -> None:
    """Tell the jobs that were counted for all."""
    from django_pgjobs import inspection  # noqa: PLC0415 -- likewise

    inspection.QUEUES = inspection.QUEUES.replace("count(*) = %(most)s as more", "false as more")


def refused_pages_are_bare_errors() -> None:
    """Leave what the database refuses to a page as the error that it is."""
    from django_pgjobs.admin.denials import TellsDenials  # noqa: PLC0415 -- likewise

    TellsDenials._telling = lambda _self, view: view


def templates_are_refused_unheard() -> None:
    """Guard the view of a page, and not what its template asks for."""
    from django_pgjobs.admin import denials  # noqa: PLC0415 -- likewise

    denials.SimpleTemplateResponse = denials.HttpResponseRedirect


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        filters_know_the_code_alone,
        filters_offer_all_names,
        acts_on_many_are_anybody_s,
        acts_on_many_leave_no_history,
        lanes_that_were_seen_are_all,
        keyed_jobs_are_listed_by_key,
        what_was_not_counted_is_none,
        refused_pages_are_bare_errors,
        templates_are_refused_unheard,
    )
}
