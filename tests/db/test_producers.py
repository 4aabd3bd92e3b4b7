"""Enqueueing as a role that may do nothing else: what it needs, what it cannot read, what it is told."""

from __future__ import annotations

import pytest
from django.db import ProgrammingError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from django_pgjobs import DuplicateJob, Job, Unique, inserts, job, queues, roles
from django_pgjobs.roles import PRIVILEGES, TABLES
from tests.app.jobs import noop
from tests.app.tasks import add_up
from tests.db import rows
from tests.roles import Role, each, sql

pytestmark = pytest.mark.django_db


@pytest.fixture
def enqueues(kinds):
    """What a producer does, and what a replacer does besides, by name."""

    def declare(**rule):
        return job(kind="_".join(map(str, ("k", *rule.values()))), unique=Unique("a", **rule))(sync)

    def sync(a=0, b=0): ...

    def twice(one):
        first, second = one.enqueue(a=1, b=1), one.enqueue(a=1, b=2)
        assert second.existed
        assert (second.pk, second.kind) == (first.pk, one.kind)

    def refused():
        raising.enqueue(a=1)
        with pytest.raises(DuplicateJob):
            raising.enqueue(a=1)

    def over(one):
        first = one.enqueue(a=2)
        with as_owner():
            Job.objects.filter(pk=first.pk).update(
                status="done", finished_at=Now(), created_at=rows.AGO
            )
        assert one.enqueue(a=2).pk != first.pk

    skipping, raising = declare(conflict="skip"), declare(conflict="raise")
    starting = declare(until="start")
    replacing, lasting = declare(conflict="replace"), declare(period=60)
    both = declare(period=60, conflict="replace")
    about = noop.using(subject=rows.make("done"), concurrency_key="k", delay=60, priority=3)
    producer = {
        "one": lambda: noop.enqueue(i=1),
        "one with everything": about.enqueue,
        "many": lambda: about.enqueue_many([{"i": 1}, {"i": 2}]),
        "a task": lambda: add_up.enqueue(1, 2),
        "unique": lambda: twice(skipping),
        "unique or an error": refused,
        "unique many": lambda: skipping.enqueue_many([{"a": 8}, {"a": 9}, {"a": 8}]),
    }
    replacer = {
        "until the start": lambda: twice(starting),
        "replacing": lambda: twice(replacing),
        "for a period": lambda: twice(lasting),
        "after a period": lambda: over(lasting),
        "replacing for a period": lambda: (twice(both), over(both)),
        "replacing many": lambda: replacing.enqueue_many([{"a": 5}, {"a": 6}]),
    }
    return {"producer": producer, "replacer": producer | replacer}


def as_owner():
    """Be the owner for a while, whoever the test is."""
    return Owner()


class Owner:
    def __enter__(self):
        [(self.role,)] = rows.execute("select current_user", {})
        sql("reset role")

    def __exit__(self, *_):
        sql(f"set role {self.role}")


def failures(actions) -> dict[str, ProgrammingError]:
    """Do everything, each in a savepoint that is rolled back, and return what was refused."""
    refused = {}
    for name, act in actions.items():
        try:
            with transaction.atomic():
                act()
                transaction.set_rollback(True)
        except ProgrammingError as error:
            refused[name] = error
    return refused


PARTS = ["producer", "replacer"]


