"""The tables of usage, what keeps note of stale sums, and the group of accountants."""

import datetime as dt
from typing import Any

import django.contrib.postgres.constraints
import django.contrib.postgres.fields.ranges
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.fields.json
import django.db.models.functions.comparison
import django.db.models.functions.text
import django.db.models.lookups
from django.db import migrations, models

from usage.migrations import _dirt

# Tells the planner how few combinations there are of whose lifetimes are. Without it a month's sums
# look a thousand times as many as they are, too many to be added up in memory, and the month is
# sorted on disk for them.
_STATISTICS = """
CREATE STATISTICS lifetime_whose (ndistinct)
ON namespace, "group", "user", user_verified, component, instance_type FROM usage_podlifetime
"""


def make_group(apps: Any, _schema: Any) -> None:
    """Make the group whose members are accountants (ipuhub/web/access.py)."""
    apps.get_model("auth", "Group").objects.get_or_create(name="accountant")


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("ipuhub", "0001_initial"),
        ("partitions", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="MonitorRound",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("cluster_uid", models.TextField(unique=True)),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
                ("checked", models.BigIntegerField()),
                ("present", models.BigIntegerField()),
                ("closed", models.BigIntegerField()),
                ("left", models.BigIntegerField()),
                ("problem", models.TextField(default="")),
            ],
        ),
        migrations.CreateModel(
            name="PurgeState",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("purged_before", models.DateField()),
                ("zone", models.TextField(default="UTC")),
                ("began_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("counts", models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name="RollupDirt",
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
            name="RollupState",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("zone", models.TextField()),
                ("until", models.DateField()),
                ("hours_from", models.DateTimeField(null=True)),
                ("hours_until", models.DateTimeField(null=True)),
                ("accelerated_from", models.DateField(null=True)),
            ],
        ),
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
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "namespace", "group", "component", "instance_type"),
                        name="kind_day_once",
                    )
                ],
            },
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
                        fields=("hour", "namespace", "group", "component", "instance_type"),
                        name="kind_hour_once",
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
            name="MonthReport",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("month", models.CharField(max_length=7)),
                ("version", models.IntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "current month: updated by every run"),
                            (
                                "provisional",
                                "last month: late data still counts until it is closed",
                            ),
                            ("closed", "final: later differences become a numbered correction"),
                            (
                                "correction",
                                "differences found after the month was closed",
                            ),
                        ],
                        max_length=11,
                    ),
                ),
                ("zone", models.TextField()),
                ("first", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("generated_at", models.DateTimeField()),
                ("complete_until", models.DateTimeField(null=True)),
                ("lifetimes", models.BigIntegerField()),
                ("digests", models.JSONField(default=dict)),
                ("lines", models.JSONField(default=dict)),
                ("number", models.IntegerField(default=0)),
                ("cause", models.TextField(default="")),
                ("made_by", models.TextField(default="")),
                ("tariff", models.JSONField(default=dict)),
                ("cost", models.DecimalField(decimal_places=6, max_digits=40, null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("month", "version"), name="month_report_version"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("number__gt", 0)),
                        fields=("month", "number"),
                        name="month_report_correction",
                    ),
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
            name="PodLifetime",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.TextField(unique=True)),
                ("cluster_uid", models.TextField(default="")),
                ("namespace", models.TextField()),
                ("pod_name", models.TextField()),
                ("node", models.TextField(default="")),
                ("claim", models.TextField(default="namespace")),
                ("component", models.TextField(default="")),
                ("claimed_component", models.TextField(db_default="", default="")),
                ("component_name", models.TextField(default="")),
                ("group", models.TextField(default="")),
                ("user", models.TextField(default="")),
                ("user_verified", models.BooleanField(default=False)),
                ("instance_type", models.TextField(default="")),
                ("job_uid", models.TextField(default="")),
                ("role", models.TextField(default="")),
                ("instance", models.IntegerField(null=True)),
                ("attempt", models.IntegerField(null=True)),
                ("partition", models.TextField(default="")),
                ("cpu_millicores", models.BigIntegerField(default=0)),
                ("memory_bytes", models.BigIntegerField(default=0)),
                ("gpus", models.BigIntegerField(default=0)),
                ("accelerators", models.JSONField(default=dict)),
                ("micro_ipus", models.BigIntegerField(default=0)),
                (
                    "labels",
                    models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
                ),
                ("stamp", models.JSONField(null=True)),
                ("phase", models.TextField(default="")),
                ("reason", models.TextField(default="")),
                ("exit_code", models.IntegerField(null=True)),
                ("created_at", models.DateTimeField()),
                ("scheduled_at", models.DateTimeField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("end_source", models.TextField(default="")),
                ("estimated", models.BooleanField(default=False)),
                ("uncertainty_seconds", models.BigIntegerField(default=0)),
                ("skew_seconds", models.BigIntegerField(db_default=0, default=0)),
                ("seen_at", models.DateTimeField(null=True)),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["scheduled_at", "finished_at"], name="lifetime_began"),
                    django.contrib.postgres.indexes.GistIndex(
                        models.Func(
                            models.F("scheduled_at"),
                            django.db.models.functions.comparison.Greatest(
                                "finished_at", "scheduled_at"
                            ),
                            models.Value("()"),
                            function="tstzrange",
                        ),
                        condition=models.Q(
                            django.db.models.lookups.GreaterThan(
                                django.db.models.expressions.CombinedExpression(
                                    models.F("finished_at"), "-", models.F("scheduled_at")
                                ),
                                dt.timedelta(days=1),
                            )
                        ),
                        name="lifetime_long",
                    ),
                    models.Index(
                        condition=models.Q(("finished_at", None)),
                        fields=["scheduled_at"],
                        name="lifetime_open",
                    ),
                    models.Index(fields=["finished_at"], name="lifetime_ended"),
                    models.Index(
                        condition=models.Q(("job_uid", ""), _negated=True),
                        fields=["job_uid"],
                        name="lifetime_job",
                    ),
                    models.Index(
                        models.OrderBy(models.F("created_at"), descending=True),
                        models.OrderBy(models.F("id"), descending=True),
                        name="lifetime_newest",
                    ),
                    models.Index(
                        django.db.models.fields.json.KeyTextTransform("job_uid", "stamp"),
                        condition=models.Q(("stamp__isnull", False)),
                        name="lifetime_stamp",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Rate",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "resource",
                    models.CharField(
                        choices=[
                            ("cpu", "CPU core-hour"),
                            ("memory", "GiB-hour of memory"),
                            ("gpu", "accelerator-hour, any"),
                            ("accelerator", "accelerator-hour, by name"),
                            ("ipu", "IPU-hour of a pod"),
                            ("partition-ipu", "IPU-hour of a partition"),
                            ("instance", "pod-hour of an instance type"),
                        ],
                        max_length=16,
                    ),
                ),
                ("name", models.TextField(blank=True, default="")),
                ("price", models.DecimalField(decimal_places=6, max_digits=18)),
                ("valid_from", models.DateField()),
                ("valid_until", models.DateField(blank=True, null=True)),
                ("created_by", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("ended_by", models.TextField(blank=True, default="")),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "constraints": [
                    django.contrib.postgres.constraints.ExclusionConstraint(
                        expressions=[
                            (
                                models.Func(
                                    models.Func(
                                        django.db.models.functions.text.Concat(
                                            models.F("resource"),
                                            models.Value(" "),
                                            models.F("name"),
                                            output_field=models.TextField(),
                                        ),
                                        models.Value(0),
                                        function="hashtextextended",
                                    ),
                                    models.Func(
                                        django.db.models.functions.text.Concat(
                                            models.F("resource"),
                                            models.Value(" "),
                                            models.F("name"),
                                            output_field=models.TextField(),
                                        ),
                                        models.Value(0),
                                        function="hashtextextended",
                                    ),
                                    models.Value("[]"),
                                    function="int8range",
                                ),
                                "&&",
                            ),
                            (
                                models.Func(
                                    models.F("valid_from"),
                                    models.F("valid_until"),
                                    function="daterange",
                                    output_field=django.contrib.postgres.fields.ranges.DateRangeField(),
                                ),
                                "&&",
                            ),
                        ],
                        name="rate_once_a_day",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("price__gte", 0)), name="rate_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("valid_until", None),
                            ("valid_until__gte", models.F("valid_from")),
                            _connector="OR",
                        ),
                        name="rate_ends_after_it_begins",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("resource__in", ["accelerator", "instance"]),
                            ("name", ""),
                            _connector="XOR",
                        ),
                        name="rate_named_where_needed",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReportRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "waiting for a worker"),
                            ("running", "running"),
                            ("done", "finished"),
                            ("refused", "refused: another run was in progress"),
                            ("failed", "failed"),
                        ],
                        default="queued",
                        max_length=8,
                    ),
                ),
                ("cause", models.TextField(default="")),
                ("requested_by", models.TextField(default="")),
                ("requested_at", models.DateTimeField()),
                ("month", models.CharField(default="", max_length=7)),
                ("months", models.JSONField(default=list)),
                ("done", models.IntegerField(default=0)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("message", models.TextField(default="")),
                ("close", models.BooleanField(default=False)),
                ("kind", models.CharField(default="", max_length=7)),
                ("profile", models.CharField(default="default", max_length=16)),
                ("begin", models.DateTimeField(null=True)),
                ("end", models.DateTimeField(null=True)),
                ("lines", models.BigIntegerField(default=0)),
                ("digest", models.CharField(default="", max_length=64)),
                ("complete_until", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["-requested_at", "-id"], name="report_run_newest")
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
            name="UsageDay",
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
                ("day", models.DateField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "namespace", "group", "user", "component", "instance_type"),
                        name="usage_day_once",
                    )
                ],
            },
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
                        fields=("hour", "namespace", "group", "user", "component", "instance_type"),
                        name="usage_hour_once",
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
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "namespace", "group", "user"), name="user_day_once"
                    )
                ],
            },
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
                        fields=("hour", "namespace", "group", "user"), name="user_hour_once"
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
        migrations.CreateModel(
            name="ReportChunk",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("profile", models.CharField(max_length=16)),
                ("number", models.IntegerField()),
                ("data", models.BinaryField()),
                (
                    "report",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chunks",
                        to="usage.monthreport",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("report", "profile", "number"), name="report_chunk"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ReportRow",
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
                ("user_verified", models.BooleanField()),
                ("component", models.TextField()),
                ("instance_type", models.TextField()),
                ("running", models.BooleanField()),
                ("lifetimes", models.BigIntegerField()),
                ("pods", models.BigIntegerField()),
                ("estimated", models.BigIntegerField()),
                ("seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("millicore_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("byte_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("gpu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("micro_ipu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                ("partition_ipu_seconds", models.DecimalField(decimal_places=0, max_digits=40)),
                (
                    "idle_micro_ipu_seconds",
                    models.DecimalField(decimal_places=0, default=0, max_digits=40),
                ),
                ("cost", models.DecimalField(decimal_places=6, max_digits=40, null=True)),
                (
                    "report",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="rows",
                        to="usage.monthreport",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["report", "id"], name="report_row_order")],
            },
        ),
        migrations.CreateModel(
            name="RunChunk",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.IntegerField()),
                ("data", models.BinaryField()),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chunks",
                        to="usage.reportrun",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("run", "number"), name="report_run_chunk")
                ],
            },
        ),
        migrations.RunPython(_dirt.create, _dirt.drop),
        migrations.RunSQL(_STATISTICS, "DROP STATISTICS lifetime_whose"),
        migrations.RunPython(make_group, migrations.RunPython.noop),
    ]
