"""Sums of few columns, made from those there are; the index of beginnings knows the ends, too."""

from django.db import migrations, models

_SUMS = (
    "pods, begun, seconds, estimated_seconds, unverified_seconds, millicore_seconds, byte_seconds,"
    " gpu_seconds, micro_ipu_seconds"
)
_TABLES = {
    "kind": 'namespace, "group", component, instance_type',
    "user": 'namespace, "group", "user"',
}
_FILL = "".join(
    f"INSERT INTO usage_{table}{grain} ({grain}, {columns}, {_SUMS}) SELECT {grain}, {columns},"  # noqa: S608
    f" {', '.join(f'sum({name})' for name in _SUMS.split(', '))}"
    f" FROM usage_usage{grain} GROUP BY {grain}, {columns};\n"
    for table, columns in _TABLES.items()
    for grain in ("day", "hour")
)


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0008_corrections_rates"),
    ]

    operations = [
        migrations.CreateModel(
            name="KindDay",
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
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("day", models.DateField()),
            ],
        ),
        migrations.CreateModel(
            name="KindHour",
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
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("hour", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="UserDay",
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
                ("user", models.TextField()),
                ("day", models.DateField()),
            ],
        ),
        migrations.CreateModel(
            name="UserHour",
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
                ("user", models.TextField()),
                ("hour", models.DateTimeField()),
            ],
        ),
        migrations.RemoveIndex(
            model_name="podlifetime",
            name="lifetime_began",
        ),
        migrations.AddIndex(
            model_name="podlifetime",
            index=models.Index(fields=["scheduled_at", "finished_at"], name="lifetime_began"),
        ),
        migrations.AddConstraint(
            model_name="kindday",
            constraint=models.UniqueConstraint(
                fields=("day", "namespace", "group", "component", "instance_type"),
                name="kind_day_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="kindhour",
            constraint=models.UniqueConstraint(
                fields=("hour", "namespace", "group", "component", "instance_type"),
                name="kind_hour_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="userday",
            constraint=models.UniqueConstraint(
                fields=("day", "namespace", "group", "user"), name="user_day_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="userhour",
            constraint=models.UniqueConstraint(
                fields=("hour", "namespace", "group", "user"), name="user_hour_once"
            ),
        ),
        migrations.RunSQL(_FILL, migrations.RunSQL.noop),
    ]
