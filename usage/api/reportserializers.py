"""glue: serializers of month reports and their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from ipuhub.api.schema import body_example
from ipuhub.text import Figure
from usage.models import MonthReport, Rate, ReportRun
from usage.rates.pricing import money_of
from usage.reports.columns import PROFILES
from usage.reports.ranges import KINDS
from usage.time.months import bounds_of

if TYPE_CHECKING:
    from rest_framework.request import Request

    from usage.reports.review import Review


class FilesSerializer(serializers.Serializer[Any]):
    """URLs of a report's files; add `?profile=primehub` for PrimeHub's format."""

    summary = serializers.URLField(required=False)
    details = serializers.URLField(required=False)
    correction = serializers.URLField(required=False)


class TariffRateSerializer(serializers.Serializer[Any]):
    """One price per hour, `from` a day until the day before `until`."""

    resource = serializers.CharField()
    name = serializers.CharField()
    price = serializers.CharField()
    until = serializers.DateField(allow_null=True)

    def get_fields(self) -> dict[str, Any]:
        """Return the fields, with `from`, which is a word of Python."""
        return super().get_fields() | {"from": serializers.DateField()}


class OutdatedSerializer(serializers.Serializer[Any]):
    """The reason that figures are out of date: `rates` changed, or `corrections` were found.
    `again`: generating the file again updates it; closed months are never generated again."""

    reason = serializers.CharField()
    message = serializers.CharField()
    again = serializers.BooleanField()


def cost_of(report: MonthReport) -> Figure | None:
    """Return the sum of the summary's rows; None where nothing had a price."""
    money = money_of(report.cost, report.tariff)
    return Figure(money.amount) if money else None


class ReportSerializer(serializers.ModelSerializer[MonthReport]):
    """The newest report of a month, or a correction of a closed month (`number` 1 and up). `sha256`
    and `lines`: by file, without the header; details only if they are stored. A correction has one
    file, with the differences."""

    complete_until = serializers.DateTimeField(
        read_only=True,
        allow_null=True,
        help_text="Time up to which the watch of pods is complete; null: nothing was recorded.",
    )
    rows = serializers.IntegerField(source="lifetimes", help_text="Number of lines of the details.")
    sha256 = serializers.DictField(source="digests", child=serializers.CharField())
    lines = serializers.DictField(child=serializers.IntegerField())
    cost = serializers.SerializerMethodField()
    currency = serializers.SerializerMethodField()
    rates = serializers.SerializerMethodField()
    files = serializers.SerializerMethodField()
    outdated = OutdatedSerializer(
        many=True, read_only=True, help_text="Empty if the report is up to date."
    )
    note = serializers.SerializerMethodField(
        help_text="Why the month differs from the calendar of its time zone; usually empty."
    )

    class Meta:
        model = MonthReport
        fields = (
            "month",
            "version",
            "state",
            "zone",
            "first",
            "end",
            "generated_at",
            "complete_until",
            "rows",
            "sha256",
            "files",
            "lines",
            "number",
            "cause",
            "made_by",
            "cost",
            "currency",
            "rates",
            "outdated",
            "note",
        )

    def get_note(self, report: MonthReport) -> str:
        """Return the sentence about its bounds."""
        return bounds_of(report).note

    def get_cost(self, report: MonthReport) -> str | None:
        """Return the sum of the summary's rows; null where nothing had a price."""
        return cost_of(report)

    def get_currency(self, report: MonthReport) -> str:
        """Return the currency of its tariff."""
        return str(report.tariff.get("currency", ""))

    @extend_schema_field(TariffRateSerializer(many=True))
    def get_rates(self, report: MonthReport) -> list[dict[str, Any]]:
        """Return the prices that it was made with."""
        return list(report.tariff.get("rates", ()))

    @extend_schema_field(FilesSerializer)
    def get_files(self, report: MonthReport) -> dict[str, str]:
        """Return the addresses."""
        request: Request = self.context["request"]
        if report.number:
            place = reverse("usage-api:correction-file", args=[report.month, report.number])
            return {"correction": request.build_absolute_uri(place)}
        return {
            kind: request.build_absolute_uri(
                reverse("usage-api:report-file", args=[report.month, kind, "csv"])
            )
            for kind in ("summary", "details")
        }


