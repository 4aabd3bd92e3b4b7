"""Workers as roles that may do what they need: what that is, and what a worker says that may not, or sees nothing."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from django_pgjobs import Job, Limit, Rate, Unique, every, job, notify, rights, roles
from django_pgjobs.gates import GATE
from django_pgjobs.models import Figure, Schedule, Worker
from django_pgjobs.roles import TABLES, Privilege
from django_pgjobs.statements import FIGURE, JOB, QUEUE
from tests.app.jobs import add, boom, noop
from tests.db import rows
from tests.roles import Role, each, execute, sql

pytestmark = [pytest.mark.newest, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def as_role(monkeypatch):
    """Make a role that is committed, and let every connection of this process be it: the test's too."""
    made = []

    def be(*parts, row_security=False, lacking=()):
        role = Role(*parts, row_security=row_security)
        made.append(role)
        sql(*(statement.format(role=role.name) for statement in lacking))
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "assume_role", role.name)
        connection.close()
        return role

    yield be
    monkeypatch.undo()
    connection.close()
    for role in reversed(made):
        role.drop()


def as_owner(*statements: str) -> None:
    with transaction.atomic():
        sql("set local role none", *statements)


@pytest.fixture
def everything(kinds):
    """Something of all that a worker may be given to do, and what it leads to."""
    limited = job(kind="limited", concurrency=Limit(1, key="a"), rate=Rate(1_000, per=1, key="a"))(
        lambda a=0: None
    )
    once = job(kind="once", unique=Unique())(lambda a=0: None)
    ticking = job(kind="ticking", schedule=every(hours=1), unique=Unique())(lambda: None)

    @job(atomic=True)
    def passing():
        noop.enqueue()
        once.enqueue(a=2)

    made = [add.enqueue(a=1), limited.enqueue(a=1), once.enqueue(a=1), passing.enqueue()]
    failing = boom.using(max_attempts=1).enqueue()
    worker = rows.make_worker(died_at=rows.AGO, death="signal 9")
    made.append(rows.make("running", kind="noop", locked_by=worker.pk))
    Schedule.objects.create(
        name="hourly", kind="ticking", every="1:00", since=rows.AGO, next_at=rows.AGO
    )
    rows.make("done")
    del ticking
    return made, failing


def run(command: str, **options) -> str:
    """Run a command as the role that the settings name, and return what it wrote."""
    out, err = StringIO(), StringIO()
    call_command(command, stdout=out, stderr=err, **options)
    return out.getvalue() + err.getvalue()


def status(job: Job) -> str:
    job.refresh_from_db()
    return job.status


@pytest.mark.parametrize("row_security", [False, True])
def test_a_role_with_its_grants_works_reaps_prunes_and_fires_schedules(
    as_role, everything, row_security, caplog
):
    made, failing = everything
    as_role("worker", row_security=row_security)
    run("reapjobs", verbosity=0)
    Job.objects.delayed().reschedule(rows.AGO)
    run("runjobs", drain=True, verbosity=0)
    assert [status(one) for one in made] == ["done"] * 5
    assert status(failing) == "failed"
    assert Job.objects.filter(kind="ticking").done().count() == 1
    assert Job.objects.filter(kind="once").done().count() == 2
    assert Figure.objects.exists()
    assert not Job.objects.filter(finished_at=rows.AGO).exists()
    assert "denied" not in caplog.text
    assert "row-level" not in caplog.text


@pytest.mark.parametrize("privilege", each("worker"), ids=str)
def test_a_worker_that_lacks_a_grant_says_which_and_starts_nothing(as_role, privilege):
    queued = noop.enqueue()
    role = as_role("worker")
    place = (
        f"sequence {role.place.sequence}" if privilege.command == roles.USAGE else privilege.table
    )
    as_owner(f"revoke {privilege.clause} on {place} from {role.name}")
    for command, options in {"runjobs": {"drain": True}, "reapjobs": {}}.items():
        with pytest.raises(CommandError) as caught:
            run(command, verbosity=0, **options)
        assert caught.value.returncode == 1
        assert f"got no {privilege}. As the owner of the tables, run" in str(caught.value)
        assert str(caught.value).endswith(f"manage.py pgjobs grants --worker {role.name}")
    as_owner(f"grant {privilege.clause} on {place} to {role.name}")
    assert status(queued) == "pending"
    assert not Worker.objects.exists()


# Without these a drain asks again for ever, refused each time: it is seen by hand that they are needed.
ENDLESS = [
    *(Privilege(JOB, command) for command in ("select", "update")),
    *(Privilege(GATE, command) for command in ("select", "insert", "update")),
    Privilege(QUEUE, "select"),
]


