from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ipuhub", "0011_observed_components"),
    ]

    operations = [
        migrations.AddField(
            model_name="auditentry",
            name="kubernetes_groups",
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list),
        ),
    ]
