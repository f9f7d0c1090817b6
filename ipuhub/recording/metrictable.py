"""domain: the metrics of recordings, by what they watch."""

from __future__ import annotations

from ipuhub.process.metrictable import Kind, Metric

_WATCH = ("watch",)
EVENTS = Metric(
    "ipuhub_recording_events_total",
    Kind.COUNTER,
    "Changes read from the watch.",
    "Does the prober read at all?",
    _WATCH,
)
ROWS = Metric(
    "ipuhub_recording_rows_total",
    Kind.COUNTER,
    "Rows written, again or anew.",
    "Does the prober record what it reads?",
    _WATCH,
)
COMMITS = Metric(
    "ipuhub_recording_commits_total",
    Kind.COUNTER,
    "Transactions committed.",
    "How large are batches?",
    _WATCH,
)
FAULTS = Metric(
    "ipuhub_recording_faults_total",
    Kind.COUNTER,
    "Objects not taken as they stood, by kind of fault (refused: by PostgreSQL); the page of "
    "faults names them.",
    "Is something not accounted? Of what kind?",
    ("watch", "code"),
)
VANISHED = Metric(
    "ipuhub_recording_vanished_total",
    Kind.COUNTER,
    "Rows ended by a full list, since the end itself was not seen.",
    "Were ends missed?",
    _WATCH,
)
LISTS = Metric(
    "ipuhub_recording_lists_total",
    Kind.COUNTER,
    "Full lists committed.",
    "Does a watch of the prober break off again and again?",
    _WATCH,
)
LAG = Metric(
    "ipuhub_recording_lag_seconds",
    Kind.GAUGE,
    "From reading the last batch's first change to its commit.",
    "Is the prober keeping up?",
    _WATCH,
)
POSITION = Metric(
    "ipuhub_recording_position_timestamp_seconds",
    Kind.GAUGE,
    "Before it, all that happened is committed.",
    "Until when is usage complete?",
    _WATCH,
)
POSITION_AGE = Metric(
    "ipuhub_recording_position_age_seconds",
    Kind.GAUGE,
    "Since the committed position; a quiet watch comes to about 60 s.",
    "How far is the record behind?",
    _WATCH,
)
GAPS = Metric(
    "ipuhub_recording_gaps",
    Kind.GAUGE,
    "Stored times in which the watch saw nothing.",
    "Was something missed?",
    _WATCH,
)
NEWEST_GAP = Metric(
    "ipuhub_recording_newest_gap_timestamp_seconds",
    Kind.GAUGE,
    "When the newest gap ended. None where there is none.",
    "When was something missed last?",
    _WATCH,
)
TABLE = (
    EVENTS,
    ROWS,
    COMMITS,
    FAULTS,
    VANISHED,
    LISTS,
    LAG,
    POSITION,
    POSITION_AGE,
    GAPS,
    NEWEST_GAP,
)
