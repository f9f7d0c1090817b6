"""Sums of utilization by the hour; the next refresh makes them, of the quarters that are there."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("usage", "0001_initial")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="UtilizationHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("controller", models.TextField()),
                ("begin", models.DateTimeField()),
                ("capacity", models.BigIntegerField()),
                ("reserved", models.BigIntegerField()),
                ("by_others", models.BigIntegerField()),
                ("held_idle", models.BigIntegerField()),
                ("idle", models.BigIntegerField()),
                ("down", models.BigIntegerField()),
                ("unknown", models.BigIntegerField()),
                ("pod_micro", models.DecimalField(decimal_places=0, max_digits=40)),
            ],
            options={
                "abstract": False,
                "constraints": [
                    models.UniqueConstraint(
                        fields=("begin", "controller"), name="utilization_hour_once"
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="utilizationstate",
            name="with_hours",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
