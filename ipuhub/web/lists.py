"""glue: lists, each declared once for its page, polled fragment, CSV and JSON.

Example: the complete page of partitions (`partitions/views.py`)::

    COLUMNS = (
        Column("phase", "State", lambda p: p.phase, kind="badge"),
        Column("partition", "Partition", lambda p: p.partition, kind="code"),
        Column("namespace", "Namespace", lambda p: p.namespace),
        Column("job", "Job", lambda p: p.job_name, link=lambda p: f"/jobs/{p.job_uid}/"),
        Column("ipus", "IPUs", lambda p: p.size, kind="number"),
        Column("reserved_at", "Age", lambda p: p.reserved_at, kind="age"),
        Column("message", "", lambda p: p.message, kind="export"),      # in the twins only
    )
    partition_list = ListPage(
        title="Partitions", noun="partition", columns=COLUMNS, filters=PartitionFilters,
        select=visible_partitions,             # (Scope) -> QuerySet, in selectors.py
        order=("reserved_at", "id"), empty="A job's partition appears here once reserved.",
    ).view                                     # path("", partition_list, name="list")

Kinds: text, number, time, second (a time to the second), age (of a time, under a label that says
so: "Age", "Held for"), ago (the same under a label that names the moment, as "Ended" does, where an
age alone would read as a duration), duration (seconds, or a time from which it still grows), badge
(colour by `ipuhub.web.cells`), code, note, brief (a note in one line), log, export. Rows are newest
first by `order`: a time and a unique number with an index. `sort` of a column names one of the
filter class's `sorts`: its head then links to that order, which is in the URL (`?sort=-ipus`) and
holds for the twins, too. `chips` are links that set filters, and take them back with a second
click.
Filters are in the URL; an invalid filter is a 400 and a namespace without access a 403, each with a
sentence. `template` may extend `lists/page.html`; `more(request)` adds to its context,
`prepare(request, filters, rows)` to the rows of a page or of a part of a file. `suggestions` names
an address that fills the `suggested` inputs of the filters once one of them has the focus. Twins:
`?format=csv`, `json` and `jsonl` (an object a line), all filtered rows, with the plain `value` of
each column. `?columns=name,ipus` chooses columns, of the page and of its twins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.web.access import scope_of, signed_in, usage_scope_of
from ipuhub.web.cells import make_cells
from ipuhub.web.columns import COLUMNS, choices, chosen_columns, columns_of, filters_of
from ipuhub.web.exports import CHUNK_ROWS, export, in_chunks, known_format
from ipuhub.web.filters import TOTAL, BadFilter, bind_filters, order_named, wants_total
from ipuhub.web.keyset import CursorError, Order, read_page
from ipuhub.web.pollcache import cached_until_rows_change
from ipuhub.web.requests import fragment_etag, not_modified, note_as_of, tagged, wants_fragment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase

    from ipuhub.web.access import Caller, Scope
    from ipuhub.web.columns import Column
    from ipuhub.web.filters import Filters
    from ipuhub.web.keyset import Page

PAGE_SIZE = 50
COUNTED_TO = 10_000  # counting on would cost more than the page
# The first click on the head of such a column.
_MOST_FIRST = frozenset({"number", "age", "ago", "time", "second", "duration"})


@dataclass(frozen=True, slots=True)
class Chip:
    """A link that sets some filters of a list, to one value or to any of several; an empty value
    clears a filter."""

    label: str
    parameters: Mapping[str, str | Sequence[str]]

    def link(self, request: HttpRequest) -> tuple[str, str, bool]:
        """Return its label, its address and whether the list is filtered like that."""
        is_on = all(
            [text for text in request.GET.getlist(name) if text] == _listed(wanted)
            for name, wanted in self.parameters.items()
        )
        values = dict.fromkeys(self.parameters, "") if is_on else self.parameters
        return self.label, _with(request, **values), is_on


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column; `href` leads to its order, `direction` is the direction of the list's
    order."""

    label: str
    kind: str
    room: int = 0
    href: str = ""
    direction: str = ""

    @property
    def look(self) -> str:
        """CSS classes of the head."""
        room = f"from-{self.room}" if self.room else ""
        return " ".join(filter(None, ("text-end" if self.kind == "number" else "", room)))


