"""A question reads the smallest table of sums that knows all its dimensions."""

from __future__ import annotations

import pytest

from usage.sums.pieces import table_of


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