@pytest.mark.parametrize("row_security", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_a_role_with_its_grants_enqueues(enqueues, part, row_security):
    with Role(part, row_security=row_security).assumed():
        assert failures(enqueues[part]) == {}


@pytest.mark.parametrize("privilege", each("producer"), ids=str)
def test_a_producer_needs_each_of_its_grants_and_is_told_which(enqueues, privilege):
    assert_needed(enqueues, "producer", privilege)


@pytest.mark.parametrize("privilege", each("replacer"), ids=str)
def test_a_replacer_needs_each_of_its_grants_and_is_told_which(enqueues, privilege):
    assert_needed(enqueues, "replacer", privilege)


def assert_needed(enqueues, part, privilege):
    role = Role(part)
    with role.without(privilege), role.assumed():
        refused = failures(enqueues[part])
    assert refused
    for error in refused.values():
        [note] = error.__notes__
        assert "permission denied for" in str(error)
        assert f"{privilege.command.upper()} " in note
        assert "django_pgjobs_job" in note
        assert (
            "run what this prints, with --row-security for the policies: manage.py pgjobs grants --"
            in note
        )
    assert any(set(privilege.columns) <= set(told(error)) for error in refused.values())


def told(error):
    return error.__notes__[0].replace("(", " ").replace(")", " ").replace(",", " ").split()


def test_a_role_that_may_not_use_the_schema_is_told(enqueues):
    sql("create schema hidden", "alter table django_pgjobs_job set schema hidden")
    sql("set local search_path to hidden, public")
    role = Role("producer")
    with role.assumed():
        assert failures(enqueues["producer"]) == {}
    sql(f"revoke usage on schema hidden from {role.name}")
    with role.assumed():
        error = failures(enqueues["producer"])["one"]
    assert "does not exist" in str(error)
    assert "lacks USAGE on the schema" in error.__notes__[0]


def test_errors_of_other_sorts_say_nothing_of_roles():
    sql("alter table django_pgjobs_job drop column meta")
    with pytest.raises(ProgrammingError) as caught, transaction.atomic():
        noop.using(delay=1).enqueue()
    assert not hasattr(caught.value, "__notes__")


VERBS = {
    "retry": lambda: Job.objects.failed().retry(),
    "cancel": Job.objects.cancel,
    "reschedule": lambda: Job.objects.reschedule(timezone.now()),
    "pause": lambda: queues.pause("default"),
    "resume": lambda: queues.resume("default"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_who_only_produces_is_told_what_a_verb_needs(verb):
    with (
        Role("producer").assumed(),
        pytest.raises(ProgrammingError, match="permission denied for table") as caught,
        transaction.atomic(),
    ):
        VERBS[verb]()
    assert (
        "must have what an operator needs: SELECT on django_pgjobs_job" in caught.value.__notes__[0]
    )
    assert "manage.py pgjobs grants --operator ROLE" in caught.value.__notes__[0]


# ------------------------------------------------------------------------------ what it cannot read


def refused(statement: str) -> str:
    with pytest.raises(ProgrammingError) as caught, transaction.atomic():
        sql(statement)
    return str(caught.value)


HIDDEN = {
    "producer": ("payload", "meta", "subject_id", "kind", "result", "errors", "last_error"),
    "replacer": ("kind", "result", "errors", "last_error"),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_producer_reads_no_payload_and_no_other_table(part):
    noop.enqueue(i=1)
    with Role(part, row_security=True).assumed():
        for column in HIDDEN[part]:
            assert "permission denied" in refused(f"select {column} from django_pgjobs_job")  # noqa: S608
        assert "permission denied" in refused("delete from django_pgjobs_job")
        assert "permission denied" in refused("update django_pgjobs_job set status = 'done'")
        assert "permission denied" in refused("insert into django_pgjobs_job (status) values ('x')")
        for table in set(TABLES) - {"django_pgjobs_job"}:
            assert "permission denied" in refused(f"select from {table}")


def test_of_a_job_that_was_found_a_producer_knows_what_it_may(kinds):
    sync = job(kind="sync", unique=Unique())(lambda a=0: None)
    sync.enqueue(a=1)
    with Role("producer").assumed():
        found = sync.enqueue(a=1)
        assert (found.existed, found.kind) == (True, "sync")
        assert found.run_at == found.created_at
        with (
            pytest.raises(ProgrammingError, match="permission denied") as caught,
            transaction.atomic(),
        ):
            found.payload  # noqa: B018 -- it is read now
    assert "pgjobs grants --viewer" in caught.value.__notes__[0]


# ---------------------------------------------------------------------------------- row security


def seen() -> set[int]:
    return {pk for (pk,) in rows.execute("select id from django_pgjobs_job", {})}


def test_a_producer_sees_what_waits_or_holds_a_key_and_replacers_all():
    waiting, done = noop.enqueue(), rows.make("done")
    holder = rows.make("done", unique_key="k")
    producer = Role("producer", row_security=True)
    with producer.assumed():
        assert seen() == {waiting.pk, holder.pk}
    sql(*roles.disabling(producer.parts, producer.place))
    with Role("replacer", row_security=True).assumed():
        assert seen() == {waiting.pk, done.pk, holder.pk}


def test_whoever_has_no_policy_sees_and_writes_nothing_whatever_is_granted():
    noop.enqueue()
    Role("worker", row_security=True)
    other = Role()
    for table in TABLES:
        sql(f"grant all on {table} to {other.name}")
    rows.make_worker()
    with other.assumed():
        assert seen() == set()
        assert rows.execute("select id from django_pgjobs_worker", {}) == []
        with (
            pytest.raises(ProgrammingError, match="row-level security") as caught,
            transaction.atomic(),
        ):
            noop.enqueue()
    assert "--row-security" in caught.value.__notes__[0]


@pytest.mark.parametrize("command", ["insert", "select"])
def test_a_producer_needs_each_of_its_policies(enqueues, command):
    role = Role("producer", row_security=True)
    sql(f"drop policy {roles.policy_name('producer', command, role.name)} on django_pgjobs_job")
    with role.assumed():
        refused = failures({"one": enqueues["producer"]["one"]})
    assert "row-level security" in str(refused["one"])


def test_a_unique_job_whose_holder_is_hidden_is_an_error_that_says_so(kinds):
    sync = job(kind="sync", unique=Unique())(lambda a=0: None)
    sync.enqueue(a=1)
    role = Role("producer", row_security=True)
    policy = roles.policy_name("producer", "select", role.name)
    sql(f"alter policy {policy} on django_pgjobs_job using (id > 1000000)")
    with role.assumed():
        error = failures({"unique": lambda: sync.enqueue(a=1)})["unique"]
    assert "row-level security" in str(error)


def test_the_owner_is_not_hidden_from_its_own_tables():
    owner = Role()
    sql(f"grant create on schema public to {owner.name}")
    for table in TABLES:
        sql(f"alter table {table} owner to {owner.name}")
    Role("producer", row_security=True)
    with owner.assumed():
        job_id = noop.enqueue().pk
        assert seen() == {job_id}


def plan(statement: str, **params) -> str:
    rows_ = rows.execute(f"explain (costs off) {statement}", params)
    return "\n".join(line for (line,) in rows_)


def test_policies_leave_the_indexes_to_whom_they_serve():
    sql(
        "insert into django_pgjobs_job (kind, unique_key, status, finished_at) "
        "select 'noop', case when mod(n, 2) = 0 then 'k' || n end, case when n > 9000 then 'pending' "
        "else 'done' end, case when n <= 9000 then now() end from generate_series(1, 20000) n",
        "analyze django_pgjobs_job",
    )
    holders = f"select id, unique_key from django_pgjobs_job where {inserts._KEYED}"  # noqa: S608 -- of the product
    keys = {"unique_keys": ["k2", "k4"]}
    claim = (
        "select id from django_pgjobs_job where status = 'pending' and concurrency_key is null and "
        "queue = 'default' and priority = 0 order by run_at, id limit 10 for update skip locked"
    )
    found, claimed = plan(holders, **keys), plan(claim)
    assert "pgjobs_job_unique_key" in found
    assert "pgjobs_job_claim" in claimed
    producer, worker = (Role(part, row_security=True) for part in ("producer", "worker"))
    with producer.assumed():
        assert "pgjobs_job_unique_key" in plan(holders, **keys)
    with worker.assumed():
        assert plan(claim) == claimed


def test_every_part_has_privileges_and_policies():
    assert set(PRIVILEGES) == set(roles.POLICIES)
    assert {
        table for table in connection.introspection.table_names() if "django_pgjobs_" in table
    } >= set(TABLES)
    assert set(TABLES) == {
        model._meta.db_table
        for model in Job._meta.apps.get_app_config("django_pgjobs").get_models()
    }