@pytest.mark.parametrize(
    "privilege", [one for one in each("worker") if one not in ENDLESS], ids=str
)
def test_a_worker_needs_each_of_its_grants(as_role, everything, privilege, monkeypatch, caplog):
    """Without the look at the start, which lets nothing come to that."""
    monkeypatch.setattr(rights, "demand", lambda *_: None)
    revoke = f"revoke {privilege.clause} on {privilege.table} from {{role}}"
    if privilege.command == roles.USAGE:
        revoke = "revoke usage on sequence django_pgjobs_job_id_seq from {role}"
    as_role("worker", lacking=[revoke])
    said = []
    for command, options in {"reapjobs": {}, "runjobs": {"drain": True}}.items():
        try:
            run(command, verbosity=0, **options)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- whichever it is, it is told
            said.append(str(error))
    # Those of the figures do not fail a prune; the function tells the server's log why.
    swallowed = privilege == Privilege(FIGURE, "delete")
    why = "The figures could not be pruned" if swallowed else "permission denied"
    assert why in " ".join([*said, caplog.text])


def test_what_is_missing_is_told_at_once_columns_by_name_and_the_schema(as_role):
    role = as_role(
        *("worker",),
        lacking=[
            "revoke delete, update on django_pgjobs_job from {role}",
            "grant update (status, locked_by) on django_pgjobs_job to {role}",
            "revoke select on django_pgjobs_worker from {role}",
            "grant select (id, pid) on django_pgjobs_worker to {role}",
        ],
    )
    told = rights.standing(execute, "worker")
    assert (told.role, told.by_row) == (role.name, False)
    assert told.missing == [
        "UPDATE on django_pgjobs_job",
        "DELETE on django_pgjobs_job",
        "SELECT on django_pgjobs_worker",
    ]
    columns = [f.column for f in Worker._meta.fields if f.column not in ("death", "started")]
    as_owner(f"grant select ({', '.join(columns)}) on django_pgjobs_worker to {role.name}")
    assert (
        "SELECT (death, started) on django_pgjobs_worker"
        in rights.standing(execute, "worker").missing
    )
    as_owner(f"grant select (death, started) on django_pgjobs_worker to {role.name}")
    assert len(rights.standing(execute, "worker").missing) == 2


@pytest.fixture
def hidden_schema():
    sql("create schema hidden", *(f"alter table {table} set schema hidden" for table in TABLES))
    yield
    sql(
        *(f"alter table hidden.{table} set schema public" for table in TABLES), "drop schema hidden"
    )


def test_a_schema_that_may_not_be_used_is_told_as_such(hidden_schema, as_role, monkeypatch):
    options = connection.settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "options", "-c search_path=hidden,public")
    connection.close()
    role = as_role("worker")
    assert rights.standing(execute, "worker").missing == []
    as_owner(f"revoke usage on schema hidden from {role.name}")
    with pytest.raises(CommandError, match=r"got no USAGE on the schema hidden\. As"):
        run("runjobs", drain=True, verbosity=0)


def test_a_dry_run_of_the_reaper_needs_to_read_only(as_role):
    role = as_role("viewer")
    assert "Would record" in run("reapjobs", dry_run=True)
    as_owner(f"revoke all on django_pgjobs_gate from {role.name}")
    with pytest.raises(CommandError, match="what a viewer needs"):
        run("reapjobs", dry_run=True)


@pytest.mark.parametrize(
    ("part", "verb"), [("viewer", ["stats"]), ("worker", ["cancel", "--all"])], ids=str
)
def test_the_verbs_of_pgjobs_say_what_is_missing(as_role, part, verb):
    noop.enqueue()
    table = "django_pgjobs_worker" if part == "viewer" else "django_pgjobs_job"
    command = "select" if part == "viewer" else "update"
    role = as_role(part, lacking=[f"revoke {command} on {table} from {{role}}"])
    with pytest.raises(CommandError) as caught:
        call_command("pgjobs", *verb)
    assert f"permission denied for table {table}. The role {role.name!r} must" in str(caught.value)
    assert f"got no {command.upper()} on {table}. As the owner" in str(caught.value)
    with pytest.raises(CommandError) as caught, transaction.atomic():
        call_command("pgjobs", *verb)
    assert f"run what this prints: manage.py pgjobs grants --{part} ROLE" in str(caught.value)


@pytest.mark.parametrize("part", ["viewer", "worker"])
def test_what_only_the_owner_may_is_said_to_be_so(as_role, part):
    as_role(part)
    with pytest.raises(
        CommandError, match=r"table django_pgjobs_queue\. Have the owner of the tables"
    ):
        call_command("pgjobs", "pause", "mail")
    if part == "viewer":
        with pytest.raises(CommandError, match="must have what a worker needs"):
            call_command("pgjobs", "retry", "--all")


# ---------------------------------------------------------------------------------- row security


