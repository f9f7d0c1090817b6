"""Label and field selectors: what matches, and the words of a 1.20 API server's refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.storage.selectors import (
    parse_field_selector,
    parse_label_selector,
    selectable_fields,
)


@pytest.mark.parametrize(
    ("selector", "labels", "want"),
    [
        ("", {}, True),
        ("", None, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("!a", {}, True),
        ("!a", {"a": "x"}, False),
        ("a>1", {"a": "2"}, True),
        ("a<1", {"a": "2"}, False),
        ("a>1", {"a": "x"}, False),
        ("a>1", {}, False),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a in ()", {"a": ""}, True),
        ("a in (x,)", {"a": ""}, True),
        ("in=b", {"in": "b"}, True),
        ("a=in", {"a": "in"}, True),
        (
            "graphcore.ai/role=worker,graphcore.ai/attempt notin (1)",
            {"graphcore.ai/role": "worker", "graphcore.ai/attempt": "2"},
            True,
        ),
        ("a=b,c!=d,!e", {"a": "b", "c": "d"}, False),
    ],
)
def test_a_label_selector_matches_as_on_a_real_server(selector, labels, want):
    assert parse_label_selector(selector).matches(labels) is want


_BAD_LABEL_SELECTORS = {
    "a=b,,c": "found ',', expected: identifier after ','",
    "a in b": "unable to parse requirement: found 'b' expected: '('",
    "a>x": "unable to parse requirement: for 'Gt', 'Lt' operators, the value must be an integer",
    "!a b": "found 'b', expected: ',' or 'end of string'",
    "a=!": "unable to parse requirement: found '!', expected: identifier",
    "=b": "found '=', expected: !, identifier, or 'end of string'",
    "a b": "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
    "a,": "found '', expected: identifier after ','",
    ",a": "found ',', expected: !, identifier, or 'end of string'",
    "a=b c=d": "found 'c', expected: ',' or 'end of string'",
    "a!b": "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt",
}


@pytest.mark.parametrize(("selector", "want_message"), _BAD_LABEL_SELECTORS.items())
def test_a_bad_label_selector_is_refused_in_the_servers_words(selector, want_message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        parse_label_selector(selector)
    assert str(caught.value) == want_message


@pytest.mark.parametrize(
    ("selector", "want_start"),
    [
        ("a/b/c=d", 'unable to parse requirement: "a/b/c": prefix part'),
        ("-a=b", 'unable to parse requirement: "-a": name part must consist of'),
        ("A_/a=b", 'unable to parse requirement: "A_/a": prefix part'),
        ("a" * 64 + "=b", 'unable to parse requirement: "aaa'),
        ("a=_b", 'unable to parse requirement: "_b": a valid'),
        ("a=" + "b" * 64, 'unable to parse requirement: "bbb'),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (!)", "unable to parse requirement: found '!', expected: ',', ')' or identifier"),
        ("!=b", "found '!=', expected: !, identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
    ],
)
def test_a_malformed_key_or_value_is_named(selector, want_start):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        parse_label_selector(selector)
    assert str(caught.value).startswith(want_start)


@given(st.text(alphabet="ab=!(), in><", max_size=15))
def test_any_text_either_parses_or_is_refused_with_a_sentence(text):
    try:
        refusal = ""
        parse_label_selector(text).matches({"a": "b"})
    except ValueError as error:
        refusal = str(error)
    assert not refusal or "expected" in refusal or "must" in refusal


_POD = {
    "metadata": {"name": "p", "namespace": "d"},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("", True),
        ("metadata.name=p", True),
        ("metadata.name==p,status.phase=Running", True),
        ("spec.nodeName!=n1", False),
        ("spec.nodeName=", False),
        ("status.podIP=", True),
        ("metadata.name=p,,", True),
        ("status.phase!=Failed,status.phase!=Succeeded", True),
    ],
)
def test_a_field_selector_matches_as_on_a_real_server(selector, want):
    assert parse_field_selector(selector).matches(_POD) is want


def test_a_node_that_says_nothing_is_schedulable():
    selector = parse_field_selector("spec.unschedulable=false")
    assert selector.matches({"metadata": {"name": "n"}})
    assert not selector.matches({"spec": {"unschedulable": True}})


def test_the_source_of_an_event_is_its_component():
    event = {"source": {"component": "kubelet", "host": "n1"}}
    assert parse_field_selector("source=kubelet").matches(event)


def test_an_escaped_comma_belongs_to_the_value():
    assert parse_field_selector(r"metadata.name=a\,b\=c").exact("metadata.name") == "a,b=c"


def test_exact_ignores_inequality():
    assert parse_field_selector("metadata.name!=a").exact("metadata.name") is None


@pytest.mark.parametrize(
    ("selector", "want_message"),
    [
        ("foo=bar", "field label not supported: foo"),
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        (
            "status.phase in (a)",
            "invalid selector: 'status.phase in (a)'; can't understand 'status.phase in (a)'",
        ),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        (r"metadata.name=a\b", "invalid field selector: invalid escape sequence"),
    ],
)
def test_a_bad_field_selector_is_refused_in_the_servers_words(selector, want_message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        parse_field_selector(selector, selectable_fields("pods"))
    assert str(caught.value) == want_message


def test_custom_resources_select_by_name_and_namespace_only():
    assert selectable_fields("ipujobs.graphcore.ai") == {"metadata.name", "metadata.namespace"}
