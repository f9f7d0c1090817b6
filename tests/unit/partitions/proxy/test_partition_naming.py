"""Ids of partitions: readable where they can be, never the same for two jobs."""

from __future__ import annotations

import hashlib
import re

from hypothesis import given
from hypothesis import strategies as st

from partitions.proxy.lifecycle import MAX_ID_LENGTH, choose_partition_id

names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", fullmatch=True)


def test_the_readable_form_is_taken_while_it_is_free() -> None:
    made = choose_partition_id(
        name="bert-poprun", namespace="gc-dev", instance=0, uid="u", taken=set()
    )
    assert made == "p-bert-poprun-gc-dev-0"


def test_a_taken_readable_form_gives_way_to_one_with_the_hash_of_uid_and_instance() -> None:
    digest = hashlib.sha256(b"u/1").hexdigest()[:8]
    made = choose_partition_id(name="a", namespace="b-c", instance=1, uid="u", taken={"p-a-b-c-1"})
    assert made == f"p-a-{digest}-1"


def test_42_characters_are_readable_and_43_are_not() -> None:
    fits = choose_partition_id(name="x" * 30, namespace="default", instance=0, uid="u", taken=())
    assert fits == f"p-{'x' * 30}-default-0"
    assert len(fits) == 42
    too_long = choose_partition_id(
        name="x" * 31, namespace="default", instance=0, uid="u", taken=()
    )
    assert too_long == f"p-{'x' * 29}-{hashlib.sha256(b'u/0').hexdigest()[:8]}-0"
    assert len(too_long) == 42


def test_a_taken_hash_is_salted() -> None:
    first = choose_partition_id(name="x" * 63, namespace="d", instance=0, uid="u", taken=())
    second = choose_partition_id(name="x" * 63, namespace="d", instance=0, uid="u", taken={first})
    assert second != first


def test_a_cut_name_does_not_end_in_a_separator() -> None:
    name = "x" * 26 + "...-" + "y" * 20
    made = choose_partition_id(name=name, namespace="default", instance=0, uid="u", taken=())
    assert made.startswith(f"p-{'x' * 26}-")


@given(names, names, st.integers(0, 999_999), st.uuids())
def test_every_id_is_short_and_one_that_vipu_takes(
    name: str, namespace: str, instance: int, uid: object
) -> None:
    first = choose_partition_id(
        name=name, namespace=namespace, instance=instance, uid=str(uid), taken=()
    )
    again = choose_partition_id(
        name=name, namespace=namespace, instance=instance, uid=str(uid), taken={first}
    )
    assert first != again
    for made in (first, again):
        assert len(made) <= MAX_ID_LENGTH
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", made)
        assert made.endswith(f"-{instance}")
