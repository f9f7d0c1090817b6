"""Names that break tables, files and pages which do not expect them."""

from __future__ import annotations

from typing import Final

ODD_NAMES: Final = {
    "comma": "a,b,c",
    "quotes": 'say "x", \'y\' and ""',
    "new line": "two\nlines",
    "windows line": "two\r\nlines",
    "carriage return": "\rcr and a\rbreak",
    "tab": "\ttab\tbed",
    "equals": "=1+1",
    "command": "=cmd|' /C calc'!A0",
    "plus": "+1",
    "minus": "-2+3",
    "at": "@SUM(1,2)",
    "apostrophe": "'quoted",
    "two apostrophes": "''=1",
    "number": "0012",
    "exponent": "1E9",
    "nothing": "NA",
    "null": "null",
    "spaces": "  around  ",
    "percent": "%s %(x)s {0} {{x}} {% x %}",
    "backslash": "\\N \\. \\n",
    "end of copy": "\\.",
    "sql": "'; DROP TABLE usage_podlifetime; --",
    "script": "<script>window.ran = 1</script>",
    "end of script": "</script><script>window.ran = 1</script>",
    "attribute": '"><img src=x onerror="window.ran = 1">',
    "single attribute": "' onmouseover='window.ran=1' x='",
    "entity": "&lt;b&gt; &amp; &#x41;",
    "address": "javascript:window.ran=1",
    "path": "../../etc/passwd",
    "right to left": "\u202eabc\u202c שלום مرحبا",
    "zero width": "a\u200bb\ufeffc\u2060d",
    "line separators": "a\u2028b\u2029c\x85d",
    "controls": "a\x01b\x1b[31mred\x7f",
    "emoji": "👩‍🔬 🇩🇪",
    "accents": "e\u0301 é",
    "long": "x" * 253,
    "wide": "界" * 253,
}
"""Each fits a usage annotation: at most 253 characters and no NUL."""
