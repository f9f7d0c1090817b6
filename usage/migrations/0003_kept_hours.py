"""Hours by kind and group are kept; the next refresh sums them, of the lifetimes that are there."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [
        ("usage", "0002_utilization_hours"),
    ]

    operations: ClassVar = [
        migrations.AddField(
            model_name="rollupstate",
            name="kept_from",
            field=models.DateTimeField(null=True),
        ),
        migrations.CreateModel(
            name="GroupAcceleratorHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("namespace", models.TextField()),
                ("group", models.TextField()),
                ("accelerator", models.TextField()),
                ("gpu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("going_gpus", models.DecimalField(decimal_places=0, max_digits=40)),
                ("hour", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "accelerator", "namespace", "group"),
                        name="group_accelerator_hour_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="GroupHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("namespace", models.TextField()),
                ("group", models.TextField()),
                ("pods", models.BigIntegerField()),
                ("begun", models.BigIntegerField()),
                ("seconds", models.BigIntegerField()),
                ("estimated_seconds", models.BigIntegerField()),
                ("unverified_seconds", models.BigIntegerField()),
                ("millicore_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("byte_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("gpu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("micro_ipu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("going_pods", models.BigIntegerField()),
                ("going_estimated", models.BigIntegerField()),
                ("going_unverified", models.BigIntegerField()),
                ("going_millicores", models.DecimalField(decimal_places=0, max_digits=40)),
                ("going_bytes", models.DecimalField(decimal_places=0, max_digits=40)),
                ("going_gpus", models.DecimalField(decimal_places=0, max_digits=40)),
                ("going_micro_ipus", models.DecimalField(decimal_places=0, max_digits=40)),
                ("hour", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "namespace", "group"), name="group_hour_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PartitionKindHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("namespace", models.TextField()),
                ("group", models.TextField()),
                ("size", models.IntegerField()),
                ("partitions", models.BigIntegerField()),
                ("begun", models.BigIntegerField()),
                ("partition_ipu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("hour", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "namespace", "group", "size"),
                        name="partition_kind_hour_once",
                    )
                ],
            },
        ),
    ]
