"""A question reads the smallest tables of sums that know all its dimensions."""

from __future__ import annotations

import pytest

from usage.sums.pieces import table_of, tables_of


@pytest.mark.parametrize(
    ("dimensions", "want_table"),
    [
        ((), "usage_kind"),
        (("group",), "usage_kind"),
        (("namespace", "instance_type", "component"), "usage_kind"),
        (("user",), "usage_user"),
        (("group", "user", "namespace"), "usage_user"),
        (("user", "component"), "usage_usage"),
        (("user", "instance_type", "group"), "usage_usage"),
    ],
)
def test_the_smallest_sums_that_know_all_dimensions_are_read(
    dimensions: tuple[str, ...], want_table: str
) -> None:
    assert table_of(dimensions) == want_table


@pytest.mark.parametrize(
    ("dimensions", "want_table", "want_kept"),
    [
        ((), "usage_group", True),
        (("group", "namespace"), "usage_group", True),
        (("group", "component"), "usage_kind", True),
        (("user",), "usage_user", False),
        (("user", "component"), "usage_usage", False),
    ],
)
def test_hours_by_group_have_sums_of_their_own_and_hours_by_user_are_not_kept(
    dimensions: tuple[str, ...], want_table: str, want_kept: bool
) -> None:
    tables = tables_of(dimensions)
    assert (tables.hours, tables.keeps_hours) == (want_table, want_kept)
    assert (tables.partitions.hours == "usage_partitionkind") == want_kept
