"""The tracker's entries as text, their keys, and the patches that change them."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipuhub.partition import Phase, format_time, parse_time
from partitions.errors import EntryTooLarge, UnreadableEntry
from partitions.proxy import tombstones
from partitions.proxy.controllers import PartitionSettings
from partitions.proxy.drift import scope_of_settings, terms_of
from partitions.proxy.tracker import (
    MAX_CONTROLLER_LENGTH,
    MAX_ENTRY_BYTES,
    MAX_SHARD_BYTES,
    Draft,
    Shard,
    Tracker,
    decode_entry,
    encode_entry,
    next_serial,
)
from tests.builders.mutations import paths_of, with_value
from tests.builders.trackerentries import NOW, entry

if TYPE_CHECKING:
    from partitions.proxy.lifecycle import TrackerEntry

NAME = "ipu-partitions-tracker"


def longest(**given: Any) -> TrackerEntry:
    """The entry with the longest names, times and address that can occur; no tombstone."""
    controller = "h" * (MAX_CONTROLLER_LENGTH - 25) + ":65535"
    return entry(
        uid="u" * 64,
        instance=999_999,
        serial=10**13,
        namespace="n" * 63,
        name="j" * 63,
        attempt=2**31 - 1,
        id="p" * 42,
        size=64,
        phase=Phase.RELEASING,
        controller=controller,
        label="l" * (MAX_CONTROLLER_LENGTH - len(controller)),
        active_at=NOW,
        reason="ControllerUnavailable",
        scope=scope_of_settings(PartitionSettings(cluster_id="c" * 200, allocation_id="a" * 200)),
        terms=terms_of(PartitionSettings(num_gcds=9999, reconfigurable=True), 0),
        **given,
    )


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=2000)
times = st.datetimes(datetime(2020, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)


@given(
    st.builds(
        entry,
        st.integers(0, 99),
        instance=st.integers(0, 999),
        serial=st.integers(0, 10**13),
        attempt=st.integers(0, 99),
        size=st.sampled_from([1, 2, 4, 8, 16, 32, 64]),
        phase=st.sampled_from([phase for phase in Phase if phase is not Phase.WAITING]),
        reserved_at=times,
        active_at=st.none() | times,
        released_at=st.none() | times,
        reason=st.sampled_from(["", "NoCapacity"]),
        message=st.text('abcäöü"\\', max_size=40),
        recorded=st.booleans(),
        num_gcds=st.integers(0, 64),
        num_replicas=st.integers(0, 64),
        scope=st.sampled_from(["", "0123ab/", "/0123ab", "0123ab/4567cd"]),
        terms=st.sampled_from(["", "s", "64r", "?"]),
        pod_key=st.sampled_from(["", "wanted", "0123abcd"]),
        missed_at=st.none() | times,
        has_come=st.booleans(),
    )
)
def test_an_entry_is_read_back_as_it_was_written(made: TrackerEntry) -> None:
    assert decode_entry(made.key, encode_entry(made)) == made


@given(texts)
def test_no_entry_exceeds_600_bytes_whatever_the_error_text(message: str) -> None:
    with_key = replace(longest(pod_key="0123abcd"), phase=Phase.ACTIVE, reason="")
    for made in (entry(message=message), longest(message=message), with_key):
        text = encode_entry(made)
        assert len(text.encode()) <= MAX_ENTRY_BYTES
        read = decode_entry(made.key, text)
        assert read.message == message or message.startswith(read.message.removesuffix("…"))
        assert replace(read, message="") == replace(made, message="")


def test_an_error_text_is_cut_no_more_than_it_must_be() -> None:
    text = encode_entry(entry(message="x" * 1000))
    assert MAX_ENTRY_BYTES - 3 <= len(text.encode()) <= MAX_ENTRY_BYTES
    assert json.loads(text)["message"].endswith("x…")


def test_an_error_text_that_just_fits_is_not_cut() -> None:
    room = MAX_ENTRY_BYTES - len(encode_entry(entry(message="x"))) + 1
    assert decode_entry("u.0.0", encode_entry(entry(message="y" * room))).message == "y" * room


def test_the_longest_names_leave_room_without_any_message() -> None:
    held = longest(num_gcds=64, num_replicas=64)
    assert len(encode_entry(replace(held, may_come=True)).encode()) <= MAX_ENTRY_BYTES
    tomb = tombstones.acknowledge(tombstones.leave(held, NOW, "it is another's"))
    assert len(encode_entry(held).encode()) <= MAX_ENTRY_BYTES
    assert len(encode_entry(tomb).encode()) <= MAX_ENTRY_BYTES
    unseen = tombstones.finish_release(replace(held, may_come=True), NOW)
    for waiting in (
        tombstones.note_absence(unseen, NOW, 900),
        tombstones.note_arrival(unseen),
    ):
        recorded = tombstones.acknowledge(waiting)
        assert recorded.may_come
        assert len(encode_entry(recorded).encode()) <= MAX_ENTRY_BYTES


def test_names_that_no_boundary_lets_in_are_refused_rather_than_cut() -> None:
    with pytest.raises(EntryTooLarge, match="600"):
        encode_entry(entry(name="x" * 600))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("uid.0.0", "not json"),
        ("uid.0.0", "[]"),
        ("uid.0.0", "null"),
        ("uid.0.0", "{}"),
        ("uid", encode_entry(entry())),
        ("uid.x.0", encode_entry(entry())),
        ("uid.0.0", encode_entry(entry()).replace("active", "asleep")),
        ("uid.0.0", encode_entry(entry()).replace("2026-11-21", "yesterday")),
        ("uid.0.0", encode_entry(entry()).replace('.123Z"', '.123"')),
        ("uid.0.0", encode_entry(entry()).replace('"2026-11-21T08:00:00.123Z"', '""')),
    ],
)
def test_what_is_no_entry_is_unreadable(key: str, text: str) -> None:
    with pytest.raises(UnreadableEntry, match=key):
        decode_entry(key, text)


WRONG: tuple[object, ...] = (
    *(None, True, 7, -1, 2**31, 10**400, 1.5, float("nan"), float("inf")),
    *("", "7", "false", "NaN", "a\0b", "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00"),
    *([], [7], {}, {"a": 1}),
)


def test_whatever_a_value_holds_it_is_an_entry_of_the_right_types_or_unreadable() -> None:
    whole = entry(
        phase=Phase.RELEASED,
        active_at=NOW,
        released_at=NOW,
        missed_at=NOW,
        lost_at=NOW,
        recorded=True,
        may_come=True,
        has_come=True,
        **dict.fromkeys(("reason", "message", "scope", "terms", "pod_key"), "x"),
        num_gcds=1,
        num_replicas=1,
    )
    found = json.loads(encode_entry(whole))
    read = 0
    for path in paths_of(found):
        for value in WRONG:
            text = json.dumps(value if not path else with_value(found, path, value))
            try:
                made = decode_entry(whole.key, text)
            except UnreadableEntry:
                continue
            read += 1
            later = (made.released_at or NOW) + timedelta(days=1)
            assert tombstones.is_expired(made, later, 60, needs_recorder=False)
            for name in fields(made):
                assert type(getattr(made, name.name)) is type(getattr(whole, name.name)) or (
                    name.name.endswith("_at") and value is None
                ), (path, value)
    assert read > 20


def test_each_field_that_an_entry_needs_is_missed() -> None:
    found = json.loads(encode_entry(entry()))
    for name in found.keys() - {"label"}:
        with pytest.raises(UnreadableEntry, match="missing required field"):
            decode_entry("uid-0.0.0", json.dumps({k: v for k, v in found.items() if k != name}))


@pytest.mark.parametrize(
    "key",
    [
        *("u.01.5", "u.1_0.5", "u.-1.5", "u.+1.5", "u.1.05", "u. 1.5", "u.1.5 "),
        *(f"u.{2**31}.5", "u.\0.1.5", f"u.{'9' * 5000}.1", "u.\uff11.5", "u.²..5"),
    ],
)
def test_a_key_that_would_not_be_written_again_is_unreadable(key: str) -> None:
    with pytest.raises(UnreadableEntry):
        decode_entry(key, encode_entry(entry()))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "\ud800", '{"size": 1e999}', '{"size": NaN}', ""]
)
def test_a_text_that_no_reader_can_take_is_unreadable(text: str) -> None:
    tracker = Tracker.read(NAME, [Shard(NAME, "1", {"u.0.0": text, entry(1).key: ""})])
    assert tracker.unreadable == {"u.0.0", entry(1).key}
    assert not tracker.entries


def test_the_phase_of_an_answer_is_never_stored() -> None:
    text = json.dumps(json.loads(encode_entry(entry())) | {"phase": "waiting"})
    with pytest.raises(UnreadableEntry, match="never stored"):
        decode_entry("uid-0.0.0", text)


def test_a_message_with_nul_does_not_keep_a_holding_from_being_recorded() -> None:
    made = Draft(tracker()).put(entry(message="refused: a\0b"))
    assert made.message == "refused: a\ufffdb"


def test_times_are_utc_with_milliseconds() -> None:
    east = NOW.astimezone(timezone(timedelta(hours=9)))
    assert format_time(east) == "2026-11-21T08:00:00.123Z"
    assert parse_time("2026-11-21T17:00:00.123+09:00") == NOW
    assert (format_time(None), parse_time(None), parse_time("")) == (None, None, None)


def test_a_key_is_never_used_twice() -> None:
    assert next_serial(None, NOW) == 1795248000123
    assert next_serial(entry(serial=1795248000123), NOW) == 1795248000124
    assert next_serial(entry(serial=5), NOW) == 1795248000123


def test_a_uid_may_have_dots() -> None:
    made = entry(uid="a.b.c")
    assert decode_entry(made.key, encode_entry(made)).uid == "a.b.c"


def test_the_last_holding_is_that_of_the_highest_serial_in_whatever_map_it_stands() -> None:
    old, new = entry(serial=1), entry(serial=2)
    shards = [
        Shard(f"{NAME}-{n}", "1", {one.key: encode_entry(one)}) for n, one in [(0, new), (1, old)]
    ]
    found = Tracker.read(NAME, shards)
    assert found.newest(new.holder) == new


# ---------------------------------------------------------------------- drafts


def tracker(*entries: TrackerEntry) -> Tracker:
    draft = Draft(Tracker.read(NAME, []))
    for one in entries:
        draft.put(one)
    return committed(draft, Tracker.read(NAME, []))


def committed(draft: Draft, before: Tracker) -> Tracker:
    """Return the server's tracker after the draft's patches."""
    shards = dict(before.shards)
    for number, (name, changes) in enumerate(draft.patches().items()):
        shard = shards.get(name, Shard(name, ""))
        shards[name] = shard.with_changes(changes, f"{shard.resource_version}{number}1")
    return draft.committed(shards)


def test_a_patch_has_the_changed_keys_only() -> None:
    before = tracker(entry(0), entry(1), entry(2))
    draft = Draft(before)
    changed = draft.put(entry(1, phase=Phase.RELEASING))
    draft.put(entry(2))
    draft.drop(entry(0).key)
    assert draft.patches() == {
        NAME: {entry(0).key: None, changed.key: encode_entry(changed)},
    }


def test_what_is_made_and_dropped_in_one_draft_is_not_written() -> None:
    draft = Draft(tracker())
    draft.put(entry())
    draft.drop(entry().key)
    draft.drop("unknown")
    assert draft.patches() == {}


def test_later_changes_of_a_draft_see_the_earlier_ones() -> None:
    draft = Draft(tracker(entry(0)))
    assert draft.newest(("uid-0", 0)) == entry(0)
    draft.put(entry(0, serial=1, phase=Phase.RESERVING, id="other"))
    newest = draft.newest(("uid-0", 0))
    assert newest is not None
    assert newest.serial == 1
    assert draft.ids_in_use() == {"p-job-default-0", "other"}
    draft.put(entry(0, phase=Phase.RELEASED))
    assert draft.ids_in_use() == {"other"}
    draft.drop(newest.key)
    assert draft.newest(("uid-0", 0)) == entry(0, phase=Phase.RELEASED)
    assert len(list(draft.entries())) == 1


def test_a_draft_keeps_what_will_be_read_back() -> None:
    draft = Draft(tracker())
    stored = draft.put(entry(message="x" * 1000))
    assert draft.get(stored.key) == stored == decode_entry(stored.key, encode_entry(stored))


def test_a_draft_leaves_the_tracker_as_it_was() -> None:
    before = tracker(entry(0))
    draft = Draft(before)
    draft.drop(entry(0).key)
    draft.put(entry(1))
    assert set(before.entries) == {entry(0).key}
    assert before.newest(("uid-1", 0)) is None


def test_a_committed_draft_equals_what_a_new_process_reads() -> None:
    before = tracker(entry(0), entry(1))
    draft = Draft(before)
    draft.put(entry(0, serial=3, phase=Phase.RESERVING))
    draft.drop(entry(1).key)
    draft.put(entry(2))
    after = committed(draft, before)
    again = Tracker.read(NAME, after.shards.values())
    assert after == again
    assert after.revision != before.revision


def test_the_last_partition_of_a_holder_comes_last() -> None:
    made = tracker(entry(0, serial=9), entry(0, serial=10), entry(0, serial=2), entry(1))
    assert [(one.uid, one.serial) for one in made.ordered()] == [
        ("uid-0", 2),
        ("uid-0", 9),
        ("uid-0", 10),
        ("uid-1", 0),
    ]
    newest = made.newest(("uid-0", 0))
    assert newest is not None
    assert newest.serial == 10


def test_new_entries_go_where_they_still_fit_when_they_have_grown() -> None:
    made = tracker(*(entry(number) for number in range(250)))
    assert list(made.shards) == [NAME, f"{NAME}-1", f"{NAME}-2"]
    for shard in made.shards.values():
        grown = sum(len(key) + MAX_ENTRY_BYTES for key in shard.data)
        assert grown <= MAX_SHARD_BYTES


def test_room_that_becomes_free_is_used_again() -> None:
    made = tracker(*(entry(number) for number in range(250)))
    draft = Draft(made)
    draft.drop(next(iter(made.shards[NAME].data)))
    made = committed(draft, made)
    draft = Draft(made)
    stored = draft.put(entry(999))
    assert draft.patches() == {NAME: {stored.key: encode_entry(stored)}}


def test_unreadable_values_are_kept_and_counted() -> None:
    made = Tracker.read(NAME, [Shard(NAME, "7", {"odd": "x" * 63_500, entry().key: "{}"})])
    assert made.unreadable == {"odd", entry().key}
    draft = Draft(made)
    draft.put(entry(1))
    assert list(draft.patches()) == [f"{NAME}-1"]
