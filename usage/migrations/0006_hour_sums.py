"""Sums by hour and of partitions. All is summed anew by the first refresh after it."""

from datetime import UTC, datetime

from django.db import migrations, models

from usage.migrations import _day_dirt, _hour_dirt

_FORGET = """
DELETE FROM usage_rollupstate;
DELETE FROM usage_rollupdirt;
DELETE FROM usage_usageday;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("partitions", "0002_user_verified"),
        ("usage", "0005_monitor"),
    ]

    operations = [
        migrations.RunSQL(_day_dirt.DROP, _day_dirt.CREATE),
        migrations.RunSQL(_FORGET, _FORGET),
        migrations.RemoveField(model_name="rollupdirt", name="first_day"),
        migrations.RemoveField(model_name="rollupdirt", name="last_day"),
        migrations.AddField(
            model_name="rollupdirt",
            name="first_hour",
            field=models.DateTimeField(default=datetime(2000, 1, 1, tzinfo=UTC)),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="rollupdirt", name="last_hour", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(
            model_name="rollupstate", name="hours_from", field=models.DateTimeField(null=True)
        ),
        migrations.AddField(
            model_name="rollupstate", name="hours_until", field=models.DateTimeField(null=True)
        ),
        migrations.CreateModel(
            name="UsageHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("namespace", models.TextField()),
                ("group", models.TextField()),
                ("user", models.TextField()),
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("pods", models.BigIntegerField()),
                ("begun", models.BigIntegerField()),
                ("seconds", models.BigIntegerField()),
                ("estimated_seconds", models.BigIntegerField()),
                ("unverified_seconds", models.BigIntegerField()),
                ("millicore_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("byte_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("gpu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("micro_ipu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("hour", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "namespace", "group", "user", "component", "instance_type"),
                        name="usage_hour_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PartitionDay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("namespace", models.TextField()),
                ("group", models.TextField()),
                ("user", models.TextField()),
                ("size", models.IntegerField()),
                ("partitions", models.BigIntegerField()),
                ("begun", models.BigIntegerField()),
                ("partition_ipu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("day", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "namespace", "group", "user", "size"),
                        name="partition_day_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PartitionHour",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("namespace", models.TextField()),
                ("group", models.TextField()),
                ("user", models.TextField()),
                ("size", models.IntegerField()),
                ("partitions", models.BigIntegerField()),
                ("begun", models.BigIntegerField()),
                ("partition_ipu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("hour", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "namespace", "group", "user", "size"),
                        name="partition_hour_once",
                    )
                ],
            },
        ),
        migrations.RunSQL(_hour_dirt.CREATE, _hour_dirt.DROP),
    ]
