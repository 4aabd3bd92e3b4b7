from django.db import migrations

from django_pgjobs.operations import InstallFunctions


class Migration(migrations.Migration):
    dependencies = [("django_pgjobs", "0001_initial")]

    operations = [InstallFunctions("c7de2ad6e08bd676")]
