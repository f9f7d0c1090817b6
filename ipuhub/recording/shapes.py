"""domain: who an object is, and what can be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


class ObjectMeta(msgspec.Struct, rename="camel", gc=False):
    """The part of an object's metadata that every recorder needs; extend it for more."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """Who an object or a row is."""

    uid: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that could not be taken as it stood: `code` for machines, `message` for people."""

    subject: Subject
    code: str
    message: str
    excerpt: str = ""
