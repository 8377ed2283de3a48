"""`name[option=value,…]`, wherever it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.core.spec import Spec, parse_spec, split_specs

WORD = st.text("abcxyz019._-/", min_size=1, max_size=8)
SPECS = st.builds(
    lambda name, options: Spec(name, tuple(options.items()), bool(options)),
    WORD,
    st.dictionaries(st.text("abcxyz", min_size=1, max_size=6), WORD, max_size=4),
)


@given(SPECS)
def test_what_is_written_is_read_back(spec: Spec) -> None:
    assert parse_spec(str(spec), "thing") == spec


@given(st.lists(SPECS, min_size=1, max_size=4))
def test_a_list_is_split_at_the_commas_outside_brackets(specs: list[Spec]) -> None:
    assert split_specs(" , ".join(map(str, specs)), "things") == [str(spec) for spec in specs]


def test_blanks_around_names_and_values_do_not_count() -> None:
    assert parse_spec(" las[ quantum = 10m , placement=any ] ", "policy") == Spec(
        "las", (("quantum", "10m"), ("placement", "any")), True
    )


def test_brackets_inside_a_value_belong_to_it() -> None:
    spec = parse_spec("outer[inner=a[b=c,d=e],f=g]", "thing")
    assert dict(spec.options) == {"inner": "a[b=c,d=e]", "f": "g"}


def test_an_option_is_put_in_the_place_of_an_older_one() -> None:
    assert str(parse_spec("analytic[contention=on]", "network").having("contention", "off")) == "analytic[contention=off]"


@pytest.mark.parametrize("text", ["", "[a=b]", "a[b=c", "a]b[", "a[b=c]d", "a b", "a[b=c]]", "a[[b=c]"])
def test_what_is_no_name_with_options_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UserError, match=r"is not a thing; write name or name\[option=value,…\]"):
        parse_spec(text, "thing")


@pytest.mark.parametrize("text", ["a[b=1,b=2]", "a[b-c=1,b_c=2]"])
def test_an_option_given_twice_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is given twice"):
        parse_spec(text, "thing")
