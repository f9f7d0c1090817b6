"""The words on each page of a PDF that Chromium printed."""

from __future__ import annotations

import re
import zlib
from typing import Final

_OBJECT: Final = re.compile(rb"(\d+) 0 obj\n(.*?)\nendobj", re.DOTALL)
_STREAM: Final = re.compile(rb"stream\n(.*)\nendstream", re.DOTALL)
_PAIR: Final = re.compile(rb"<([0-9A-Fa-f]+)> <([0-9A-Fa-f]+)>(?: <([0-9A-Fa-f]+)>)?")
_SHOWN: Final = re.compile(rb"/(F\d+) [\d.]+ Tf|<([0-9A-Fa-f]+)>|\bET\b")


def words_of_pages(pdf: bytes) -> list[str]:
    """Return the text of each page, in the order of the pages, without its spaces: a PDF places
    glyphs, of which none needs to be a space."""
    objects = {int(number): body for number, body in _OBJECT.findall(pdf)}
    pages = [body for body in objects.values() if re.search(rb"/Type /Page\b(?!s)", body)]
    return [_words(page, objects) for page in pages]


def _words(page: bytes, objects: dict[int, bytes]) -> str:
    fonts = {
        name: _glyphs(objects, int(number))
        for name, number in re.findall(rb"/(F\d+) (\d+) 0 R", page)
    }
    (contents,) = re.findall(rb"/Contents (\d+) 0 R", page)
    words, font = [], b""
    for name, glyphs in _SHOWN.findall(_stream(objects[int(contents)])):
        font = name or font
        known = fonts.get(font, {})
        words += [known.get(glyphs[at : at + 4].upper(), "") for at in range(0, len(glyphs), 4)]
    return "".join("".join(words).split())


def _glyphs(objects: dict[int, bytes], font: int) -> dict[bytes, str]:
    """Return the text of each glyph of a font, by its number in hexadecimal digits."""
    (table,) = re.findall(rb"/ToUnicode (\d+) 0 R", objects[font])
    found: dict[bytes, str] = {}
    for first, second, third in _PAIR.findall(_stream(objects[int(table)])):
        if not third:
            found[first.upper()] = bytes.fromhex(second.decode()).decode("utf-16-be")
            continue
        begin, end, text = int(first, 16), int(second, 16), int(third, 16)
        for glyph in range(begin, end + 1):
            found[b"%04X" % glyph] = chr(text + glyph - begin)
    return found


def _stream(body: bytes) -> bytes:
    found = _STREAM.search(body)
    assert found, body[:100]
    return zlib.decompress(found[1]) if b"/FlateDecode" in body else found[1]
