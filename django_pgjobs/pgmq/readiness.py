"""Whether what consumers need is there, queues and privileges on them; and the SQL that grants what is not.

Invariant: it reads the catalogue alone, so that any role may ask, and before any message is read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from django_pgjobs import rights
from django_pgjobs.exceptions import PgJobsError, PgmqMissing, PrivilegeMissing, QueueMissing
from django_pgjobs.pgmq import calls, grants
from django_pgjobs.pgmq.consumers import Consumer, named
from django_pgjobs.roles import Privilege, Roles
from django_pgjobs.sessions import Execute


def faults(
    consumers: Iterable[Consumer], execute_on: Callable[[str], Execute]
) -> Iterator[PgJobsError]:
    """Yield all that is missing: of each database pgmq, else queues, else privileges of its role."""
    by_alias: dict[str, list[Consumer]] = {}
    for consumer in consumers:
        by_alias.setdefault(consumer.queue.alias, []).append(consumer)
    for alias, here in by_alias.items():
        yield from _faults_on(alias, here, execute_on(alias))


def needed_by(consumer: Consumer, notifying: Iterable[str] = ()) -> list[Privilege]:
    """Return what its role needs: to consume the queue, and to send to the dead letters."""
    needed = grants.needs("worker", consumer.queue.name)
    if (letters := consumer.dead_letters) is not None:
        needed += grants.needs("producer", letters.name)
        needed += grants.NOTIFIES if letters.name in notifying else []
    return needed


def granting(execute: Execute, alias: str, roles: Roles, queues: Sequence[str]) -> Iterator[str]:
    """Yield the statements that give roles what they need of these queues, and of their consumers' dead letters.

    Raises:
        QueueMissing, PgmqMissing: there is no such queue, or no pgmq.

    """
    letters = [
        one.dead_letters.name
        for name in queues
        for one in named(name, alias)
        if one.dead_letters is not None
    ]
    names = [*queues, *letters]
    there = calls.tables(execute, [*grants.tables_of(names), "meta", grants.THROTTLE])
    for fault in _missing(alias, names, there):
        raise fault
    notifying = [grants.NOTIFIES] if grants.THROTTLE in there else []
    needed = {
        part: [one for queue in queues for one in grants.needs(part, queue)] for part in roles
    }
    if "worker" in needed:
        needed["worker"] += [one for each in letters for one in grants.needs("producer", each)]
    for part in needed.keys() - {"viewer"}:
        needed[part] += [one for each in notifying for one in each]
    yield from grants.granting(roles, needed)


def _missing(
    alias: str, queues: Iterable[str], there: Container[str]
) -> Iterator[PgmqMissing | QueueMissing]:
    if "meta" not in there:
        yield PgmqMissing.when_used(alias, "no table pgmq.meta")
        return
    for queue in dict.fromkeys(queues):
        if any(table not in there for table in grants.tables_of([queue])):
            yield QueueMissing.of(queue, alias)


def _faults_on(
    alias: str, consumers: Sequence[Consumer], execute: Execute
) -> Iterator[PgJobsError]:
    queues = [queue for one in consumers for queue in _queues_of(one)]
    there = calls.tables(execute, [*grants.tables_of(queues), "meta"])
    yield from _missing(alias, queues, there)
    if "meta" not in there:
        return
    notifying = [queue for queue in queues if there.get(f"q_{queue}")]
    needed = [one for each in consumers for one in needed_by(each, notifying)]
    role, lacking, by_row = rights.compare(execute, needed)
    if lacking:
        printing = grants.printing("worker", role, [one.queue.name for one in consumers])
        yield PrivilegeMissing.of_consumers(role, alias, lacking, printing, by_row=by_row)


def _queues_of(consumer: Consumer) -> list[str]:
    letters = consumer.dead_letters
    return [consumer.queue.name] + ([letters.name] if letters is not None else [])
