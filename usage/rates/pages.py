"""glue: the page of rates: shows prices, sets a price, ends a price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Q
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from ipuhub.web.access import require_accountant, signed_in
from ipuhub.web.audit import RATE, AuditEvent, audited, author_of, differences
from ipuhub.web.problems import takes
from ipuhub.web.refusals import note_mistakes
from usage.models import Rate
from usage.rates.preview import preview
from usage.rates.pricing import Price, overlap, sentence
from usage.time.windows import local_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date, datetime
    from decimal import Decimal

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

    from ipuhub.web.audit import Author


def set_rate(rate: Rate, by: str, now: datetime) -> Rate:
    """Store a new rate set by `by`. Raises ValidationError by field."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                # Who sets a rate of the same thing at the same time waits, and then sees this rate.
                cursor.execute("LOCK TABLE usage_rate IN SHARE ROW EXCLUSIVE MODE")
            check_rate(rate, by, now)
            rate.save(force_insert=True)
    except IntegrityError as error:
        if "rate_once_a_day" not in str(error):
            raise
        raise _once_a_day(rate) from error
    return rate


def check_rate(rate: Rate, by: str, now: datetime) -> Rate:
    """Return `rate` as `by` would set it, without storing it. Raises ValidationError by field."""
    rate.created_by, rate.created_at = by, now
    rate.name = rate.name.strip()
    _check_name(rate)
    rate.clean_fields()
    if rate.price < 0:
        raise ValidationError({"price": "The price must not be negative."})
    if rate.valid_until and rate.valid_until <= rate.valid_from:
        raise ValidationError({"valid_until": "The end must be after the first day."})
    same = _held().filter(resource=rate.resource, name=rate.name)
    same = same.filter(Q(valid_until=None) | Q(valid_until__gt=rate.valid_from))
    if rate.valid_until:
        same = same.filter(valid_from__lt=rate.valid_until)
    if same.exists():
        raise _once_a_day(rate)
    if found := overlap(price_of(rate), map(price_of, _held())):
        raise ValidationError({"resource": sentence(found)})
    return rate


def _held() -> QuerySet[Rate]:
    """Return the rates that hold on any day."""
    return Rate.objects.filter(Q(valid_until=None) | Q(valid_until__gt=F("valid_from")))


def _once_a_day(rate: Rate) -> ValidationError:
    return ValidationError(
        {
            "valid_from": f"Another rate of {rate} applies on one of these days. End it first, "
            "or choose other days."
        }
    )


def price_of(rate: Rate) -> Price:
    """Return a rate as tariffs have it."""
    return Price(rate.resource, rate.name, rate.price, rate.valid_from, rate.valid_until)


def overlapping_rates(rates: Iterable[Rate]) -> list[tuple[Rate, str]]:
    """Return the rates that count the same hours as another rate, each with a message.

    Older releases allowed them.
    """
    held = [each for each in rates if not each.valid_until or each.valid_until > each.valid_from]
    prices = [price_of(each) for each in held]
    found = ((each, overlap(price_of(each), prices)) for each in held)
    return [(each, sentence(other)) for each, other in found if other]


def end_rate(rate: Rate, until: date, by: str, now: datetime) -> Rate:
    """End `rate` on the day before `until`. Raises ValidationError.

    A closed month keeps the prices that it was closed with, whatever the day.
    """
    if until < rate.valid_from:
        raise ValidationError(
            {"valid_until": f"The rate begins on {rate.valid_from} and cannot end before that day."}
        )
    if rate.valid_until and until > rate.valid_until:
        sentence = f"The rate ends on {rate.valid_until} already: set a new rate after it."
        raise ValidationError({"valid_until": sentence})
    rate.valid_until, rate.ended_by, rate.ended_at = until, by, now
    rate.save(update_fields=["valid_until", "ended_by", "ended_at"])
    return rate


def set_rate_of(author: Author, rate: Rate) -> Rate:
    """Store a new rate, with an entry in the audit. Raises ValidationError by field."""
    given = (rate.resource, rate.name.strip())
    event = AuditEvent(RATE, "create", " ".join(given).strip(), fields=_new_fields(rate))
    with audited(author, event):
        return set_rate(rate, author.name, timezone.now())


def end_rate_of(author: Author, rate: Rate, until: date) -> Rate:
    """End a rate, with an entry in the audit. Raises ValidationError."""
    event = AuditEvent(RATE, "end", f"{rate.resource} {rate.name}".strip())
    with audited(author, event):
        rate.refresh_from_db(from_queryset=Rate.objects.select_for_update())
        event.fields = [("valid_until", rate.valid_until, until)]
        event.is_change = rate.valid_until != until
        return end_rate(rate, until, author.name, timezone.now()) if event.is_change else rate


