"""Role changes are read from the audit, which has had each of them since 0017.

What a web process from before 0017 still recorded beside it is copied; both records of one change
differ by the time between two statements. The old table stays, as of 0006: web processes of the
previous release write to it until they are replaced. Backwards, it gets what the audit alone has.
"""

from django.db import migrations, models

COPY = """
INSERT INTO ipuhub_auditentry (at, answered_at, user_name, kubernetes_user, kubernetes_groups, via,
  address, kind, action, namespace, name, uid, change, changes, outcome, message)
SELECT at, at, "by", '', '[]',
  CASE "by" WHEN 'manage.py' THEN 'command' WHEN 'sign-in' THEN 'sign-in' ELSE '' END,
  '', kind, action, namespace, name, '', '{}',
  jsonb_build_array(jsonb_build_object('field', CASE kind WHEN 'token' THEN 'owner' ELSE 'role' END,
    'before', CASE WHEN is_granted THEN NULL WHEN kind = 'token' THEN user_name ELSE role END,
    'after', CASE WHEN is_granted THEN role END)),
  'accepted', ''
FROM (
  SELECT *, CASE WHEN is_granted THEN 'grant' ELSE 'revoke' END AS action,
    CASE WHEN is_token THEN 'token' ELSE 'role' END AS kind,
    CASE WHEN is_token THEN substr(role, 7) ELSE user_name END AS name
  FROM (SELECT *, namespace = '' AND role LIKE 'token %' AS is_token FROM ipuhub_rolechange) old
) change
WHERE NOT EXISTS (
  SELECT FROM ipuhub_auditentry entry
  WHERE (entry.user_name, entry.kind, entry.action, entry.namespace, entry.name)
      = (change."by", change.kind, change.action, change.namespace, change.name)
    AND (is_token OR change.role IN (entry.changes #>> '{0,before}', entry.changes #>> '{0,after}'))
    AND abs(extract(epoch FROM entry.at - change.at)) < 60
)
ORDER BY at, id
"""
BACK = """
INSERT INTO ipuhub_rolechange (at, "by", user_name, role, namespace, is_granted)
SELECT at, "by", user_name, role, namespace, is_granted
FROM (
  SELECT id, at, user_name AS "by", namespace, action = 'grant' AS is_granted,
    CASE kind WHEN 'role' THEN name ELSE changes #>> '{0,before}' END AS user_name,
    CASE kind WHEN 'role' THEN coalesce(changes #>> '{0,after}', changes #>> '{0,before}')
      ELSE 'token ' || name END AS role
  FROM ipuhub_auditentry
  WHERE outcome = 'accepted' AND (kind = 'role'
    OR kind = 'token' AND action = 'revoke' AND changes #>> '{0,before}' <> user_name)
) made
WHERE NOT EXISTS (
  SELECT FROM ipuhub_rolechange change
  WHERE (change."by", change.user_name, change.role, change.namespace, change.is_granted)
      = (made."by", made.user_name, made.role, made.namespace, made.is_granted)
    AND abs(extract(epoch FROM change.at - made.at)) < 60
)
ORDER BY at, id
"""


class Migration(migrations.Migration):
    dependencies = [
        ("ipuhub", "0017_audit_of_everything"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(
                models.OrderBy(models.F("at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(kind__in=["role", "token"]),
                name="audit_roles",
            ),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(COPY, BACK)],
            state_operations=[migrations.DeleteModel(name="RoleChange")],
        ),
    ]
