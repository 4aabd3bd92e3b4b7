from django.db import migrations

from tests.next_release.additions import fields


class Migration(migrations.Migration):
    dependencies = [("django_pgjobs", "0005_gate")]
    operations = fields("Figure")