@pytest.mark.parametrize("command", ["runjobs", "reapjobs"])
def test_a_worker_that_sees_nothing_says_so_instead_of_idling(as_role, command):
    queued = noop.enqueue()
    role = as_role("worker", lacking=["alter table django_pgjobs_job enable row level security"])
    options = {"drain": True} if command == "runjobs" else {}
    with pytest.raises(CommandError) as caught:
        run(command, verbosity=0, **options)
    assert "no policy for SELECT, INSERT, UPDATE, DELETE on django_pgjobs_job. Row" in str(
        caught.value
    )
    assert str(caught.value).endswith(f" grants --worker {role.name} --row-security")
    as_owner("alter table django_pgjobs_job disable row level security")
    assert status(queued) == "pending"


POLICIES = {
    "for all to {role} using (true)": [],
    "for all to public using (true)": [],
    "for all to {group} using (true)": [],
    "for all to {other} using (true)": ["SELECT", "INSERT", "UPDATE", "DELETE"],
    "for all to {role} using (false)": ["SELECT", "INSERT", "UPDATE", "DELETE"],
    "for select to {role} using (true)": ["INSERT", "UPDATE", "DELETE"],
    "for insert to {role} with check (true)": ["SELECT", "UPDATE", "DELETE"],
    "for update to {role} using (true)": ["SELECT", "INSERT", "DELETE"],
    "for delete to {role} using (true)": ["SELECT", "INSERT", "UPDATE"],
    "as restrictive for all to {role} using (true)": ["SELECT", "INSERT", "UPDATE", "DELETE"],
}


@pytest.mark.django_db(transaction=False)
@pytest.mark.parametrize("policy", POLICIES)
def test_which_policies_let_a_worker_work(policy):
    role, group, other = Role("worker"), Role(), Role()
    sql(f"grant {group.name} to {role.name}")
    names = {"role": role.name, "group": group.name, "other": other.name}
    sql(
        f"create policy mine on django_pgjobs_job {policy.format(**names)}",
        "alter table django_pgjobs_job enable row level security",
    )
    with role.assumed():
        missing = rights.standing(execute, "worker").missing
    lacking = ", ".join(POLICIES[policy])
    assert missing == ([f"policy for {lacking} on django_pgjobs_job"] if lacking else [])


@pytest.mark.django_db(transaction=False)
def test_the_owner_and_who_bypasses_row_security_need_no_policy():
    sql("alter table django_pgjobs_job enable row level security")
    role = Role("worker")
    sql(f"alter role {role.name} bypassrls")
    with role.assumed():
        assert rights.standing(execute, "worker").missing == []
    sql(
        f"alter role {role.name} nobypassrls", f"alter table django_pgjobs_job owner to {role.name}"
    )
    with role.assumed():
        assert rights.standing(execute, "worker").missing == []
    sql("alter table django_pgjobs_job force row level security")
    with role.assumed():
        [missing] = rights.standing(execute, "worker").missing
    assert missing == "policy for SELECT, INSERT, UPDATE, DELETE on django_pgjobs_job"


# ------------------------------------------------------------------------------------- wake-ups


def test_a_producer_wakes_workers_up(as_role, other_session):
    other_session.autocommit = True
    other_session.execute("listen django_pgjobs")
    role = as_role("producer", row_security=True)
    notify._sent.clear()
    made = noop.using(queue="mail").enqueue()
    [told] = other_session.notifies(timeout=10, stop_after=1)
    assert told.payload == "mail"
    made_by = "select created_at from django_pgjobs_job"
    assert execute(f"{made_by} where id = %(id)s", {"id": made.pk}) == [(made.created_at,)]
    assert execute("select current_user::text", {}) == [(role.name,)]


# ------------------------------------------------------------------------------------- processes


def test_a_supervisor_says_it_too_and_exits(processes, as_role):
    noop.enqueue()
    role = as_role("worker", lacking=["revoke delete on django_pgjobs_gate from {role}"])
    options = json.dumps({"OPTIONS": {"assume_role": role.name}})
    supervisor = processes.supervisor(PGJOBS_TEST_CONNECTION=options)
    assert supervisor.wait() == 1
    assert "got no DELETE on django_pgjobs_gate. As the owner" in supervisor.output
    assert "Traceback" not in supervisor.output
    assert supervisor.children == []


def test_processes_of_a_role_with_its_grants_work(processes, as_role):
    made = [noop.enqueue(i=n) for n in range(20)]
    role = as_role("worker", row_security=True)
    options = json.dumps({"OPTIONS": {"assume_role": role.name}})
    supervisor = processes.supervisor("--drain", PGJOBS_TEST_CONNECTION=options)
    assert supervisor.wait() == 0, supervisor.output
    assert {status(one) for one in made} == {"done"}
