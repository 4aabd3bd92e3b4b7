"""The pages of Django's admin: jobs, the workers that run them, queues, and schedules."""

from __future__ import annotations

from django.apps import apps
from django.contrib import admin

from django_pgjobs.admin.jobs import JobAdmin
from django_pgjobs.admin.queues import QueueAdmin
from django_pgjobs.admin.schedules import ScheduleAdmin
from django_pgjobs.admin.subjects import SubjectJobsMixin
from django_pgjobs.admin.workers import WorkerAdmin
from django_pgjobs.models import Job, Queue, Schedule, Worker

__all__ = ["JobAdmin", "QueueAdmin", "SubjectJobsMixin", "WorkerAdmin"]

admin.site.register(Job, JobAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Schedule, ScheduleAdmin)
admin.site.register(Worker, WorkerAdmin)

# With the pages of the jobs, whose looks they share; where that app is not listed they would have no permissions.
if apps.is_installed("django_pgjobs.pgmq"):
    from django_pgjobs.admin.message_queues import MessageQueueAdmin
    from django_pgjobs.pgmq.models import QueueRecord

    admin.site.register(QueueRecord, MessageQueueAdmin)
