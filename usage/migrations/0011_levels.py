"""What pods hold as an hour ends, beside its sums; the hours of today are summed anew after it.

The columns have no default: sums that an older release made beside it would lack what they hold.
"""

from django.db import migrations, models

_TABLES = ("usagehour", "kindhour", "userhour")
_COUNTS = ("going_pods", "going_estimated", "going_unverified")
_AMOUNTS = ("going_millicores", "going_bytes", "going_gpus", "going_micro_ipus")
_FORGET = """
UPDATE usage_rollupstate SET hours_from = NULL, hours_until = NULL;
DELETE FROM usage_usagehour;
DELETE FROM usage_kindhour;
DELETE FROM usage_userhour;
DELETE FROM usage_partitionhour;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0010_utilization_sums"),
    ]

    operations = [
        migrations.RunSQL(_FORGET, _FORGET),
        *(
            migrations.AddField(
                model, name, models.BigIntegerField(default=0), preserve_default=False
            )
            for model in _TABLES
            for name in _COUNTS
        ),
        *(
            migrations.AddField(
                model,
                name,
                models.DecimalField(decimal_places=0, max_digits=40, default=0),
                preserve_default=False,
            )
            for model in _TABLES
            for name in _AMOUNTS
        ),
        migrations.AddIndex(
            model_name="podlifetime",
            index=models.Index(fields=["finished_at"], name="lifetime_ended"),
        ),
    ]
