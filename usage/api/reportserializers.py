"""glue: the shape of month reports and their runs in the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from usage.models import MonthReport, ReportRun

if TYPE_CHECKING:
    from rest_framework.request import Request


class FilesSerializer(serializers.Serializer[Any]):
    """Addresses of a report's files; add `?profile=primehub` for that product's form."""

    summary = serializers.URLField()
    details = serializers.URLField()


class ReportSerializer(serializers.ModelSerializer[MonthReport]):
    """One month's newest report. `sha256`: by file; details only where they are stored."""

    complete_until = serializers.DateTimeField(
        read_only=True,
        allow_null=True,
        help_text="Until when the watch of pods had seen everything; null: nobody watched.",
    )
    rows = serializers.IntegerField(source="lifetimes", help_text="Lines of the details.")
    sha256 = serializers.DictField(source="digests", child=serializers.CharField())
    files = serializers.SerializerMethodField()

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
        )

    @extend_schema_field(FilesSerializer)
    def get_files(self, report: MonthReport) -> dict[str, str]:
        """Return the addresses."""
        request: Request = self.context["request"]
        return {
            kind: request.build_absolute_uri(
                reverse("usage-api:report-file", args=[report.month, kind])
            )
            for kind in ("summary", "details")
        }


class RunSerializer(serializers.ModelSerializer[ReportRun]):
    """One run; `done` of `months` are made."""

    months = serializers.ListField(child=serializers.CharField(), read_only=True)

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
        )


class RunRequestSerializer(serializers.Serializer[Any]):
    """Which month to make; empty: this and last month."""

    month = serializers.CharField(required=False, allow_blank=True, default="", max_length=7)
