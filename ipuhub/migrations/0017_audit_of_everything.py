from django.db import migrations, models

# Entries of before have the new values only; what they replaced was not recorded.
VALUES = """
UPDATE ipuhub_auditentry SET changes = (
  SELECT coalesce(jsonb_agg(jsonb_build_object(
    'field', 'spec.' || key, 'before', NULL, 'after', value #>> '{}')), '[]'::jsonb)
  FROM jsonb_each(change -> 'spec'))
WHERE action IN ('suspend', 'resume', 'scale') AND jsonb_typeof(change -> 'spec') = 'object'
"""
ROLES = """
INSERT INTO ipuhub_auditentry (at, answered_at, user_name, kubernetes_user, kubernetes_groups, via,
  address, kind, action, namespace, name, uid, change, changes, outcome, message)
SELECT at, at, "by", '', '[]',
  CASE "by" WHEN 'manage.py' THEN 'command' WHEN 'sign-in' THEN 'sign-in' ELSE '' END,
  '', CASE WHEN is_token THEN 'token' ELSE 'role' END,
  CASE WHEN is_granted THEN 'grant' ELSE 'revoke' END, namespace,
  CASE WHEN is_token THEN substr(role, 7) ELSE user_name END, '', '{}',
  jsonb_build_array(jsonb_build_object('field', CASE WHEN is_token THEN 'owner' ELSE 'role' END,
    'before', CASE WHEN is_granted THEN NULL WHEN is_token THEN user_name ELSE role END,
    'after', CASE WHEN is_granted THEN role END)),
  'accepted', ''
FROM (SELECT *, namespace = '' AND role LIKE 'token %' AS is_token FROM ipuhub_rolechange) old
ORDER BY at, id
"""
BACK = "DELETE FROM ipuhub_auditentry WHERE kind <> 'job'"


class Migration(migrations.Migration):
    dependencies = [
        ("ipuhub", "0016_heartbeat_version"),
    ]

    operations = [
        migrations.AddField(
            model_name="auditentry",
            name="address",
            field=models.TextField(db_default="", default=""),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="kind",
            field=models.TextField(db_default="job", default="job"),
        ),
        migrations.AddField(
            model_name="auditentry",
            name="changes",
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(
                models.F("kind"),
                models.OrderBy(models.F("at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                name="audit_kind",
            ),
        ),
        migrations.RunSQL([VALUES, ROLES], BACK),
    ]
