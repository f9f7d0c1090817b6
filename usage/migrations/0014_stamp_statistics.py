"""Tells the planner that hardly any row has a stamp.

A new column has no statistics until a tenth of the table has changed: until then each write of jobs
would read all of a large table instead of the index of 0013.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0013_waiting_stamps"),
    ]

    operations = [
        migrations.RunSQL("ANALYZE usage_podlifetime (stamp)", migrations.RunSQL.noop),
    ]
