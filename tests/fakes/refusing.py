"""Errors that a fake API server returns to the operator on request, in a real server's words."""

from __future__ import annotations

from dataclasses import dataclass

from ipuhub.kube.errors import Forbidden, ServerError

AWAY = (
    'failed calling webhook "mutate.ipuhub.io": Post "https://ipuhub-webhooks.ipuhub-system.svc'
    ':443/mutate?timeout=10s": dial tcp 127.0.0.1:443: connect: connection refused'
)


@dataclass
class Refusing:
    """`most_pods`: the limit of a quota; `is_webhook_away`: no webhook answers for ipujobs;
    `is_ending`: the namespace is being deleted."""

    most_pods: int | None = None
    is_webhook_away: bool = False
    is_ending: bool = False

    def judge_create(self, plural: str, name: str, pods: int) -> None:
        """Raises for what cannot be made now."""
        forbidden = f'{plural} "{name}" is forbidden: '
        if self.is_ending:
            cause = "unable to create new content in namespace because it is being terminated"
            raise Forbidden(403, "Forbidden", forbidden + cause)
        if plural == "pods" and self.most_pods is not None and pods >= self.most_pods:
            used = f"requested: pods=1, used: pods={pods}, limited: pods={self.most_pods}"
            raise Forbidden(403, "Forbidden", f"{forbidden}exceeded quota: chaos, {used}")

    def judge_patch(self, plural: str, subresource: str | None) -> None:
        """Raises for what cannot be changed now: webhooks are not asked about a status."""
        if self.is_webhook_away and plural == "ipujobs" and subresource is None:
            raise ServerError(500, "InternalError", f"Internal error occurred: {AWAY}")
