"""glue: the page of rates: what an hour costs, since when, and who said so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from ipuhub.web.access import require_accountant
from ipuhub.web.requests import signed_in
from usage.models import Rate
from usage.rates.preview import preview
from usage.rates.services import check_rate, doubled, end_rate, set_rate
from usage.time.windows import local_day

if TYPE_CHECKING:
    from datetime import date

    from django.http import HttpRequest, HttpResponse


class RateForm(forms.Form):
    """A new rate."""

    resource = forms.ChoiceField(choices=Rate.Resource.choices)
    name = forms.CharField(required=False, max_length=253)
    price = forms.DecimalField(min_value=0, max_digits=18, decimal_places=6)
    valid_from = forms.DateField()
    valid_until = forms.DateField(required=False)

    @property
    def rate(self) -> Rate:
        """The rate that was asked for, not stored."""
        return Rate(**self.cleaned_data)


class EndForm(forms.Form):
    """The end of a rate."""

    valid_until = forms.DateField(
        error_messages=dict.fromkeys(
            ("required", "invalid"), "Give the first day without the rate, such as 2026-12-01."
        )
    )


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def rates(request: HttpRequest) -> HttpResponse:
    """Show all rates; a POST shows what one would have made of last month, and with `save` sets it.

    Raises PermissionDenied.
    """
    require_accountant(request.user)
    now = timezone.now()
    form, by = RateForm(request.POST or None), request.user.get_username()
    shown: dict[str, Any] = {"form": form}
    if form.is_valid():
        try:
            if request.POST.get("save") == "yes":
                rate = set_rate(form.rate, by, now)
                messages.success(request, f"{rate.get_resource_display()}: the rate is set.")
                return redirect("usage:rates")
            rate = check_rate(form.rate, by, now)
            shown["preview"] = preview(rate, now, settings.REPORT_ZONE)
        except ValidationError as error:
            for field, sentences in error.message_dict.items():
                form.add_error(field, sentences)
    return _show(request, shown, 400 if form.errors else 200)


@require_POST
@signed_in
def end(request: HttpRequest, pk: int) -> HttpResponse:
    """End a rate and go back to the page; a day that is refused stands there again, with the
    reason. Raises PermissionDenied and Http404."""
    require_accountant(request.user)
    rate = get_object_or_404(Rate, pk=pk)
    form = EndForm(request.POST)
    if form.is_valid():
        day = form.cleaned_data["valid_until"]
        try:
            end_rate(rate, day, request.user.get_username(), timezone.now())
        except ValidationError as error:
            form.add_error("valid_until", ValidationError(error.messages))
        else:
            return redirect("usage:rates")
    return _show(request, {"form": RateForm(), "ending": rate.pk, "end_form": form}, 400)


def _show(request: HttpRequest, shown: dict[str, Any], status: int) -> HttpResponse:
    today = local_day(timezone.now(), settings.REPORT_ZONE)
    found = Rate.objects.order_by("resource", "name", "-valid_from", "-id")
    context = {
        "rates": [(rate, _state(rate, today)) for rate in found],
        "doubled": doubled(found),
        "currency": settings.REPORT_CURRENCY,
        "zone": settings.REPORT_ZONE.key,
        "today": today,
    }
    return render(request, "usage/rates.html", context | shown, status=status)


def _state(rate: Rate, today: date) -> str:
    if rate.valid_until is not None and rate.valid_until <= rate.valid_from:
        return "withdrawn"
    if rate.valid_from > today:
        return "to come"
    return "in force" if rate.valid_until is None or today < rate.valid_until else "over"
