"""Sums of accelerators by name, and of spans of days. The first refresh after it makes them, with
all others, from the pods there are; until then pages read the pods for both."""

from dataclasses import replace

from django.db import migrations, models

from usage.migrations import _hour_dirt

# Which accelerators a pod has was not summed before, only how many.
_BEFORE = replace(_hour_dirt.PODS, summed=(*_hour_dirt.PODS.summed, "job_uid", "partition"))
_PODS = replace(_BEFORE, summed=(*_BEFORE.summed, "accelerators"))


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0011_levels"),
    ]

    operations = [
        migrations.RunSQL(
            _hour_dirt.drop(_BEFORE) + _hour_dirt.create(_PODS),
            _hour_dirt.drop(_PODS) + _hour_dirt.create(_BEFORE),
        ),
        migrations.AddField(
            model_name="rollupstate",
            name="accelerated_from",
            field=models.DateField(null=True),
        ),
        migrations.CreateModel(
            name="KindAcceleratorDay",
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
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("day", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=(
                            "day",
                            "accelerator",
                            "namespace",
                            "group",
                            "component",
                            "instance_type",
                        ),
                        name="kind_accelerator_day_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="KindAcceleratorHour",
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
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("hour", models.DateTimeField()),
                ("going_gpus", models.DecimalField(decimal_places=0, max_digits=40)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=(
                            "hour",
                            "accelerator",
                            "namespace",
                            "group",
                            "component",
                            "instance_type",
                        ),
                        name="kind_accelerator_hour_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="KindAcceleratorSpan",
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
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("span", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=(
                            "span",
                            "accelerator",
                            "namespace",
                            "group",
                            "component",
                            "instance_type",
                        ),
                        name="kind_accelerator_span_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="KindSpan",
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
                ("span", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("span", "namespace", "group", "component", "instance_type"),
                        name="kind_span_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PartitionSpan",
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
                ("span", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("span", "namespace", "group", "user", "size"),
                        name="partition_span_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageAcceleratorDay",
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
                ("user", models.TextField()),
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("day", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=(
                            "day",
                            "accelerator",
                            "namespace",
                            "group",
                            "user",
                            "component",
                            "instance_type",
                        ),
                        name="usage_accelerator_day_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageAcceleratorHour",
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
                ("user", models.TextField()),
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("hour", models.DateTimeField()),
                ("going_gpus", models.DecimalField(decimal_places=0, max_digits=40)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=(
                            "hour",
                            "accelerator",
                            "namespace",
                            "group",
                            "user",
                            "component",
                            "instance_type",
                        ),
                        name="usage_accelerator_hour_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageAcceleratorSpan",
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
                ("user", models.TextField()),
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("span", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=(
                            "span",
                            "accelerator",
                            "namespace",
                            "group",
                            "user",
                            "component",
                            "instance_type",
                        ),
                        name="usage_accelerator_span_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageSpan",
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
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("span", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("span", "namespace", "group", "user", "component", "instance_type"),
                        name="usage_span_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UserAcceleratorDay",
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
                ("user", models.TextField()),
                ("day", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "accelerator", "namespace", "group", "user"),
                        name="user_accelerator_day_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UserAcceleratorHour",
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
                ("user", models.TextField()),
                ("hour", models.DateTimeField()),
                ("going_gpus", models.DecimalField(decimal_places=0, max_digits=40)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "accelerator", "namespace", "group", "user"),
                        name="user_accelerator_hour_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UserAcceleratorSpan",
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
                ("user", models.TextField()),
                ("span", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("span", "accelerator", "namespace", "group", "user"),
                        name="user_accelerator_span_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UserSpan",
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
                ("span", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("span", "namespace", "group", "user"), name="user_span_once"
                    )
                ],
            },
        ),
    ]
