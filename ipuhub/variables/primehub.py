"""glue: the variables of PrimeHub Usage, read as defaults by a site that comes from there."""

from __future__ import annotations

from ipuhub.database import primehub_database_url
from ipuhub.variables.environment import ENV

ENV.read_by("Compatible with PrimeHub Usage")
PRIMEHUB_DATABASE_URL = primehub_database_url(
    ENV.text(
        "PRIMEHUB_USAGE_DB_HOST",
        "",
        doc="PrimeHub Usage's: without DATABASE_URL, the database `postgres` on port 5432 of this "
        "host.",
    ),
    ENV.text("PRIMEHUB_USAGE_DB_USER", "", doc="PrimeHub Usage's: the user of that database."),
    ENV.text(
        "PRIMEHUB_USAGE_DB_PASSWORD", "", doc="PrimeHub Usage's: the password of that database."
    ),
)
PRIMEHUB_NAMESPACE = ENV.text(
    "PRIMEHUB_USAGE_WATCHED_NAMESPACE",
    "",
    doc="PrimeHub Usage's: the only namespace whose pods are recorded where neither "
    "USAGE_NAMESPACES nor USAGE_NAMESPACE_SELECTOR is set, and that patch_legacy_pods reads.",
).strip()
