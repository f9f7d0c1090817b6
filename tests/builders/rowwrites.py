"""Strategies of single writes to tables: a row comes, changes in one column, or goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def adds_to(models: Iterable[Any], rows: Mapping[Any, Any]) -> st.SearchStrategy[Any]:
    """("add", model, row); `rows` has the strategy of each model's rows."""
    return st.one_of(*(st.tuples(st.just("add"), st.just(model), rows[model]) for model in models))


def writes_to(models: Iterable[Any], rows: Mapping[Any, Any]) -> st.SearchStrategy[Any]:
    """The same, ("change", model, number, one column) twice as often, or ("delete", model, number):
    the row with that number, of those that there are."""
    return st.one_of(*(_writes(model, rows[model]) for model in models))


def _writes(model: Any, row: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Any]:
    column = row.flatmap(lambda whole: st.sampled_from(sorted(whole)).map(lambda k: {k: whole[k]}))
    change = st.tuples(st.just("change"), st.just(model), NUMBERS, column)
    gone = st.tuples(st.just("delete"), st.just(model), NUMBERS)
    return st.one_of(adds_to([model], {model: row}), change, change, gone)


NUMBERS = st.integers(0, 3)
