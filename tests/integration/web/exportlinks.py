"""The files that pages offer: found in each page, followed as its reader does, and parsed."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import APIResponse, Page

OFFERED: Final = """() => [...document.querySelectorAll(
    "a[download], [aria-label^=Download] a, main a[href*='format=']")].map((link) => {
  const list = link.closest("#rows"), tables = link.closest(".card")?.querySelectorAll("table");
  const [count] = /^\\d+/.exec(list?.dataset.say) ?? [null];
  return {
    address: link.href,
    isSaved: link.hasAttribute("download"),
    count: count && Number(count),
    inTable: tables?.length === 1 ? tables[0].tBodies[0].rows.length : null,
    columns: [...list?.querySelectorAll(".columns [name=columns]") ?? []].map((box) => box.value),
  };
})"""
LINKS: Final = """(text) => [...new DOMParser().parseFromString(text, "text/html")
  .querySelectorAll("#rows a[href*='format=']")].map((link) => link.href)"""
TOTAL: Final = "total"
"""The first cell of the line of a CSV that adds up the others."""
OTHER_ROWS: Final = ("/events/", "/utilization/", "/usage/reports/")
"""Pages whose files have other rows than the table that they stand at."""


class File(NamedTuple):
    """The content of a file: its columns (none: without rows), and the number of rows that follow
    (none: plain text)."""

    columns: tuple[str, ...]
    rows: int | None


class Exports:
    """The files of all pages that a reader has opened."""

    def __init__(self) -> None:
        self._offered: dict[str, dict[str, Any]] = {}

    def note(self, page: Page) -> None:
        """Note the files that the open page offers."""
        for each in page.evaluate(OFFERED):
            self._offered.setdefault(each["address"], each | {"page": page.url})

    def follow(self, page: Page) -> dict[str, File]:
        """Download each file as the reader of `page`, and compare it with its list and with its
        other forms; return the contents by address."""
        found: dict[str, File] = {}
        for address, offer in self._offered.items():
            found[address] = file = _download(page, address, is_saved=offer["isSaved"])
            if offer["count"] is not None:
                assert file.rows == offer["count"], offer
            elif offer["inTable"] and not any(part in offer["page"] for part in OTHER_ROWS):
                assert file.rows == offer["inTable"], offer
        for address, file in found.items():
            csv_of_it = found.get(re.sub("format=jsonl?", "format=csv", address), file)
            assert csv_of_it.rows == file.rows, address
            if self._offered[address]["count"] is not None:
                assert file.columns in {(), csv_of_it.columns}, address
        return found

    def choose_columns(self, page: Page) -> int:
        """Choose two columns of each list, and download its files, which then have these alone;
        return how many lists there are."""
        lists = {each["page"]: each["columns"] for each in self._offered.values()}
        lists = {address: columns for address, columns in lists.items() if columns}
        for address, columns in lists.items():
            answer = page.request.get(address, params={"columns": ",".join(columns[-2:])})
            for link in page.evaluate(LINKS, answer.text()):
                file = _download(page, link, is_saved=False)
                assert file.columns in {(), tuple(columns[-2:])}, link
        return len(lists)


def _download(page: Page, address: str, *, is_saved: bool) -> File:
    answer = page.request.get(address)
    assert answer.status == 200, (address, answer.status)
    kind = answer.headers.get("content-disposition", "")
    assert kind.startswith("attachment") or not is_saved, address
    return read_file(answer)


def read_file(answer: APIResponse) -> File:
    """Parse a file by its type; each of its rows has all of its columns."""
    kind = answer.headers["content-type"].partition(";")[0]
    text = answer.body().decode("utf-8-sig")
    if kind == "text/csv":
        head, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        assert all(len(row) == len(head) for row in rows), answer.url
        if rows and rows[-1][0] == TOTAL:
            rows.pop()
        return File(tuple(head), len(rows))
    if kind in {"application/json", "application/x-ndjson"}:
        lines = text.splitlines()
        records = json.loads(text) if kind == "application/json" else [*map(json.loads, lines)]
        (columns,) = {tuple(each) for each in records} or {()}
        return File(columns, len(records))
    assert kind in {"text/plain", "application/yaml"}, (answer.url, kind)
    return File((), None)
