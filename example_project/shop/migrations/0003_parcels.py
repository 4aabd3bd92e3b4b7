from __future__ import annotations

from django.db import migrations

from django_pgjobs.pgmq.operations import CreateQueue


class Migration(migrations.Migration):
    dependencies = [("shop", "0002_products"), ("django_pgjobs_pgmq", "0001_initial")]

    operations = [CreateQueue("parcels"), CreateQueue("parcels_dead")]