class ReviewTotalsSerializer(serializers.Serializer[Any]):
    """Hours with five decimals."""

    ipu_hours = serializers.CharField()
    partition_ipu_hours = serializers.CharField()
    idle_ipu_hours = serializers.CharField()
    cpu_core_hours = serializers.CharField()
    memory_gib_hours = serializers.CharField()
    gpu_hours = serializers.CharField()
    pod_hours = serializers.CharField()


class ReviewStretchSerializer(serializers.Serializer[Any]):
    """A part of the month."""

    begin = serializers.DateTimeField()
    end = serializers.DateTimeField()


class ReviewGapSerializer(serializers.Serializer[Any]):
    """A part of the month in which objects may be missing in the record of pods, jobs or
    partitions."""

    record = serializers.ChoiceField(["pods", "jobs", "partitions"], source="what")
    begin = serializers.DateTimeField(source="began_at")
    end = serializers.DateTimeField(source="ended_at")
    cause = serializers.CharField()


class LateRecordSerializer(serializers.Serializer[Any]):
    """A record that ends before the month does."""

    record = serializers.ChoiceField(["jobs", "partitions"])
    complete_until = serializers.DateTimeField()


class UnpricedHoursSerializer(serializers.Serializer[Any]):
    """Hours of `resource` (as in rates) in a part of the month that no rate applies to, although
    other resources have a rate."""

    resource = serializers.CharField()
    hours = serializers.CharField()
    begin = serializers.DateTimeField()
    end = serializers.DateTimeField()


class ReviewSerializer(serializers.Serializer[Any]):
    """The newest report of a month that can be closed, and what to check.

    Gaps of the records, records that end too early, lifetimes with an estimated end, time without
    any rate, hours of resources without a rate, and newer rates or corrections.
    """

    month = serializers.CharField(source="report.month")
    version = serializers.IntegerField(source="report.version")
    generated_at = serializers.DateTimeField(source="report.generated_at")
    complete_until = serializers.DateTimeField(source="report.complete_until", allow_null=True)
    is_complete = serializers.BooleanField()
    totals = serializers.SerializerMethodField()
    cost = serializers.CharField(source="cost.amount", allow_null=True, default=None)
    currency = serializers.CharField(source="cost.currency", allow_null=True, default=None)
    pods = serializers.IntegerField()
    estimated = serializers.IntegerField()
    gaps = ReviewGapSerializer(many=True)
    late = serializers.SerializerMethodField()
    unpriced = serializers.SerializerMethodField()
    unpriced_hours = UnpricedHoursSerializer(many=True)
    outdated = OutdatedSerializer(many=True)
    concerns = serializers.ListField(
        child=serializers.CharField(),
        help_text="All findings as sentences; empty: nothing to check.",
    )

    @extend_schema_field(ReviewTotalsSerializer)
    def get_totals(self, review: Review) -> dict[str, str]:
        """Return the sums by name."""
        return {name: str(total) for name, _, total in review.totals}

    @extend_schema_field(LateRecordSerializer(many=True))
    def get_late(self, review: Review) -> Any:
        """Return the records of jobs and partitions that end too early."""
        late = [{"record": what, "complete_until": until} for what, until in review.late]
        return LateRecordSerializer(late, many=True).data

    @extend_schema_field(ReviewStretchSerializer(many=True))
    def get_unpriced(self, review: Review) -> Any:
        """Return the stretches."""
        stretches = [{"begin": a, "end": b} for a, b in review.unpriced]
        return ReviewStretchSerializer(stretches, many=True).data


