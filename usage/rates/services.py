"""glue: rates: setting a price and ending it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Q

from usage.models import Rate
from usage.rates.overlaps import overlap, sentence
from usage.rates.tariff import Price

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date, datetime

    from django.db.models import QuerySet


def set_rate(rate: Rate, by: str, now: datetime) -> Rate:
    """Store a new rate, as set by `by`. Raises ValidationError, by field, for what cannot be."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                # Who sets a rate of the same thing at the same time waits, and then sees this one.
                cursor.execute("LOCK TABLE usage_rate IN SHARE ROW EXCLUSIVE MODE")
            check_rate(rate, by, now)
            rate.save(force_insert=True)
    except IntegrityError as error:
        if "rate_once_a_day" not in str(error):
            raise
        raise _once_a_day(rate) from error
    return rate


def check_rate(rate: Rate, by: str, now: datetime) -> Rate:
    """Return `rate`, not stored yet, as it would be set by `by`. Raises ValidationError, by field,
    for what cannot be."""
    rate.created_by, rate.created_at = by, now
    rate.name = rate.name.strip()
    _check_name(rate)
    rate.clean_fields()
    if rate.price < 0:
        raise ValidationError({"price": "A price is not negative."})
    if rate.valid_until and rate.valid_until <= rate.valid_from:
        raise ValidationError({"valid_until": "The first day without the rate is after its first."})
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
            "valid_from": f"Another rate of {rate} holds on one of these days: end it first, "
            "or choose other days."
        }
    )


def price_of(rate: Rate) -> Price:
    """Return a rate as tariffs have it."""
    return Price(rate.resource, rate.name, rate.price, rate.valid_from, rate.valid_until)


def doubled(rates: Iterable[Rate]) -> list[tuple[Rate, str]]:
    """Return the rates that count beside another for the same hours, each with a sentence: older
    releases let them be set."""
    held = [each for each in rates if not each.valid_until or each.valid_until > each.valid_from]
    prices = [price_of(each) for each in held]
    found = ((each, overlap(price_of(each), prices)) for each in held)
    return [(each, sentence(other)) for each, other in found if other]


def end_rate(rate: Rate, until: date, by: str, now: datetime) -> Rate:
    """Let `rate` hold until the day before `until`. Raises ValidationError.

    A closed month keeps what it was closed with, whatever day that is.
    """
    if until < rate.valid_from:
        raise ValidationError(
            {"valid_until": f"The rate begins on {rate.valid_from}: it can end then, or later."}
        )
    if rate.valid_until and until > rate.valid_until:
        raise ValidationError(
            {"valid_until": f"The rate ends on {rate.valid_until} already: set a new one after it."}
        )
    rate.valid_until, rate.ended_by, rate.ended_at = until, by, now
    rate.save(update_fields=["valid_until", "ended_by", "ended_at"])
    return rate


def _check_name(rate: Rate) -> None:
    named = rate.resource in {Rate.Resource.ACCELERATOR, Rate.Resource.INSTANCE}
    if named and not rate.name:
        raise ValidationError({"name": "Give the name of the accelerator or instance type."})
    if rate.name and not named:
        raise ValidationError({"name": "Only accelerators and instance types have a name."})
    if "\0" in rate.name or len(rate.name) > 253:
        raise ValidationError({"name": "A name has at most 253 characters, no zero byte."})
