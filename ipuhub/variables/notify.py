"""glue: settings of notifications by webhook and mail."""

from __future__ import annotations

from ipuhub.env import SettingError
from ipuhub.variables import ENV

ENV.read_by("Dashboard, worker")
NOTIFY_NETWORKS = ENV.networks(
    "IPUHUB_NOTIFY_NETWORKS",
    doc="Private networks to which webhooks may be sent, also by http://. Without it webhooks go "
    "to public addresses by https:// only, so that users cannot reach services inside.",
)
NOTIFY_ATTEMPTS = ENV.integer(
    "IPUHUB_NOTIFY_ATTEMPTS",
    8,
    minimum=1,
    maximum=30,
    doc="How often a notification is tried before it is given up. The first retry follows after "
    "30 s, each further retry after twice the time, at most an hour.",
)
PUBLIC_URL = ENV.text(
    "IPUHUB_PUBLIC_URL",
    "",
    doc="Address of the dashboard as browsers see it, such as https://ipuhub.example, for links in "
    "notifications. Empty: no links.",
)
MAIL_HOST = ENV.text(
    "IPUHUB_MAIL_HOST", "", doc="SMTP server for notifications. Empty: no notifications by mail."
)
MAIL_PORT = ENV.integer(
    "IPUHUB_MAIL_PORT", 587, minimum=1, maximum=65535, doc="Port of the SMTP server."
)
MAIL_TLS = ENV.choice(
    "IPUHUB_MAIL_TLS",
    "starttls",
    ("starttls", "tls", "off"),
    doc="Encryption to the SMTP server: starttls (usually port 587), tls (465), or off.",
)
MAIL_USER = ENV.text("IPUHUB_MAIL_USER", "", doc="User at the SMTP server. Empty: no sign-in.")
MAIL_PASSWORD = ENV.text(
    "IPUHUB_MAIL_PASSWORD", "", doc="Its password, usually given as IPUHUB_MAIL_PASSWORD_FILE."
)
MAIL_FROM = ENV.text("IPUHUB_MAIL_FROM", "", doc="Sender of the mails, such as ipuhub@lab.example.")
MAIL_DOMAINS = ENV.words(
    "IPUHUB_MAIL_DOMAINS",
    [],
    doc="Domains to which mail may be sent, such as lab.example. Empty: any.",
)
if MAIL_HOST and "@" not in MAIL_FROM:
    raise SettingError("IPUHUB_MAIL_HOST is set: set IPUHUB_MAIL_FROM to the sender's address, too")
