"""glue: users that exist only in Kubernetes, without a database row, and the authority that knows
them.

`settings.CLUSTER_AUTHORITY` names the authority, which has the connection to the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, cast

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.utils.module_loading import import_string

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.access import User

_PREFIX: Final = "system:serviceaccount:"
EVERYBODY: Final = "system:authenticated"
"""Kubernetes puts every authenticated user into this group."""


class ClusterAway(PermissionDenied):  # an answer, not an error
    """Kubernetes does not say what the user may see, so that they see nothing."""

    def __init__(self) -> None:
        super().__init__(
            "Kubernetes does not answer, so IPUHub cannot tell what you may see. Try again later."
        )


class Authority(Protocol):
    """The judge of Kubernetes users' rights; both methods raise ClusterAway if Kubernetes does not
    answer."""

    def user_of(self, token: str) -> User | None:
        """Return whose token this is, if it is valid for `settings.API_AUDIENCE`."""

    def namespaces_of(self, user: User) -> frozenset[str] | None:
        """Return the namespaces in which the user may list IPUJobs; None: in all."""


def authority() -> Authority:
    """Return the authority of this installation."""
    make = cast("Callable[[], Authority]", import_string(settings.CLUSTER_AUTHORITY))
    return make()


@dataclass
class ServiceAccount:
    """A ServiceAccount as the user of a request; it has no row, no session and no rights to
    write."""

    user: User
    is_authenticated: ClassVar[bool] = True
    is_anonymous: ClassVar[bool] = False
    is_active: ClassVar[bool] = True
    is_staff: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return self.user.username.removeprefix(_PREFIX).replace(":", "/", 1)

    @property
    def pk(self) -> str:
        """Return the key that identifies the account where Django expects a row's."""
        return self.user.username

    def get_username(self) -> str:
        """Return the name in Kubernetes."""
        return self.user.username


def find_account(token: str) -> ServiceAccount | None:
    """Return the ServiceAccount of a token; None if the token is not valid, or a person's.

    Raises ClusterAway.
    """
    user = authority().user_of(token)
    return ServiceAccount(user) if user and user.username.startswith(_PREFIX) else None