@dataclass(frozen=True, slots=True)
class _Content:
    """Content of one response."""

    filters: Filters
    page: Page[Any]
    count: int
    order: Order
    columns: Sequence[Column]


@dataclass(frozen=True, kw_only=True)
class ListPage:
    """A list: page, fragment and twins. See the module's example."""

    title: str
    noun: str
    filters: type[Filters]
    columns: Sequence[Column]
    select: Callable[[Scope], QuerySet[Any]] | None = None
    select_for: Callable[[Caller], QuerySet[Any]] | None = None  # where a scope says too little
    order: tuple[str, str] = ("created_at", "id")
    require: Callable[[Caller], None] | None = None  # raises PermissionDenied
    empty: str = ""
    template: str = "lists/page.html"
    more: Callable[[HttpRequest], dict[str, Any]] | None = None
    prepare: Callable[[HttpRequest, Filters, Sequence[Any]], None] | None = None
    chips: Callable[[HttpRequest], Sequence[Chip]] | None = None
    suggestions: str = ""  # the name of their address

    @property
    def view(self) -> Callable[..., HttpResponseBase]:
        return require_safe(signed_in(cached_until_rows_change(self._answer)))

    @property
    def has_many_filters(self) -> bool:
        """Return whether the filters need more than one line."""
        return len(self.filters.base_filters) > 8

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        if self.require:
            self.require(request.user)
        rows = self._rows(request)
        try:
            bound = bind_filters(self.filters, filters_of(request.GET), rows, request.user)
            columns = chosen_columns(self.columns, request.GET)
            kind = known_format(request.GET.get("format", ""))
            has_total = wants_total(request.GET.get(TOTAL, ""))
            if kind:
                found = self._all_rows(request, bound)
                return export(kind, columns, found, f"{self.noun}s", has_total=has_total)
            order = self._order(bound)
            page = read_page(bound.qs, order, request.GET.get("cursor", ""), PAGE_SIZE)
        except BadFilter as error:
            return self._refuse(request, error.messages)
        except CursorError as error:
            return self._refuse(request, [str(error)])
        if self.prepare:
            self.prepare(request, bound, page.rows)
        count = bound.qs[: COUNTED_TO + 1].count()
        return self._show(request, _Content(bound, page, count, order, columns))

    def _order(self, bound: Filters) -> Order:
        return order_named(bound.sorts, bound.sort, Order(self.order))

    def _rows(self, request: HttpRequest) -> QuerySet[Any]:
        if self.select_for:
            return self.select_for(request.user)
        if self.select is None:
            raise ImproperlyConfigured(f"The list {self.title} selects no rows.")
        return self.select(self._scope(request))

    def _scope(self, request: HttpRequest) -> Scope:
        return (usage_scope_of if self.filters.of_usage else scope_of)(request.user)

    def _all_rows(self, request: HttpRequest, bound: Filters) -> Iterator[Any]:
        ordered = bound.qs.order_by(*self._order(bound).expressions)
        rows: Iterator[Any] = ordered.iterator(chunk_size=CHUNK_ROWS)
        if self.prepare:
            rows = in_chunks(rows, partial(self.prepare, request, bound))
        return rows

    def _show(self, request: HttpRequest, content: _Content) -> HttpResponseBase:
        columns = columns_of(content.columns, content.page.rows)
        lines = [make_cells(columns, row) for row in content.page.rows]
        extra = self.more(request) if self.more else {}
        ends = (content.page.previous_cursor, content.page.next_cursor)
        tag = fragment_etag(request, lines, content.count, ends, extra)
        if "freshness" in extra:
            note_as_of(request, extra["freshness"].as_of)
        if same := not_modified(request, tag):
            return same
        context = {
            "filter": content.filters,
            "heads": [self._head(request, column, content.order) for column in columns],
            "sorts": self._sorts(content),
            "chips": [chip.link(request) for chip in self.chips(request)] if self.chips else (),
            "is_newest_first": content.order == Order(self.order),
            "lines": lines,
            "choices": choices(columns_of(self.columns, content.page.rows), columns),
            "kept": [pair for pair in _pairs(request) if pair[0] != COLUMNS],
            "columns": [text for name, text in _pairs(request) if name == COLUMNS],
            "two_lines": any(column.phone for column in self.columns),
            "count": min(content.count, COUNTED_TO),
            "uncounted": content.count > COUNTED_TO,
            "newer": _with(request, cursor=content.page.previous_cursor),
            "older": _with(request, cursor=content.page.next_cursor),
            # Each by name: without a choice a page shows those that it has room for.
            "all_columns": _with(request, columns=",".join(each.key for each in self.columns)),
            "usual_columns": _with(request, columns=""),
            "csv": _with(request, format="csv"),
            "json": _with(request, format="json"),
            "jsonl": _with(request, format="jsonl"),
            "etag": tag,
            **extra,
        }
        return tagged(request, self._render(request, context, 200), tag)

    def _head(self, request: HttpRequest, column: Column, order: Order) -> Head:
        if not column.sort:
            return Head(column.label, column.kind, column.room)
        is_current = self.filters.sorts[column.sort].fields == order.fields
        descends = not order.is_descending if is_current else column.kind in _MOST_FIRST
        href = _with(request, sort=f"{'-' * descends}{column.sort}")
        direction = _direction(order) if is_current else ""
        return Head(column.label, column.kind, column.room, href, direction)

    def _sorts(self, content: _Content) -> list[tuple[str, str, bool]]:
        """Return the orders to choose from, where there is no room for heads, and the current."""
        return [
            (name, f"{column.label}, {_direction(order)}", order == content.order)
            for column in self.columns
            if column.sort
            for name in (column.sort, f"-{column.sort}")
            for order in [order_named(self.filters.sorts, name, content.order)]
        ]

    def _refuse(self, request: HttpRequest, sentences: Sequence[str]) -> HttpResponseBase:
        bound = self.filters(filters_of(request.GET), queryset=self._rows(request).none())
        extra = self.more(request) if self.more else {}
        return self._render(request, {"filter": bound, "problems": sentences, **extra}, 400)

    def _render(self, request: HttpRequest, context: dict[str, Any], status: int) -> HttpResponse:
        fragment = wants_fragment(request)
        general = {
            "list": self,
            "now": timezone.now(),
            "fragment": fragment,
            "here": request.get_full_path(),
            "first": _with(request),
            "on_first": not request.GET.get("cursor"),
        }
        template = "lists/_rows.html" if fragment else self.template
        return render(request, template, general | context, status=status)


def _direction(order: Order) -> str:
    """Return the direction as `aria-sort` calls it."""
    return "descending" if order.is_descending else "ascending"


def _pairs(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the parameters of the URL that a form keeps."""
    gone = {"cursor", "format"}
    return [(k, v) for k, values in request.GET.lists() if k not in gone for v in values if v]


def _listed(value: str | Sequence[str]) -> list[str]:
    """Return the values of a parameter."""
    return [text for text in ([value] if isinstance(value, str) else value) if text]


def _with(request: HttpRequest, **parameters: str | Sequence[str] | None) -> str:
    """Return the current URL with its filters and these parameters, without empty parameters; no
    URL if a parameter is None."""
    if None in parameters.values():
        return ""
    query = request.GET.copy()
    for name in ("cursor", "format", *(name for name in parameters if not parameters[name])):
        query.pop(name, None)
    for name, value in parameters.items():
        if value:
            query.setlist(name, _listed(value))
    return f"{request.path}?{query.urlencode()}" if query else request.path
