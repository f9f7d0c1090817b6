"""Keys of writes in a table of their own.

The old columns of the audit stay: web processes of the previous release read and write them until
they are replaced, and again after a rollback.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ipuhub", "0012_audit_groups"),
    ]

    operations = [
        migrations.CreateModel(
            name="IdempotentRequest",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("owner", models.TextField()),
                ("key", models.TextField()),
                ("digest", models.TextField()),
                ("at", models.DateTimeField(db_index=True)),
                ("status", models.IntegerField(null=True)),
                ("body", models.TextField(default="")),
                ("location", models.TextField(default="")),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE ipuhub_auditentry ALTER COLUMN digest SET DEFAULT ''",
                    "ALTER TABLE ipuhub_auditentry ALTER COLUMN digest DROP DEFAULT",
                )
            ],
            state_operations=[
                migrations.RemoveConstraint(model_name="auditentry", name="audit_key_once"),
                migrations.RemoveField(model_name="auditentry", name="digest"),
                migrations.RemoveField(model_name="auditentry", name="key"),
            ],
        ),
        migrations.AddConstraint(
            model_name="idempotentrequest",
            constraint=models.UniqueConstraint(
                fields=("owner", "key"), name="idempotency_key_once"
            ),
        ),
    ]
