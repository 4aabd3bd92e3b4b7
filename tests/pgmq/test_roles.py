"""Roles on queues of pgmq: what they need is what is printed, and what is said of those that lack it."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, transaction

from django_pgjobs import doctor
from django_pgjobs.pgmq import DeadLetters, Queue, consumer, consumers, grants, list_queues
from django_pgjobs.pgmq.readiness import needed_by
from tests.app.jobs import noop
from tests.roles import Role, execute, sql


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setattr(consumers, "_consumers", {})


def printed(*arguments: str) -> list[str]:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue().splitlines()


@pytest.fixture
def as_role(committed, monkeypatch):
    """Make a worker of jobs that is committed, with more statements run for it, and have all connections be it."""
    made = []

    def be(*statements: str, part: str = "worker") -> Role:
        role = Role(part)
        made.append(role)
        sql(*(statement.replace("ROLE", role.name) for statement in statements))
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "assume_role", role.name)
        connection.close()
        return role

    yield be
    monkeypatch.undo()
    connection.close()
    for role in made:
        role.drop()


FAILS = {"vt": 1, "max_reads": 1, "dead_letter": "emails_dead"}


def fail(_):
    raise ValueError


def granted() -> list[str]:
    return printed("pgmq", "grants", "emails", "--worker", "ROLE")


@pytest.mark.parametrize("notifies", [False, True])
def test_a_worker_with_its_grants_consumes_fails_and_buries(committed, as_role, notifies, caplog):
    consumer("emails", **FAILS)(fail)
    if notifies:
        DeadLetters("emails_dead").queue.enable_notify()
    committed.send_batch([1, 2])
    as_role(*granted())

    call_command("runjobs", "--drain", "--pgmq", "emails", verbosity=0)

    sql("set role none")
    assert (committed.metrics().length, Queue("emails_dead").metrics().length) == (0, 2)
    assert "denied" not in caplog.text


def test_a_worker_with_its_grants_archives(committed, as_role):
    consumer("emails")(print)
    committed.send(1)
    as_role(*granted())
    call_command("runjobs", "--drain", "--pgmq", "emails", verbosity=0)
    sql("set role none")
    assert committed.metrics().length == 0


LACKING = [
    *grants.needs("worker", "emails"),
    *grants.needs("producer", "emails_dead"),
    *grants.NOTIFIES,
]


@pytest.mark.parametrize("privilege", LACKING, ids=str)
@pytest.mark.parametrize("arguments", [("--drain",), ("--drain", "--pgmq", "emails")])
def test_a_consumer_that_lacks_a_grant_says_which_and_starts_nothing(
    committed, as_role, privilege, arguments
):
    consumer("emails", **FAILS)(fail)
    DeadLetters("emails_dead").queue.enable_notify()
    committed.send(1)
    noop.enqueue()
    role = as_role(*granted(), f"revoke {privilege.clause} on pgmq.{privilege.table} from ROLE")

    with pytest.raises(CommandError) as caught:
        call_command("runjobs", *arguments, verbosity=0)

    assert caught.value.returncode == 1
    assert f"got no {privilege}. As the owner of the queues" in str(caught.value)
    assert str(caught.value).endswith(f"manage.py pgmq grants emails --worker {role.name}")
    [found] = [one for one in doctor.examine("default") if one.check == "consumers"]
    assert str(privilege) in found.what
    assert role.name in found.do
    sql("set role none")
    assert committed.set_vt(1, 0)[0].read_ct == 0


def test_a_schema_that_may_not_be_used_is_told_with_all_else(committed, as_role):
    consumer("emails", **FAILS)(fail)
    as_role()
    with pytest.raises(
        CommandError, match="got no USAGE on the schema pgmq, no SELECT on"
    ) as caught:
        call_command("runjobs", "--drain", "--pgmq", "emails", verbosity=0)
    for privilege in needed_by(consumers.named("emails", "default")[0]):
        assert privilege.table in str(caught.value)


def test_row_security_on_a_queue_is_told(committed, as_role):
    consumer("emails")(print)
    as_role(*granted(), "alter table pgmq.q_emails enable row level security")
    with pytest.raises(
        CommandError, match=r"no policy for SELECT, UPDATE, DELETE on pgmq\.q_emails"
    ):
        call_command("runjobs", "--drain", "--pgmq", "emails", verbosity=0)


def test_a_grant_that_is_taken_back_ends_a_drain(committed, as_role, monkeypatch, caplog):
    monkeypatch.setattr("django_pgjobs.outages._PATIENCE", 0.2)
    consumer("emails")(print)
    role = as_role(*granted())
    monkeypatch.setattr("django_pgjobs.pgmq.crew.Crew.demand", lambda _: None)
    sql("set role none", f"revoke select on pgmq.q_emails from {role.name}")  # noqa: S608
    connection.close()

    with pytest.raises(SystemExit) as ended:
        call_command("runjobs", "--drain", "--pgmq", "emails", verbosity=0)

    assert ended.value.code == 1
    assert "The queue 'emails' is left alone: it is refused for good." in caplog.text


def test_a_supervisor_says_what_is_missing_and_ends(committed, processes):
    Queue("emails").drop()
    supervisor = processes.supervisor("--drain", PGJOBS_TEST_PGMQ="1")
    assert supervisor.wait() == 1
    assert "The queue 'emails' must exist in pgmq" in supervisor.output
    assert "Traceback" not in supervisor.output
    committed.create()


# ------------------------------------------------------------------------------------- other parts


USES = {
    "producer": [
        lambda q: q.send(1),
        lambda q: q.send_batch([1, 2]),
    ],
    "worker": [
        lambda q: q.archive(q.read()),
        lambda q: q.set_vt(q.read(), 0),
        lambda q: q.delete(q.read()),
        lambda q: q.pop(),
    ],
    "viewer": [
        lambda q: q.metrics(),
        lambda q: list_queues(),
        lambda q: DeadLetters(q.name).peek(),
        lambda q: call_command("pgmq", "list", "emails", stdout=StringIO()),
        lambda q: call_command("pgmq", "metrics", "emails", stdout=StringIO()),
    ],
    "operator": [
        lambda q: DeadLetters(q.name).redrive(into="emails"),
        lambda q: q.purge(),
    ],
}


@pytest.mark.parametrize(
    ("part", "use"), [(part, n) for part, uses in USES.items() for n in range(len(uses))]
)
def test_a_role_without_a_grant_is_told_which_and_with_it_may(queue, part, use):
    queue.enable_notify()
    queue.send_batch(range(5))
    role, act = Role(), USES[part][use]
    with role.assumed():
        with (
            pytest.raises((ProgrammingError, CommandError), match="permission denied") as caught,
            transaction.atomic(),
        ):
            act(queue)
        if caught.type is ProgrammingError:
            [note] = caught.value.__notes__
            assert f"what {'an' if part == 'operator' else 'a'} {part} of" in note
            assert f" --{part} ROLE" in note
    sql(*printed("pgmq", "grants", "emails", f"--{part}", role.name))
    with role.assumed():
        act(queue)


@pytest.mark.parametrize(
    ("part", "forbidden"),
    [
        ("producer", "select message from pgmq.q_emails"),
        ("producer", "delete from pgmq.q_emails"),
        ("producer", "update pgmq.notify_insert_throttle set throttle_interval_ms = 1"),
        ("worker", "insert into pgmq.q_emails (vt, message) values (now(), '1')"),
        ("worker", "select message from pgmq.a_emails"),
        ("viewer", "update pgmq.q_emails set vt = now()"),
    ],
)
def test_a_role_has_no_more_than_it_needs(queue, part, forbidden):
    role = Role()
    sql(*printed("pgmq", "grants", "emails", f"--{part}", role.name))
    with (
        role.assumed(),
        pytest.raises(ProgrammingError, match="permission denied"),
        transaction.atomic(),
    ):
        execute(forbidden, {})


def test_who_may_not_create_a_queue_is_told_whose_it_is(queue):
    with Role().assumed(), pytest.raises(ProgrammingError) as caught, transaction.atomic():
        Queue("later").create()
    assert "must own them" in caught.value.__notes__[0]


def test_without_a_name_all_queues_are_granted_and_pgjobs_grants_those_that_it_is_told(queue):
    Queue('sma"ll').create()
    statements = printed(
        "pgmq", "grants", "--producer", "web", "--worker", "jobs", "--worker", "j2"
    )
    assert statements[0] == 'GRANT USAGE ON SCHEMA pgmq TO "web";'
    assert 'GRANT INSERT, SELECT (msg_id) ON TABLE pgmq."q_sma""ll" TO "web";' in statements
    assert 'GRANT SELECT, UPDATE, DELETE ON TABLE pgmq."q_emails" TO "jobs", "j2";' in statements
    both = printed("pgjobs", "grants", "--replacer", "web", "--queue", "emails")
    assert 'GRANT INSERT, SELECT (msg_id) ON TABLE pgmq."q_emails" TO "web";' in both
    assert any("django_pgjobs_job" in one for one in both)


@pytest.mark.parametrize(
    ("arguments", "said", "status"),
    [
        (["pgmq", "grants", "none", "--worker", "jobs"], "The queue 'none' must exist", 1),
        (["pgjobs", "grants", "--worker", "jobs", "--queue", "none"], "'none' must exist", 1),
        (["pgmq", "grants"], "producer, worker, viewer, operator must name", 2),
    ],
)
def test_what_cannot_be_granted_is_told(queue, arguments, said, status):
    with pytest.raises(CommandError, match=said) as caught:
        call_command(*arguments)
    assert caught.value.returncode == status