def _new_fields(rate: Rate) -> list[tuple[str, object, object]]:
    """Return the fields of a new rate, with the price that it follows."""
    same = Rate.objects.filter(resource=rate.resource, name=rate.name.strip())
    followed = same.filter(valid_until=rate.valid_from).order_by("-valid_from").first()
    before = {"price": followed.price} if followed else {}
    names = ("price", "valid_from", "valid_until")
    return differences(before, {name: getattr(rate, name) for name in names})


def _check_name(rate: Rate) -> None:
    named = rate.resource in {Rate.Resource.ACCELERATOR, Rate.Resource.INSTANCE}
    if named and not rate.name:
        raise ValidationError({"name": "Enter the name of the accelerator or instance type."})
    if rate.name and not named:
        raise ValidationError({"name": "Only accelerators and instance types have a name."})
    if "\0" in rate.name or len(rate.name) > 253:
        raise ValidationError({"name": "A name may have at most 253 characters and no zero byte."})


class RateForm(forms.Form):
    """A new rate."""

    resource = forms.ChoiceField(choices=Rate.Resource.choices)
    name = forms.CharField(required=False, max_length=253)
    price = forms.DecimalField(min_value=0, max_digits=18, decimal_places=6)
    valid_from = forms.DateField()
    valid_until = forms.DateField(required=False)

    @property
    def rate(self) -> Rate:
        """The requested rate, not stored."""
        return Rate(**self.cleaned_data)


class EndForm(forms.Form):
    """The end of a rate."""

    valid_until = forms.DateField(
        error_messages=dict.fromkeys(
            ("required", "invalid"), "Enter the first day without the rate, for example 2026-12-01."
        )
    )


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
@takes()
def rates(request: HttpRequest) -> HttpResponse:
    """Show all rates; POST previews a rate on last month, and with `save` sets it.

    Raises PermissionDenied.
    """
    require_accountant(request.user)
    now = timezone.now()
    form = RateForm(request.POST if request.method == "POST" else None)
    by = request.user.get_username()
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        try:
            if request.POST.get("save") == "yes":
                rate = set_rate_of(author_of(request), form.rate)
                messages.success(request, f"{rate.get_resource_display()}: rate saved.")
                return redirect("usage:rates")
            rate = check_rate(form.rate, by, now)
            context["preview"] = preview(rate, now, settings.REPORT_ZONE)
        except ValidationError as error:
            for field, sentences in error.message_dict.items():
                form.add_error(field, sentences)
    note_mistakes(request, form)
    return _show(request, context, 400 if form.errors else 200)


@require_POST
@signed_in
def end(request: HttpRequest, pk: int) -> HttpResponse:
    """End a rate and return to the page; an invalid day is shown again, with the reason.

    Raises PermissionDenied and Http404.
    """
    require_accountant(request.user)
    rate = get_object_or_404(Rate, pk=pk)
    form = EndForm(request.POST)
    if form.is_valid():
        day = form.cleaned_data["valid_until"]
        try:
            end_rate_of(author_of(request), rate, day)
        except ValidationError as error:
            form.add_error("valid_until", ValidationError(error.messages))
        else:
            return redirect("usage:rates")
    note_mistakes(request, form)
    return _show(request, {"form": RateForm(), "ending": rate.pk, "end_form": form}, 400)


def _show(request: HttpRequest, values: dict[str, Any], status: int) -> HttpResponse:
    today = local_day(timezone.now(), settings.REPORT_ZONE)
    found = Rate.objects.order_by("resource", "name", "-valid_from", "-id")
    prices = in_one_column([rate.price for rate in found])
    context = {
        "rates": [
            (rate, price, _state(rate, today)) for rate, price in zip(found, prices, strict=True)
        ],
        "doubled": overlapping_rates(found),
        "currency": settings.REPORT_CURRENCY,
        "zone": settings.REPORT_ZONE.key,
        "today": today,
    }
    return render(request, "usage/rates.html", context | values, status=status)


def in_one_column(prices: Sequence[Decimal]) -> list[str]:
    """Return prices, which are exact, with as many decimals as the finest of them, at least two."""
    places = (-int(price.normalize().as_tuple().exponent) for price in prices)
    decimals = max(2, *places) if prices else 2
    return [f"{price:,.{decimals}f}" for price in prices]


def _state(rate: Rate, today: date) -> str:
    if rate.valid_until is not None and rate.valid_until <= rate.valid_from:
        return "withdrawn"
    if rate.valid_from > today:
        return "to come"
    return "in force" if rate.valid_until is None or today < rate.valid_until else "over"
