"""Tells the planner how few combinations there are of whose lifetimes are.

Without it a month's sums look a thousand times as many as they are, too many to be added up in
memory, and the month is sorted on disk for them.
"""

from django.db import migrations

_CREATE = """
CREATE STATISTICS lifetime_whose (ndistinct)
ON namespace, "group", "user", user_verified, component, instance_type FROM usage_podlifetime
"""


class Migration(migrations.Migration):
    dependencies = [
        ("usage", "0015_claimed_component"),
    ]

    operations = [
        migrations.RunSQL([_CREATE, "ANALYZE usage_podlifetime"], "DROP STATISTICS lifetime_whose"),
    ]
