"""glue: lifetimes summed by span: sums of `usage.models.sums` of the days of a third of a month.

`span` is the first of these days. Made from the sums of days, in the same transaction.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from usage.models.sums import (
    KIND_KEY,
    PARTITION_KEY,
    POD_KEY,
    USER_KEY,
    FullSums,
    KindSums,
    PartitionSums,
    UserSums,
)


class UsageSpan(FullSums):
    """The sum of `UsageDay`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["span", *POD_KEY], name="usage_span_once")
        ]

    def __str__(self) -> str:
        return f"from {self.span} {self.namespace}/{self.group}/{self.user}"


class KindSpan(KindSums):
    """The sum of `KindDay`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["span", *KIND_KEY], name="kind_span_once")
        ]

    def __str__(self) -> str:
        return f"from {self.span} {self.namespace}/{self.group}"


class UserSpan(UserSums):
    """The sum of `UserDay`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["span", *USER_KEY], name="user_span_once")
        ]

    def __str__(self) -> str:
        return f"from {self.span} {self.namespace}/{self.group}"


class PartitionSpan(PartitionSums):
    """The sum of `PartitionDay`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["span", *PARTITION_KEY], name="partition_span_once")
        ]

    def __str__(self) -> str:
        return f"from {self.span} {self.namespace}/{self.group}/{self.user}"
