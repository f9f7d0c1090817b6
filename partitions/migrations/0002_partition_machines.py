from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("partitions", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="partitionlifetime",
            name="machines",
            field=models.JSONField(db_default={}, default=dict),
        ),
    ]
