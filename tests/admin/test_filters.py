"""What the filters beside the list of jobs offer: names of the code, of the settings and of the rows."""

from __future__ import annotations

import pytest
from django.utils import timezone

from django_pgjobs.admin import filters
from django_pgjobs.models import Figure, Queue
from tests.db import rows

JOBS = "/admin/django_pgjobs/job/"


def offered(client, name: str, query: str = "") -> set[str]:
    specs = client.get(JOBS + query).context["cl"].filter_specs
    [spec] = [spec for spec in specs if spec.parameter_name == name]
    return {value for value, _ in spec.lookup_choices}


def note(queue: str, kind: str, minute=None) -> None:
    Figure.objects.create(minute=minute or timezone.now(), queue=queue, kind=kind)


def test_queues_are_offered_wherever_their_name_stands(as_user, settings):
    settings.PGJOBS = {"QUEUES": {"limited": {"concurrency": 1}}}
    rows.make("pending", queue="waiting")
    rows.make("pending", queue="keyed", concurrency_key="a")
    rows.make("running", queue="running")
    Queue.objects.create(name="paused", paused_at=timezone.now())
    note("noted", "a")
    note("", "")  # of names without number
    found = offered(as_user("viewer"), "queue")
    assert {"limited", "waiting", "keyed", "running", "paused", "noted", "default"} <= found
    assert "" not in found


def test_kinds_are_offered_that_have_run_and_have_no_handler(as_user):
    for queue, kind in (("a", "gone"), ("b", "gone"), ("b", "left"), ("", "")):
        note(queue, kind)
        note(queue, kind, rows.AGO)
    found = offered(as_user("viewer"), "kind")
    assert {"gone", "left", "noop"} <= found
    assert "" not in found


def test_of_names_without_number_some_are_offered(as_user, monkeypatch, kinds):
    kinds.clear()
    monkeypatch.setattr(filters, "MOST_NAMES", 3)
    for n in range(9):
        rows.make("pending", queue=f"q{n}")
        note(f"q{n}", f"k{n}")
    client = as_user("viewer")
    assert offered(client, "queue") == {"default", "q0", "q1", "q2"}
    assert offered(client, "kind") == {"k0", "k1", "k2"}


@pytest.mark.parametrize("name", ["queue", "kind"])
def test_a_name_that_is_not_offered_filters_and_is_shown_as_chosen(as_user, name):
    job = rows.make("done", **{name: "elsewhere"})
    rows.make("done")
    client = as_user("viewer")
    assert "elsewhere" not in offered(client, name)
    answer = client.get(f"{JOBS}?{name}=elsewhere")
    assert list(answer.context["cl"].result_list) == [job]
    [spec] = [s for s in answer.context["cl"].filter_specs if s.parameter_name == name]
    chosen = [c["display"] for c in spec.choices(answer.context["cl"]) if c["selected"]]
    assert chosen == ["elsewhere"]
