"""Stamps of the operator that wait for the record of their job. Rows that are there stay as they
are: no row is written, and the index has none of them."""

from django.db import migrations, models
from django.db.models.fields.json import KeyTextTransform


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0012_accelerator_and_span_sums"),
    ]

    operations = [
        migrations.AddField(
            model_name="podlifetime",
            name="stamp",
            field=models.JSONField(null=True),
        ),
        migrations.AddIndex(
            model_name="podlifetime",
            index=models.Index(
                KeyTextTransform("job_uid", "stamp"),
                condition=models.Q(("stamp__isnull", False)),
                name="lifetime_stamp",
            ),
        ),
    ]
