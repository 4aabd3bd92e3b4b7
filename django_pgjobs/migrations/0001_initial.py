import datetime

import django.db.models.functions.comparison
import django.db.models.functions.datetime
import django.db.models.lookups
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Queue",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=63, primary_key=True, serialize=False, verbose_name="name"
                    ),
                ),
                (
                    "paused_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="paused at"),
                ),
                (
                    "paused_by",
                    models.CharField(db_default="", max_length=200, verbose_name="paused by"),
                ),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
            },
        ),
        migrations.CreateModel(
            name="Figure",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "minute",
                        "queue",
                        "kind",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("minute", models.DateTimeField(verbose_name="minute")),
                ("queue", models.CharField(max_length=63, verbose_name="queue")),
                ("kind", models.CharField(max_length=200, verbose_name="kind")),
                (
                    "done",
                    models.BigIntegerField(db_default=0, verbose_name="attempts that were done"),
                ),
                (
                    "failed",
                    models.BigIntegerField(db_default=0, verbose_name="attempts that failed"),
                ),
                (
                    "wait",
                    models.FloatField(
                        db_default=0,
                        help_text="From the time that a job was due until it was claimed, of all attempts.",
                        verbose_name="seconds of waiting",
                    ),
                ),
                (
                    "run",
                    models.FloatField(
                        db_default=0,
                        help_text="In the handler, of all attempts.",
                        verbose_name="seconds of running",
                    ),
                ),
            ],
            options={
                "verbose_name": "figure",
                "verbose_name_plural": "figures",
                "indexes": [
                    models.Index(models.F("queue"), models.F("kind"), name="pgjobs_figure_names")
                ],
            },
        ),
        migrations.CreateModel(
            name="Gate",
            fields=[
                ("name", models.CharField(max_length=210, primary_key=True, serialize=False)),
                ("visit", models.BigIntegerField(db_default=0)),
                (
                    "next_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "rates",
                    models.JSONField(db_default=models.Value({}, models.JSONField())),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=200, verbose_name="kind")),
                (
                    "queue",
                    models.CharField(db_default="default", max_length=63, verbose_name="queue"),
                ),
                (
                    "payload",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()), verbose_name="payload"
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("running", "running"),
                            ("done", "done"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                            ("blocked", "blocked"),
                        ],
                        db_default="pending",
                        max_length=10,
                        verbose_name="status",
                    ),
                ),
                ("priority", models.SmallIntegerField(db_default=0, verbose_name="priority")),
                (
                    "run_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="run at"
                    ),
                ),
                ("attempts", models.IntegerField(db_default=0, verbose_name="attempts")),
                (
                    "max_attempts",
                    models.IntegerField(db_default=5, verbose_name="maximum of attempts"),
                ),
                (
                    "attempts_before",
                    models.IntegerField(
                        db_default=0,
                        help_text="The retry policy counts from here.",
                        verbose_name="attempts before the last retry by hand",
                    ),
                ),
                (
                    "claims",
                    models.IntegerField(
                        db_default=0,
                        help_text="Rises by one at each claim and never falls: with the worker, a claim's token.",
                        verbose_name="claims",
                    ),
                ),
                (
                    "locked_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="locked at"),
                ),
                (
                    "locked_by",
                    models.BigIntegerField(
                        help_text="The id of the worker.",
                        blank=True,
                        null=True,
                        verbose_name="locked by",
                    ),
                ),
                ("last_error", models.TextField(db_default="", verbose_name="last error")),
                (
                    "errors",
                    models.JSONField(
                        db_default=models.Value([], models.JSONField()), verbose_name="errors"
                    ),
                ),
                ("result", models.JSONField(blank=True, null=True, verbose_name="result")),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        verbose_name="created at",
                    ),
                ),
                (
                    "attempted_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="last attempted at"),
                ),
                (
                    "finished_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="finished at"),
                ),
                (
                    "unique_key",
                    models.CharField(
                        max_length=100, blank=True, null=True, verbose_name="unique key"
                    ),
                ),
                (
                    "concurrency_key",
                    models.CharField(
                        max_length=200, blank=True, null=True, verbose_name="concurrency key"
                    ),
                ),
                (
                    "cancel_requested_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="cancel requested at"),
                ),
                (
                    "subject_type",
                    models.CharField(
                        max_length=200, blank=True, null=True, verbose_name="subject type"
                    ),
                ),
                (
                    "subject_id",
                    models.CharField(
                        max_length=200, blank=True, null=True, verbose_name="subject id"
                    ),
                ),
                (
                    "meta",
                    models.JSONField(
                        db_default=models.Value({}, models.JSONField()), verbose_name="meta"
                    ),
                ),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": (
                    ("retry_job", "Can retry jobs and run them now"),
                    ("cancel_job", "Can cancel jobs"),
                ),
                "indexes": [
                    models.Index(
                        models.F("queue"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("run_at"),
                        models.F("id"),
                        condition=models.Q(
                            ("concurrency_key__isnull", True), ("status", "pending")
                        ),
                        name="pgjobs_job_claim",
                    ),
                    models.Index(
                        models.F("queue"),
                        models.F("concurrency_key"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("run_at"),
                        models.F("id"),
                        condition=models.Q(
                            ("concurrency_key__isnull", False), ("status", "pending")
                        ),
                        name="pgjobs_job_keyed",
                    ),
                    models.Index(
                        models.F("queue"),
                        models.F("run_at"),
                        condition=models.Q(("concurrency_key__gt", ""), ("status", "pending")),
                        name="pgjobs_job_keyed_due",
                    ),
                    models.Index(
                        models.F("concurrency_key"),
                        models.F("id"),
                        condition=models.Q(
                            ("concurrency_key__isnull", False), ("status", "pending")
                        ),
                        name="pgjobs_job_order",
                    ),
                    models.Index(
                        models.F("queue"),
                        models.F("locked_by"),
                        condition=models.Q(("status", "running")),
                        name="pgjobs_job_running",
                    ),
                    models.Index(
                        models.F("concurrency_key"),
                        condition=models.Q(
                            ("concurrency_key__isnull", False), ("status", "running")
                        ),
                        name="pgjobs_job_running_keyed",
                    ),
                    models.Index(
                        models.F("status"),
                        models.F("finished_at"),
                        condition=models.Q(("finished_at__isnull", False)),
                        name="pgjobs_job_finished",
                    ),
                    models.Index(
                        models.F("subject_type"),
                        models.F("subject_id"),
                        models.F("id"),
                        condition=models.Q(("subject_id__isnull", False)),
                        name="pgjobs_job_subject",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        models.F("unique_key"),
                        condition=models.Q(("unique_key__isnull", False)),
                        name="pgjobs_job_unique_key",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Func(
                                models.F("status"),
                                models.Case(
                                    models.When(
                                        locked_at__isnull=True,
                                        then=models.Case(
                                            models.When(
                                                finished_at__isnull=True,
                                                then=models.Func(
                                                    output_field=models.TextField(),
                                                    template="'{pending,blocked}'::text[]",
                                                ),
                                            ),
                                            default=models.Func(
                                                output_field=models.TextField(),
                                                template="'{cancelled,done,failed}'::text[]",
                                            ),
                                        ),
                                    ),
                                    models.When(
                                        finished_at__isnull=True,
                                        then=models.Func(
                                            output_field=models.TextField(),
                                            template="'{running}'::text[]",
                                        ),
                                    ),
                                    default=models.Func(
                                        output_field=models.TextField(), template="'{}'::text[]"
                                    ),
                                ),
                                arg_joiner=" = any(",
                                output_field=models.BooleanField(),
                                template="%(expressions)s)",
                            ),
                            django.db.models.lookups.Exact(
                                models.Q(("locked_at__isnull", True)),
                                models.Q(("locked_by__isnull", True)),
                            ),
                        ),
                        name="pgjobs_job_status",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__range", (-100, 100))),
                        name="pgjobs_job_priority",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least(
                                    "attempted_at",
                                    "cancel_requested_at",
                                    "created_at",
                                    "finished_at",
                                    "locked_at",
                                    "run_at",
                                ),
                                datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC),
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                django.db.models.functions.comparison.Greatest(
                                    "attempted_at",
                                    "cancel_requested_at",
                                    "created_at",
                                    "finished_at",
                                    "locked_at",
                                    "run_at",
                                ),
                                datetime.datetime(9999, 12, 31, 0, 0, tzinfo=datetime.UTC),
                            ),
                        ),
                        name="pgjobs_job_times",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least(
                                    "attempts", "attempts_before", "claims"
                                ),
                                0,
                            ),
                            ("max_attempts__gte", 1),
                        ),
                        name="pgjobs_job_attempts",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThan(
                                django.db.models.functions.comparison.Least(
                                    "kind", "queue", "concurrency_key"
                                ),
                                models.Value(""),
                            )
                        ),
                        name="pgjobs_job_names",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("errors__contains", []),
                            ("meta__contains", {}),
                            ("payload__contains", {}),
                        ),
                        name="pgjobs_job_json",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("host", models.CharField(max_length=255, verbose_name="host")),
                ("pid", models.IntegerField(verbose_name="process id")),
                (
                    "queues",
                    models.JSONField(
                        help_text="Null: every queue.", blank=True, null=True, verbose_name="queues"
                    ),
                ),
                (
                    "exclude",
                    models.JSONField(blank=True, null=True, verbose_name="queues left out"),
                ),
                (
                    "by_transaction",
                    models.JSONField(
                        blank=True,
                        help_text="True: every queue.",
                        null=True,
                        verbose_name="queues claimed by transaction",
                    ),
                ),
                (
                    "kinds",
                    models.JSONField(
                        blank=True,
                        help_text="With their limits. Null: not known.",
                        null=True,
                        verbose_name="known kinds",
                    ),
                ),
                (
                    "limited",
                    models.JSONField(blank=True, null=True, verbose_name="limited queues"),
                ),
                ("threads", models.IntegerField(verbose_name="threads")),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        verbose_name="started at",
                    ),
                ),
                (
                    "heartbeat_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        verbose_name="last heartbeat",
                    ),
                ),
                (
                    "stopping_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="stopping since"),
                ),
                ("died_at", models.DateTimeField(blank=True, null=True, verbose_name="died at")),
                (
                    "death",
                    models.CharField(
                        db_default="", max_length=200, verbose_name="reason of its death"
                    ),
                ),
                (
                    "started",
                    models.JSONField(
                        help_text="Ids of the jobs that it had started and not settled. Null: not known.",
                        null=True,
                        verbose_name="jobs started",
                    ),
                ),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "indexes": [
                    models.Index(
                        models.F("heartbeat_at"),
                        condition=models.Q(("died_at__isnull", True)),
                        name="pgjobs_worker_living",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200, verbose_name="name")),
                ("kind", models.CharField(max_length=200, verbose_name="kind")),
                (
                    "payload",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, models.JSONField()),
                        verbose_name="payload",
                    ),
                ),
                (
                    "cron",
                    models.CharField(
                        blank=True,
                        db_default="",
                        help_text="Minute, hour, day of month, month, day of week; such as 0 3 * * *",
                        max_length=200,
                        verbose_name="cron expression",
                    ),
                ),
                (
                    "tz",
                    models.CharField(
                        db_default="UTC",
                        help_text="The clocks that the cron expression goes by; such as Europe/Paris",
                        max_length=63,
                        verbose_name="time zone",
                    ),
                ),
                (
                    "every",
                    models.DurationField(
                        blank=True,
                        help_text="Instead of a cron expression: days, and hours:minutes:seconds, as 1 00:30:00",
                        null=True,
                        verbose_name="interval",
                    ),
                ),
                (
                    "missed",
                    models.CharField(
                        choices=[
                            ("skip", "skip them"),
                            ("latest", "make up for the latest one"),
                            ("all", "make up for all"),
                        ],
                        db_default="latest",
                        max_length=6,
                        verbose_name="missed ticks",
                    ),
                ),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                (
                    "since",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="Ticks count from here.",
                        verbose_name="since",
                    ),
                ),
                (
                    "next_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Null: to be worked out.",
                        null=True,
                        verbose_name="next tick",
                    ),
                ),
                ("last_at", models.DateTimeField(blank=True, null=True, verbose_name="last tick")),
                ("from_code", models.BooleanField(db_default=False, verbose_name="from code")),
                (
                    "removed_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="removed from the code at"
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "permissions": (("run_schedule", "Can run schedules now"),),
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="pgjobs_schedule_name"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("name", ""), _negated=True),
                            models.Q(("kind", ""), _negated=True),
                            models.Q(("tz", ""), _negated=True),
                        ),
                        name="pgjobs_schedule_names",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("every__isnull", True), models.Q(("cron", ""), _negated=True)
                            ),
                            models.Q(
                                ("cron", ""),
                                ("every__isnull", False),
                                (
                                    "every__range",
                                    (datetime.timedelta(seconds=1), datetime.timedelta(days=366)),
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="pgjobs_schedule_rule",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("missed__in", ("skip", "latest", "all"))),
                        name="pgjobs_schedule_missed",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("since__isnull", True),
                                (
                                    "since__range",
                                    (
                                        datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC),
                                        datetime.datetime(9999, 12, 31, 0, 0, tzinfo=datetime.UTC),
                                    ),
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                ("next_at__isnull", True),
                                (
                                    "next_at__range",
                                    (
                                        datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC),
                                        datetime.datetime(9999, 12, 31, 0, 0, tzinfo=datetime.UTC),
                                    ),
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                ("last_at__isnull", True),
                                (
                                    "last_at__range",
                                    (
                                        datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC),
                                        datetime.datetime(9999, 12, 31, 0, 0, tzinfo=datetime.UTC),
                                    ),
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                ("removed_at__isnull", True),
                                (
                                    "removed_at__range",
                                    (
                                        datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC),
                                        datetime.datetime(9999, 12, 31, 0, 0, tzinfo=datetime.UTC),
                                    ),
                                ),
                                _connector="OR",
                            ),
                        ),
                        name="pgjobs_schedule_times",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.Exact(
                                models.Func(
                                    models.F("payload"),
                                    function="jsonb_typeof",
                                    output_field=models.TextField(),
                                ),
                                models.Value("object"),
                            )
                        ),
                        name="pgjobs_schedule_payload",
                    ),
                ],
            },
        ),
        # Every job is two or three dead row versions. The defaults wait for a fifth of the table,
        # which in a queue with a history means for ever, while claims walk past the dead.
        migrations.RunSQL(
            sql="""
            alter table django_pgjobs_job set (
                autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
                autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0)
            """,
            reverse_sql=migrations.RunSQL.noop,
        ),
    ]
