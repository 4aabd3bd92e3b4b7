"""Looking as a role that may only read: pages of the admin, and the verbs of `pgjobs` that ask."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, transaction
from django.test import Client

from django_pgjobs import Job, roles
from django_pgjobs.models import Schedule
from tests.app.jobs import noop
from tests.db import rows
from tests.roles import Role, each, execute, sql

pytestmark = pytest.mark.django_db

PAGES = ("job/", "job/figures/", "worker/", "queue/", "schedule/")


@pytest.fixture
def scene():
    """A client of staff, some rows to look at, and what Django's own tables must give for that."""
    user = User.objects.create_superuser("ada")
    client = Client()
    client.force_login(user)
    rows.make_worker()
    noop.using(concurrency_key="k").enqueue()
    Schedule.objects.create(name="hourly", kind="noop", every="1:00:00")
    return client, rows.make("failed", payload={"i": 1})


def viewer(**options) -> Role:
    role = Role("viewer", **options)
    tables = "auth_user, django_session, django_content_type, django_admin_log, django_migrations"
    sql(f"grant select on {tables} to {role.name}")
    return role


def ask(*arguments) -> str:
    out = StringIO()
    call_command("pgjobs", *map(str, arguments), stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("row_security", [False, True])
def test_a_viewer_sees_the_admin_and_what_the_command_tells(scene, row_security):
    client, job = scene
    with viewer(row_security=row_security).assumed():
        for page in ("", "job/", "worker/", "queue/", "schedule/", f"job/{job.pk}/change/"):
            answer = client.get(f"/admin/django_pgjobs/{page}")
            assert answer.status_code == 200, page
        listed = client.get("/admin/django_pgjobs/job/").context["cl"].result_list
        assert {one.pk for one in listed} == {job.pk, Job.objects.pending().get().pk}
        assert "default" in ask("stats")
        assert f"{job.pk}" in ask("list")
        assert '"i": 1' in ask("show", job.pk)
        assert "given up" in ask("explain", job.pk)
        assert "next in line" in ask("explain", Job.objects.pending().get().pk)


def test_a_viewer_changes_nothing(scene):
    _, job = scene
    with viewer().assumed():
        for act in (job.retry, noop.enqueue, lambda: Job.objects.all().delete()):
            with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
                act()


@pytest.mark.parametrize("privilege", each("viewer"), ids=str)
def test_a_viewer_needs_each_of_its_grants(scene, privilege):
    client, _ = scene
    keyed = Job.objects.pending().get()
    role = viewer()
    refused = []
    with role.without(privilege), role.assumed():
        for page in ("", *PAGES, f"job/{keyed.pk}/change/"):
            answer = client.get(f"/admin/django_pgjobs/{page}")
            refused += [answer.text] if "pgjobs-denial" in answer.text else []
        for question in (("stats",), ("explain", keyed.pk)):
            try:
                with transaction.atomic():
                    ask(*question)
            except (ProgrammingError, CommandError) as error:
                refused.append(str(error))
    assert any(privilege.table in error for error in refused), privilege


def test_who_acts_needs_what_a_worker_has(scene):
    _, job = scene
    with Role("worker").assumed():
        assert "Retried 1 job" in ask("retry", job.pk)


# -------------------------------------------------------------------------- what the verb prints


def test_grants_are_printed_as_sql_that_runs(scene):
    role = f"{Role().name}"
    printed = ask("grants", "--worker", role, "--row-security")
    assert (
        f'GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "public"."django_pgjobs_job" TO "{role}";'
        in printed
    )
    assert (printed.splitlines()[0], printed.splitlines()[-1]) == ("BEGIN;", "COMMIT;")
    for _again in range(2):
        sql(*printed.splitlines()[1:-1])
    statements = json.loads(ask("grants", "--worker", role, "--row-security", "--json"))[
        "statements"
    ]
    assert [f"{one};" for one in statements] == printed.splitlines()[1:-1]
    assert all(f"{table}" in printed for table in roles.TABLES)


def test_several_roles_are_granted_together():
    printed = ask("grants", "--producer", "web", "--producer", "cron", "--viewer", "staff")
    assert 'ON TABLE "public"."django_pgjobs_job" TO "web", "cron";' in printed
    assert "ROW LEVEL" not in printed


def test_a_name_is_quoted_whatever_it_is():
    name = 'we"b; drop table x'
    with transaction.atomic():
        sql('create role "we""b; drop table x"')
        sql(*ask("grants", "--producer", name).splitlines())
        assert execute(
            "select has_any_column_privilege(%(name)s, 'django_pgjobs_job', 'insert')",
            {"name": name},
        ) == [(True,)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "must name at least one role, got none"),
        (("--producer", "x" * 64), "must be the name of a role, of 1 to 63 bytes"),
        (("--producer", ""), "must not be empty"),
    ],
)
def test_what_is_no_role_is_wrong_usage(arguments, said):
    with pytest.raises(CommandError, match=said) as caught:
        ask("grants", *arguments)
    assert caught.value.returncode in (1, 2)