class RunSerializer(serializers.ModelSerializer[ReportRun]):
    """One run: `done` of `months` are finished, or `done` of about `lines` of a range file. `file`:
    URL of the file until `expires_at`."""

    months = serializers.ListField(child=serializers.CharField(), read_only=True)
    file = serializers.SerializerMethodField()
    outdated = OutdatedSerializer(
        many=True,
        read_only=True,
        help_text="For the file of a range; empty if the file is up to date.",
    )

    class Meta:
        model = ReportRun
        fields = (
            "id",
            "state",
            "cause",
            "requested_by",
            "requested_at",
            "month",
            "months",
            "done",
            "started_at",
            "finished_at",
            "message",
            "close",
            "kind",
            "profile",
            "begin",
            "end",
            "lines",
            "digest",
            "complete_until",
            "expires_at",
            "file",
            "outdated",
        )

    @extend_schema_field(serializers.URLField(allow_null=True))
    def get_file(self, run: ReportRun) -> str | None:
        """Return the address of the file; null where there is none."""
        if not run.has_file:
            return None
        request: Request = self.context["request"]
        return request.build_absolute_uri(reverse("usage-api:run-file", args=[run.pk]))


@body_example({"month": "2026-10", "close": True})
class RunRequestSerializer(serializers.Serializer[Any]):
    """The month to generate and whether to close it, or the range of a range file. Empty: this and
    last month, and corrections of closed months. `from` and `to` are days of the report zone (`to`
    is included) or instants (RFC 3339)."""

    month = serializers.CharField(required=False, allow_blank=True, default="", max_length=7)
    close = serializers.BooleanField(required=False, default=False)
    to = serializers.CharField(required=False, allow_blank=True, default="", max_length=40)
    kind = serializers.ChoiceField(choices=KINDS, required=False, default="summary")
    profile = serializers.ChoiceField(choices=sorted(PROFILES), required=False, default="default")

    def get_fields(self) -> dict[str, Any]:
        """Return the fields, with `from`, which is a word of Python."""
        begin = serializers.CharField(required=False, allow_blank=True, default="", max_length=40)
        return super().get_fields() | {"from": begin}


@body_example({"resource": "ipu", "name": "", "price": "1.25", "valid_from": "2026-11-01"})
class RateSerializer(serializers.ModelSerializer[Rate]):
    """The hourly price of a resource, from `valid_from` to the day before `valid_until`."""

    class Meta:
        model = Rate
        fields = (
            "id",
            "resource",
            "name",
            "price",
            "valid_from",
            "valid_until",
            "created_by",
            "created_at",
            "ended_by",
            "ended_at",
        )
        read_only_fields = ("created_by", "created_at", "ended_by", "ended_at")


class RatePreviewSerializer(serializers.Serializer[Any]):
    """The cost of last month's usage: currently, at the prices of the rate's first day without the
    rate, and with the rate; null without any rate. `problem`: why there are no figures; usually
    empty."""

    month = serializers.CharField()
    day = serializers.DateField(help_text="Day whose prices are used: the first day of the rate.")
    currency = serializers.CharField(source="having.currency", allow_null=True, default=None)
    cost_now = serializers.CharField(source="now.amount", allow_null=True, default=None)
    cost_without = serializers.CharField(source="without.amount", allow_null=True, default=None)
    cost_with = serializers.CharField(source="having.amount", allow_null=True, default=None)
    adds = serializers.CharField(allow_null=True)
    hours = serializers.CharField(
        allow_null=True,
        help_text="Hours that the rate applies to; null for accelerators and instance types.",
    )
    problem = serializers.CharField()


@body_example({"valid_until": "2026-12-01"})
class RateEndSerializer(serializers.Serializer[Any]):
    """The first day on which the rate no longer applies. The rate's own first day: the rate never
    applied."""

    valid_until = serializers.DateField()
