"""glue: filters of a list, shared by its page, exports and API.

A filter class is a django-filter FilterSet over `Filters`. Invalid parameters are rejected with a
sentence (400), never ignored. A namespace that the user may not see is rejected (403) instead of
returning an empty list.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

import django_filters
from django import forms
from django.core.exceptions import ValidationError
from django.utils.safestring import mark_safe

from ipuhub.times import read_day_or_instant
from ipuhub.web.access import require_namespaces, scope_of, usage_scope_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.db.models import Model, QuerySet
    from django.http import QueryDict
    from django.utils.safestring import SafeString

    from ipuhub.web.keyset import Order

    _M = TypeVar("_M", bound=Model)

_YES_NO = {None: None, "": None, "true": True, "false": False}
MOST_VALUES: Final = 100
LONGEST_VALUE: Final = 500
LONGEST_CURSOR: Final = 16_000
TOTAL: Final = "total"
OF_THE_LIST = frozenset({"cursor", "page_size", "format", TOTAL})
"""Parameters that are no filters."""
SORT = "sort"
PAGE: Final = "page"
_PAGE_DIGITS: Final = 9
NONE: Final = "(none)"
"""As the value of a filter: what has no value."""
_NAMED_NONE: Final = re.compile(r"\\*\(none\)")


def filter_value(text: str) -> str:
    r"""Return the value that a filter's text stands for: `\(none)` is a group named `(none)`."""
    if text == NONE:
        return ""
    return text.removeprefix("\\") if _NAMED_NONE.fullmatch(text) else text


def filter_text(value: str) -> str:
    """Return the text that stands for a value, in a filter and on the page, which `filter_value`
    reads."""
    if not value:
        return NONE
    return f"\\{value}" if _NAMED_NONE.fullmatch(value) else value


class Mistake(NamedTuple):
    """An invalid parameter, and a sentence that does not repeat its name; no name: several
    parameters together."""

    name: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}" if self.name else self.sentence


class BadFilter(ValidationError):  # noqa: N818  # as Http404: the answer, not a bug
    """Invalid parameters; `messages` are sentences that begin with their names."""

    def __init__(self, *mistakes: Mistake) -> None:
        super().__init__([str(each) for each in mistakes])
        self.mistakes = mistakes


def refuse_unknown(
    params: Mapping[str, Sequence[str]],
    known: Collection[str],
    also_known: Callable[[str], bool] | None = None,
) -> None:
    """Raise BadFilter for unknown parameters and for values that are too long."""
    listed = f"Valid parameters: {', '.join(sorted(known))}." if known else "There are none here."
    mistakes = [
        Mistake(name[:80], f"unknown parameter. {listed}")
        for name in sorted(params)
        if name not in known and not (also_known and also_known(name))
    ]
    for name, values in params.items():
        longest = LONGEST_CURSOR if name == "cursor" else LONGEST_VALUE
        if any("\0" in value or len(value) > longest for value in values):
            mistakes.append(Mistake(name[:80], f"at most {longest} characters and no zero byte."))
        if len(values) > MOST_VALUES:
            mistakes.append(Mistake(name[:80], f"at most {MOST_VALUES} values at once."))
    if mistakes:
        raise BadFilter(*mistakes)


def wants_total(text: str) -> bool:
    """Return whether a CSV is to end with its line of totals. Raises BadFilter."""
    if text not in {"", "yes", "no"}:
        raise BadFilter(Mistake(TOTAL, f"must be yes or no, not {text[:80]!r}."))
    return text != "no"


def read_page_number(text: str) -> int:
    """Return the page that `?page=` names, the first without one. Raises BadFilter.

    One beyond the last page is valid, since lists shrink while they are read."""
    if not text:
        return 1
    if not (text.isascii() and text.isdecimal() and len(text) <= _PAGE_DIGITS and int(text)):
        sentence = f"{text[:50]!r} is not the number of a page: 1 or more."
        raise BadFilter(Mistake(PAGE, sentence))
    return int(text)


