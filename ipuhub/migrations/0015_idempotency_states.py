"""Keys go with their user, and have a state."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("ipuhub", "0014_machine_incidents"),
    ]

    operations = [
        migrations.AddField(
            model_name="idempotentrequest",
            name="state",
            field=models.TextField(db_default="sending", default="claimed"),
        ),
        migrations.AddField(
            model_name="idempotentrequest",
            name="user",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
    ]
