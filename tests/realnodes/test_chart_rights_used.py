"""What only the chart grants is what its processes use on real nodes: a right more fails here.

The rights that the demo grants as well are judged by e2e/test_rights_used; test_chart_values says
that they are the same. A right less is a denial.

Judged by the API server's audit log of all that ran before, so this runs last. IPUHUB_TEST_AUDIT
names the log; `audit-policy.yaml` is the policy that it needs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chart.test_chart_rights import ACTING
from tests.realnodes.rights import Audit, rights_of_the_chart_alone


@pytest.fixture(scope="module")
def audit() -> Audit:
    return Audit(Path(os.environ["IPUHUB_TEST_AUDIT"]))


def test_each_right_of_the_chart_alone_is_used(audit: Audit) -> None:
    assert sorted(rights_of_the_chart_alone(*ACTING) - audit.used) == []


def test_no_account_was_denied_anything(audit: Audit) -> None:
    assert audit.denials_with_rights() == []
