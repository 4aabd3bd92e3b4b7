"""Looks at what is done: does every job have code that takes it, and a worker that lives."""

from __future__ import annotations

import datetime

from django.db import models
from django.db.models import Count, Exists, OuterRef, Q
from django.db.models.functions import Now

from django_pgjobs import checks, conf, deploy_checks
from django_pgjobs.doctor.findings import Patient, Said, Severity
from django_pgjobs.models import Job, Worker
from django_pgjobs.plurals import counted
from django_pgjobs.queues import depths


def schedules(patient: Patient) -> Said:
    """Find schedules that are on and cannot fire."""
    for message in checks.check_schedules(databases=[patient.alias]):
        yield Severity.ERROR, f"{message.msg} ({message.id})", message.hint or ""


def kinds(patient: Patient) -> Said:
    """Find waiting jobs that no code takes."""
    for one in deploy_checks.misfits(patient.alias):
        what = f"No code takes {counted(one.jobs, 'waiting job')} of the kind {one.kind!r:.100}, {one.example} for one."
        yield Severity.ERROR, what, one.text


def workers(patient: Patient) -> Said:
    """Find workers that are silent, or dead or gone and not cleared up after."""
    workers = Worker.objects.using(patient.alias)
    lease = datetime.timedelta(seconds=conf.get().lease)
    silent = workers.filter(died_at=None, heartbeat_at__lt=Now() - lease)
    if count := silent.count():
        what = f"Silent for longer than a lease, with nobody to record it: {counted(count, 'worker')}, {_some(silent)}."
        yield (
            Severity.WARNING,
            what,
            "Start a worker, or run manage.py reapjobs, to have their jobs taken back.",
        )
    holding = Job.objects.using(patient.alias).running().values("locked_by")
    dead = workers.filter(died_at__isnull=False, pk__in=holding)
    if count := dead.count():
        what = f"Running jobs are still held by {counted(count, 'dead worker')}: {_some(dead)}."
        yield (
            Severity.WARNING,
            what,
            "Start a worker, or run manage.py reapjobs. Later, look for who locks these rows.",
        )
    unknown = Job.objects.using(patient.alias).running().filter(locked_at__lt=Now() - lease)
    lost = unknown.exclude(Exists(workers.filter(pk=OuterRef("locked_by"))))
    if count := lost.count():
        some = ", ".join(map(str, lost.order_by("id").values_list("id", flat=True)[:3]))
        what = (
            f"Running jobs are held by workers that have no row: {counted(count, 'job')}, {some}."
        )
        yield (
            Severity.WARNING,
            what,
            "Start a worker, or run manage.py reapjobs, to have them taken back.",
        )
    lately = Q(died_at__gt=Now() - datetime.timedelta(days=1)) & ~Q(
        death__in=("stopped", "drained")
    )
    for death in workers.filter(lately).values("death").annotate(n=Count("pk")).order_by("-n")[:5]:
        what = f"Within a day {counted(death['n'], 'worker')} died: {death['death'] or 'for no known reason'}."
        yield Severity.WARNING, what, "Look at their logs, and at the memory of their machines."


def _some(workers: models.QuerySet[Worker]) -> str:
    return ", ".join(map(str, workers.order_by("-id")[:3]))


def queues(patient: Patient) -> Said:
    """Find due jobs that no living worker serves."""
    lease = datetime.timedelta(seconds=conf.get().lease)
    living = Worker.objects.using(patient.alias).filter(died_at=None, stopping_at=None)
    team = list(living.filter(heartbeat_at__gte=Now() - lease).only("queues", "exclude"))
    for queue in depths(patient.alias):
        if queue.due and not queue.paused_at and not any(_serves(one, queue.name) for one in team):
            what = f"The queue {queue.name!r} has {counted(queue.due, 'due job')}, and none of the living workers ({len(team)}) serves it."
            yield Severity.ERROR, what, "Start a worker for it: manage.py runjobs."


def _serves(worker: Worker, queue: str) -> bool:
    queues, exclude = worker.queues, worker.exclude
    is_named = queue in queues if isinstance(queues, list) else True
    return is_named and not (isinstance(exclude, list) and queue in exclude)
