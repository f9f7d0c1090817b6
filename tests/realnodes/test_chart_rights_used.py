"""On real nodes the chart's processes use all rights that only the chart grants: a superfluous
right fails here.

e2e/test_rights_used checks the rights that the demo grants as well; test_chart_values checks that
they are the same. A missing right is a denial.

The check reads the API server's audit log of all previous tests, so it runs last. IPUHUB_TEST_AUDIT
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
