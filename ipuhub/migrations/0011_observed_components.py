"""Heartbeats of components that are observed, and outages of members of a component."""

from typing import Any

from django.db import migrations, models
from django.db.models import F
from django.db.models.functions import Now


def _begin_episodes(apps: Any, _schema: Any) -> None:
    apps.get_model("ipuhub", "ComponentOutage").objects.update(episode=F("since"))


class Migration(migrations.Migration):
    dependencies = [
        ("ipuhub", "0010_component_outages"),
    ]

    operations = [
        migrations.AlterField("heartbeat", "at", models.DateTimeField(null=True)),
        migrations.AddField("heartbeat", "looked_at", models.DateTimeField(null=True)),
        migrations.AddField("heartbeat", "state", models.TextField(db_default="", default="")),
        migrations.AddField("heartbeat", "detail", models.TextField(db_default="", default="")),
        migrations.AddField("heartbeat", "holder", models.TextField(db_default="", default="")),
        migrations.AddField("heartbeat", "members", models.JSONField(db_default=[], default=list)),
        migrations.AddField("heartbeat", "absent", models.JSONField(db_default=[], default=list)),
        migrations.RemoveConstraint("componentoutage", "component_outage_open_once"),
        migrations.AddField(
            "componentoutage", "member", models.TextField(db_default="", default="")
        ),
        # Workers of the former version insert rows without it during an upgrade.
        migrations.AddField("componentoutage", "episode", models.DateTimeField(db_default=Now())),
        migrations.RunPython(_begin_episodes, migrations.RunPython.noop),
        migrations.AddConstraint(
            "componentoutage",
            models.UniqueConstraint(
                condition=models.Q(("ended_at", None)),
                fields=("name", "member"),
                name="component_outage_open_once",
            ),
        ),
    ]
