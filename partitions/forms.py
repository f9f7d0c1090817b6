"""glue: the size that `/query` is asked about, judged with sentences."""

from __future__ import annotations

from typing import Any, Final

from django import forms

LARGEST: Final = 2**31 - 1
MESSAGES: Final[dict[str, Any]] = {
    "required": "Give a number of IPUs, for example 4.",
    "invalid": "A size is a whole number of IPUs, for example 4.",
    "min_value": "A partition has at least 1 IPU.",
    "max_value": f"A size is at most {LARGEST}.",
}


class SizeForm(forms.Form):
    """One size, from 1; whether a partition can have it is the answer's to say."""

    size = forms.IntegerField(min_value=1, max_value=LARGEST, error_messages=MESSAGES)
