"""Sums of utilization by quarter of an hour; the first refresh after it makes them."""

from django.db import migrations, models

from usage.migrations import _utilization_dirt


class Migration(migrations.Migration):
    dependencies = [
        ("ipuhub", "0002_watch_holder"),
        ("partitions", "0003_began_and_ended"),
        ("usage", "0009_coarse_sums"),
    ]

    operations = [
        migrations.CreateModel(
            name="UtilizationDirt",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("first_hour", models.DateTimeField()),
                ("last_hour", models.DateTimeField(null=True)),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="UtilizationState",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("begin", models.DateTimeField()),
                ("until", models.DateTimeField()),
                ("known_until", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="UtilizationQuarter",
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
                "constraints": [
                    models.UniqueConstraint(fields=("begin", "controller"), name="utilization_once")
                ],
            },
        ),
        migrations.RunSQL(_utilization_dirt.CREATE, _utilization_dirt.DROP),
    ]
