from django.db import migrations, models

from django_pgjobs.pgmq.operations import InstallPgmq


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        InstallPgmq(),
        migrations.CreateModel(
            name="QueueRecord",
            fields=[
                (
                    "queue_name",
                    models.CharField(max_length=47, primary_key=True, serialize=False),
                ),
                ("is_partitioned", models.BooleanField()),
                ("is_unlogged", models.BooleanField()),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "db_table": '"pgmq"."meta"',
                "managed": False,
                "default_permissions": ("view", "change", "delete"),
            },
        ),
    ]
