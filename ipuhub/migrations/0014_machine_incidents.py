"""Cordons of IPU-Machines and faults of their IPUs, as the rounds of the web process see them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ipuhub", "0013_idempotency"),
    ]

    operations = [
        migrations.CreateModel(
            name="MachineIncident",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("controller", models.TextField()),
                ("machine", models.TextField()),
                ("device", models.IntegerField()),
                ("what", models.TextField()),
                ("since", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["controller", "machine", "since"], name="machine_incident_recent"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)),
                        fields=("controller", "machine", "device"),
                        name="machine_incident_open_once",
                    )
                ],
            },
        ),
    ]
