"""glue: the caller's subscriptions in the API, with the rules of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from django.core.exceptions import ValidationError as Refused
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from dashboard.notify.events import EVENTS
from dashboard.notify.outbox import MAIL, WEBHOOK
from dashboard.notify.subscriptions import (
    MINUTES,
    TEXT,
    SubscriptionForm,
    delete,
    pause,
    resume,
    retry_failed,
    send_test,
    subscribe,
)
from ipuhub.api.idempotency import SecretField, idempotent
from ipuhub.api.parsing import read_body, read_form
from ipuhub.api.schema import NoBodySerializer, body_example
from ipuhub.api.views import FileList, PlainView
from ipuhub.models import Subscription
from ipuhub.web.audit import author_of
from ipuhub.web.columns import file_columns

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet
    from rest_framework.request import Request

_NONE = "You have no such subscription."


@body_example(
    {
        "event": "job-waiting",
        "channel": "webhook",
        "target": "https://chat.example.com/hook",
        "minutes": 30,
    }
)
class SubscriptionSerializer(serializers.ModelSerializer[Subscription]):
    """A subscription. Empty `job_user`, `group` and `namespace`: all jobs that the user may see."""

    event = serializers.ChoiceField(choices=[(key, key) for key in EVENTS])
    channel = serializers.ChoiceField(choices=[(key, key) for key in (WEBHOOK, MAIL)])
    target = serializers.CharField(max_length=2000, help_text="URL, or mail address.")
    job_user = serializers.CharField(max_length=TEXT, allow_blank=True, required=False)
    group = serializers.CharField(max_length=TEXT, allow_blank=True, required=False)
    namespace = serializers.CharField(max_length=63, allow_blank=True, required=False)
    minutes = serializers.IntegerField(
        min_value=0, max_value=MINUTES, required=False, help_text="Of `job-waiting`; else 0."
    )

    class Meta:
        model = Subscription
        fields: ClassVar = [
            "id",
            "event",
            "channel",
            "target",
            "job_user",
            "group",
            "namespace",
            "minutes",
            "is_paused",
            "created_at",
        ]
        read_only_fields: ClassVar = ["id", "is_paused", "created_at"]


class NewSubscriptionSerializer(SubscriptionSerializer):
    """A new subscription, with the secret that signs its webhooks (empty for mail)."""

    secret = SecretField()

    class Meta(SubscriptionSerializer.Meta):
        fields: ClassVar = [*SubscriptionSerializer.Meta.fields, "secret"]


@body_example({"is_paused": True})
class PauseSerializer(serializers.Serializer[Any]):
    """The switch that pauses messages."""

    is_paused = serializers.BooleanField()


class QueuedSerializer(serializers.Serializer[Any]):
    """The number of queued messages. They are sent within a minute; the list of notifications has
    the answers."""

    queued = serializers.IntegerField()


COLUMNS: Final = file_columns(SubscriptionSerializer.Meta.fields)


class SubscriptionList(FileList[Subscription]):
    """The caller's subscriptions, newest first."""

    queryset = Subscription.objects.none()
    serializer_class = SubscriptionSerializer
    ordering = ("created_at", "id")
    columns = COLUMNS
    file_name = "subscriptions"

    def get_queryset(self) -> QuerySet[Subscription]:
        """Return the caller's subscriptions."""
        return _own(self.request)

    @extend_schema(
        operation_id="subscriptions_list", summary="Subscriptions", tags=["notifications"]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The caller's subscriptions, newest first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="subscriptions_create",
        summary="Subscribe",
        tags=["notifications"],
        responses={201: NewSubscriptionSerializer},
    )
    @idempotent()
    def post(self, request: Request) -> Response:
        """Subscribe. Raises ValidationError."""
        user = cast("User", request.user)
        given = read_form(SubscriptionForm(user, read_body(SubscriptionSerializer, request)))
        try:
            made = subscribe(author_of(request), given)
        except Refused as error:
            raise ValidationError({"non_field_errors": error.messages}) from error
        return Response(NewSubscriptionSerializer(made).data, status=status.HTTP_201_CREATED)


class OneSubscription(PlainView):
    """One of the caller's subscriptions."""

    @extend_schema(
        operation_id="subscriptions_retrieve",
        summary="A subscription",
        tags=["notifications"],
        responses=SubscriptionSerializer,
    )
    def get(self, request: Request, pk: int) -> Response:
        """One of the caller's subscriptions. Raises Http404."""
        return Response(SubscriptionSerializer(_find(request, pk)).data)

    @extend_schema(
        operation_id="subscriptions_pause",
        summary="Pause or resume a subscription",
        tags=["notifications"],
        request=PauseSerializer,
        responses=SubscriptionSerializer,
    )
    @idempotent()
    def patch(self, request: Request, pk: int) -> Response:
        """Pause or resume one of the caller's subscriptions. What happens during the pause is not
        sent later. Raises Http404 and ValidationError."""
        found = _find(request, pk)
        fields = read_body(PauseSerializer, request)
        (pause if fields["is_paused"] else resume)(author_of(request), found)
        return Response(SubscriptionSerializer(_find(request, pk)).data)

    @extend_schema(
        operation_id="subscriptions_delete",
        summary="Unsubscribe",
        tags=["notifications"],
        responses={204: None},
    )
    @idempotent()
    def delete(self, request: Request, pk: int) -> Response:
        """Delete one of the caller's subscriptions and its log. Raises Http404 and
        ValidationError."""
        found = _find(request, pk)
        read_body(NoBodySerializer, request)
        delete(author_of(request), found)
        return Response(status=status.HTTP_204_NO_CONTENT)


class TestSubscription(PlainView):
    """A test message of one of the caller's subscriptions."""

    @extend_schema(
        operation_id="subscriptions_test",
        summary="Send a test",
        tags=["notifications"],
        request=None,
        responses={202: QueuedSerializer},
    )
    @idempotent()
    def post(self, request: Request, pk: int) -> Response:
        """Queue a test message. Raises Http404 and ValidationError."""
        found = _find(request, pk)
        read_body(NoBodySerializer, request)
        send_test(found)
        return _queued(1)


class RetrySubscription(PlainView):
    """The messages of one of the caller's subscriptions that were given up."""

    @extend_schema(
        operation_id="subscriptions_retry",
        summary="Retry failed messages",
        tags=["notifications"],
        request=None,
        responses={202: QueuedSerializer},
    )
    @idempotent()
    def post(self, request: Request, pk: int) -> Response:
        """Queue the messages again that were given up. Raises Http404 and ValidationError."""
        found = _find(request, pk)
        read_body(NoBodySerializer, request)
        return _queued(retry_failed(found))


def _queued(count: int) -> Response:
    data = QueuedSerializer({"queued": count}).data
    return Response(data, status=status.HTTP_202_ACCEPTED)


def _own(request: Request) -> QuerySet[Subscription]:
    return Subscription.objects.filter(owner__username=request.user.get_username())


def _find(request: Request, pk: int) -> Subscription:
    found = _own(request).filter(pk=pk).first()
    if found is None:
        raise Http404(_NONE)
    return found
