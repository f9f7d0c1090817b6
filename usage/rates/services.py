"""glue: rates: setting a price and ending it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from usage.models import Rate

if TYPE_CHECKING:
    from datetime import date, datetime


def set_rate(rate: Rate, by: str, now: datetime) -> Rate:
    """Store a new rate, as set by `by`. Raises ValidationError, by field, for what cannot be."""
    rate.created_by, rate.created_at = by, now
    rate.name = rate.name.strip()
    _check_name(rate)
    rate.clean_fields()
    if rate.price < 0:
        raise ValidationError({"price": "A price is not negative."})
    if rate.valid_until and rate.valid_until <= rate.valid_from:
        raise ValidationError({"valid_until": "The first day without the rate is after its first."})
    try:
        with transaction.atomic():
            rate.save(force_insert=True)
    except IntegrityError as error:
        if "rate_once_a_day" not in str(error):
            raise
        raise ValidationError(
            {
                "valid_from": f"Another rate of {rate} holds on one of these days: end it first, "
                "or choose other days."
            }
        ) from error
    return rate


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