class InstantField(forms.CharField):
    """A day (2026-11-21) or an instant (2026-11-21T10:00:00Z).

    Values without an offset are in `zone` (called at each use; default: UTC).

    With `end`, a day means its end, so that a range includes its last day.
    """

    def __init__(
        self, *, end: bool = False, zone: Callable[[], dt.tzinfo] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._end = end
        self._zone = zone

    def clean(self, value: Any) -> Any:
        """Return an aware instant, or None. Raises ValidationError."""
        text = super().clean(value)
        if not text:
            return None
        try:
            zone = self._zone() if self._zone else dt.UTC
            return read_day_or_instant(text, zone, end=self._end)
        except (ValueError, OverflowError):
            raise ValidationError(
                f"{text!r} is not a date. Use 2026-11-21 or 2026-11-21T10:00:00Z."
            ) from None


class InstantFilter(django_filters.Filter):  # type: ignore[misc]
    """Filter from a day or instant (`lookup_expr="gte"`), or up to it (`"lt"`, `end=True`)."""

    field_class = InstantField

    def __init__(self, *arguments: Any, **options: Any) -> None:
        kind = "date" if options.pop("date_input", True) else "text"
        widget = forms.TextInput(attrs={"type": kind})
        super().__init__(*arguments, **{"widget": widget, **options})


class AnyOfWidget(forms.TextInput):
    """One input for each value."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        """Return all values of the parameter."""
        del files
        listed = data.getlist(name) if hasattr(data, "getlist") else [data.get(name)]
        return [text for text in listed if text]

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        """Return the inputs; only the first has the label's id."""
        first, *others = value or [""]
        inputs = [super().render(name, first, attrs, renderer)]
        bare = {key: text for key, text in (attrs or {}).items() if key != "id"}
        for text in others:
            own = forms.TextInput({**self.attrs, "id": None, "aria-label": f"{name}, or"})
            inputs.append(own.render(name, text, bare, renderer))
        return mark_safe("".join(inputs))  # noqa: S308  # each is escaped by Django


class AnyOfField(forms.Field):
    """Several texts, checked only for characters that a database cannot store; NONE is empty."""

    widget = AnyOfWidget

    def clean(self, value: Any) -> list[str]:
        """Return the texts. Raises ValidationError."""
        texts: list[str] = value or []
        if len(texts) > MOST_VALUES:
            raise ValidationError(f"at most {MOST_VALUES} values are allowed.")
        if any("\0" in text for text in texts):
            raise ValidationError("Null characters are not allowed.")
        return [filter_value(text) for text in texts]


class AnyOfFilter(django_filters.Filter):  # type: ignore[misc]
    """Filter for an exact value; if repeated in the URL, any of the values."""

    field_class = AnyOfField

    def filter(self, rows: QuerySet[_M], value: list[str]) -> QuerySet[_M]:
        return rows.filter(**{f"{self.field_name}__in": value}) if value else rows


class YesNoField(forms.NullBooleanField):
    """True, false, or either."""

    widget = forms.Select(choices=[("", "Any"), ("true", "Yes"), ("false", "No")])

    def clean(self, value: Any) -> bool | None:
        """Return it, None for either. Raises ValidationError, where Django would say either."""
        if value not in _YES_NO:
            raise ValidationError(f"{value!r} must be true or false.")
        return _YES_NO[value]


class YesNoFilter(django_filters.BooleanFilter):  # type: ignore[misc]
    """Filter for a boolean."""

    field_class = YesNoField


class Filters(django_filters.FilterSet):  # type: ignore[misc]
    """Base of all filter classes; also styles the controls of the page.

    A range is a pair of InstantFilters called `since` and `until`. `of_usage`: accountants may
    filter by any namespace. `sorts`: the orders that `?sort=` may name, by name; `-` before a name
    means descending. `suggested`: the filters whose inputs suggest values.
    """

    of_usage: ClassVar[bool] = False
    sorts: ClassVar[Mapping[str, Order]] = {}
    suggested: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for name, each in self.more_filters().items():
            each.parent, each.model = self, self._meta.model
            self.filters[name] = each
        for name, field in self.form.fields.items():
            select = isinstance(field.widget, forms.Select)
            field.widget.attrs["class"] = "form-select" if select else "form-control"
            field.widget.attrs["id"] = f"filter-{name}"
            if name in self.suggested:
                field.widget.attrs["list"] = f"suggested-{name}"

    def more_filters(self) -> dict[str, django_filters.Filter]:
        """Return filters that depend on settings or whose names are Python keywords."""
        return {}

    @property
    def is_filtered(self) -> bool:
        return any(self.data.get(name) for name in self.filters)

    @property
    def no_suggestions(self) -> dict[str, tuple[str, ...]]:
        """The suggestions before the first request: none."""
        return dict.fromkeys(self.suggested, ())

    @property
    def mistakes(self) -> list[Mistake]:
        """Return the mistakes of the parameters."""
        errors = self.form.errors.items()
        found = [Mistake(name, str(text)) for name, texts in errors for text in texts]
        since, until = (self.form.cleaned_data.get(name) for name in ("since", "until"))
        if since and until and since >= until:
            found.append(Mistake("until", "the range must end after it begins."))
        known = sorted(self.filters)
        unknown = sorted(set(self.data) - set(known) - OF_THE_LIST)
        if self.sorts and SORT in unknown:
            unknown.remove(SORT)
            found += bad_sort(self.sorts, self.sort)
        return found + [
            Mistake(name[:80], f"unknown parameter. Valid parameters: {', '.join(known)}.")
            for name in unknown
        ]

    @property
    def sort(self) -> str:
        """The order that the parameters name, empty without an order."""
        return self.data.get(SORT) or "" if self.sorts else ""


def bad_sort(sorts: Mapping[str, Order], name: str) -> list[Mistake]:
    """Return what is wrong with the name of an order."""
    if not name or name.removeprefix("-") in sorts:
        return []
    remedy = f"Put - before it for descending order, as in {SORT}=-{next(iter(sorts))}."
    return [Mistake(SORT, f"{name[:50]!r} is not one of {', '.join(sorts)}. {remedy}")]


def order_named(sorts: Mapping[str, Order], name: str, default: Order) -> Order:
    """Return the order of a name that is valid, or the default if it is empty."""
    if not name:
        return default
    return replace(sorts[name.removeprefix("-")], is_descending=name.startswith("-"))


def bind_filters(
    kind: type[Filters],
    params: QueryDict | Mapping[str, str],
    rows: QuerySet[_M],
    user: AbstractBaseUser | AnonymousUser,
) -> Filters:
    """Return the filters of a request, checked. Raises BadFilter and PermissionDenied."""
    bound = kind(params, queryset=rows)
    if mistakes := bound.mistakes:
        raise BadFilter(*mistakes)
    named = bound.form.cleaned_data.get("namespace") or []
    if named:
        scope = (usage_scope_of if kind.of_usage else scope_of)(user)
        require_namespaces(scope, [named] if isinstance(named, str) else named)
    return bound


def apply_filters(
    kind: type[Filters],
    params: QueryDict | Mapping[str, str],
    rows: QuerySet[_M],
    user: AbstractBaseUser | AnonymousUser,
) -> QuerySet[_M]:
    """Return the rows that pass the request's filters. Raises BadFilter and PermissionDenied."""
    narrowed: QuerySet[_M] = bind_filters(kind, params, rows, user).qs
    return narrowed
