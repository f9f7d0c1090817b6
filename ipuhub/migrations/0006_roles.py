"""Creates roles per namespace from the grants of namespaces and the group of accountants.

A user with a grant could change jobs of the namespace, so the grant becomes the role of an
operator. The old table stays: web processes of the previous release read it until they are
replaced.
"""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

# The old table is no longer of the models, so it must not hold rows of users back.
_FREE = """
DO $$ DECLARE found text; BEGIN
  FOR found IN SELECT conname FROM pg_constraint
    WHERE conrelid = 'ipuhub_namespacegrant'::regclass AND contype = 'f'
  LOOP EXECUTE format('ALTER TABLE ipuhub_namespacegrant DROP CONSTRAINT %I', found); END LOOP;
END $$
"""
ROLES = ["admin", "operator", "accountant", "viewer"]


def take_over(apps: Any, _schema: Any) -> None:
    """Make a row of each grant and each accountant."""
    roles = apps.get_model("ipuhub", "RoleGrant").objects
    for grant in apps.get_model("ipuhub", "NamespaceGrant").objects.iterator():
        roles.get_or_create(user_id=grant.user_id, role="operator", namespace=grant.namespace)
    for group in apps.get_model("auth", "Group").objects.filter(name="accountant"):
        for user in group.user_set.all():
            roles.get_or_create(user_id=user.pk, role="accountant", namespace="*")


class Migration(migrations.Migration):
    dependencies = [
        ("ipuhub", "0005_audit"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="RoleGrant",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("role", models.TextField()),
                ("namespace", models.TextField()),
                ("from_groups", models.BooleanField(db_default=False, default=False)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="role_grants",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "role", "namespace"), name="role_grant_once"
                    ),
                    models.CheckConstraint(condition=Q(role__in=ROLES), name="role_grant_known"),
                ],
            },
        ),
        migrations.CreateModel(
            name="RoleChange",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                ("by", models.TextField()),
                ("user_name", models.TextField()),
                ("role", models.TextField()),
                ("namespace", models.TextField()),
                ("is_granted", models.BooleanField()),
            ],
            options={
                "indexes": [
                    models.Index(F("at").desc(), F("id").desc(), name="role_change_newest")
                ],
            },
        ),
        migrations.RunPython(take_over, migrations.RunPython.noop),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(_FREE, migrations.RunSQL.noop)],
            state_operations=[migrations.DeleteModel(name="NamespaceGrant")],
        ),
    ]
