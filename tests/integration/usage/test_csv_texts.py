"""PostgreSQL guards the texts of a report's file exactly as Python guards the texts of a list."""

from __future__ import annotations

import random

import pytest
from django.db import connection

from ipuhub.text import safe_cell, safe_cell_sql
from tests.builders.oddnames import ODD_NAMES

pytestmark = pytest.mark.django_db
ALPHABET = "0123456789eE.,-+_ :/%()$€£¥'\"#<>=@\t\r\n\u00a0\u202fkKſıapmnNiIdfxé界"
PARTS = ("mar", "Sept", "DEC", "may", "june", "true", "FALSE", "na", "n/a", "null", "inf", "1.#IND")
UID = "12345678-1234-1234-1234-123456789012"


def texts() -> list[str]:
    chance = random.Random(7)
    made = [
        "".join(chance.choices([*ALPHABET, *PARTS], k=chance.randint(0, 6))) for _ in range(4000)
    ]
    return [*ODD_NAMES.values(), *PARTS, UID, UID[:-1], UID.replace("-", "e"), *made]


def test_both_guard_the_same_texts() -> None:
    given = texts()
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {safe_cell_sql('name')} FROM unnest(%s::text[]) WITH ORDINALITY"
            " AS given (name, number) ORDER BY number",
            [given],
        )
        cells = [cell or "" for (cell,) in cursor.fetchall()]
    differing = [
        (text, cell) for text, cell in zip(given, cells, strict=True) if cell != safe_cell(text)
    ]
    assert differing == []
    assert 500 < sum(cell.startswith("'") for cell in cells) < 4000
