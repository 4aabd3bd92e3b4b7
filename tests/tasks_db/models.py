"""The table, column by column, of django-tasks-db 0.13."""

from __future__ import annotations

import uuid

from django.db import models


class DBTaskResult(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    status = models.CharField(default="READY", max_length=10)
    enqueued_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    args_kwargs = models.JSONField()
    priority = models.IntegerField(default=0)
    task_path = models.TextField()
    worker_ids = models.JSONField(default=list)
    queue_name = models.CharField(default="default", max_length=32)
    backend_name = models.CharField(max_length=32)
    run_after = models.DateTimeField()
    return_value = models.JSONField(default=None, null=True)
    exception_class_path = models.TextField()
    traceback = models.TextField()

    def __str__(self) -> str:
        return self.task_path
