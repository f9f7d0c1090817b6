from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ipuhub", "0015_idempotency_states"),
    ]

    operations = [
        migrations.AddField(
            model_name="heartbeat",
            name="version",
            field=models.TextField(db_default="", default=""),
        ),
    ]
