from django.db import migrations, models
from django.db.models import CASCADE


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0005_applied_and_running"),
    ]

    operations = [
        migrations.CreateModel(
            name="JobEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.TextField(unique=True)),
                ("pod", models.TextField(default="")),
                ("type", models.TextField(default="Normal")),
                ("reason", models.TextField(default="")),
                ("message", models.TextField(default="")),
                ("count", models.IntegerField(default=1)),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=CASCADE, related_name="events", to="jobs.jobrecord"
                    ),
                ),
            ],
        ),
    ]
