"""What people write, as seconds, bytes and bytes per second."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.core.errors import UserError
from dally.core.units import bandwidth, seconds, show_bytes, show_time, size_bytes


@pytest.mark.parametrize(("text", "value"), [
    ("90", 90), (90, 90), ("90s", 90), (" 10 m ", 600), ("10min", 600), ("1.5h", 5400), ("2d", 172800),
    ("1w", 604800), ("500ns", 5e-7), ("3us", 3e-6), ("3µs", 3e-6), (".5s", 0.5), ("1e3s", 1000), ("-5s", -5),
])  # fmt: skip
def test_times(text: str | float, value: float) -> None:
    assert seconds(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(("text", "value"), [
    ("25MB", 25e6), ("1.5 GiB", 1.5 * 2**30), ("8 bit", 1), ("1Gbit", 125e6), (7, 7), ("1kB", 1000), ("1KiB", 1024),
])  # fmt: skip
def test_sizes(text: str | float, value: float) -> None:
    assert size_bytes(text) == value


@pytest.mark.parametrize(("text", "value"), [
    ("25 GB/s", 25e9), ("400 Gbit/s", 50e9), ("400Gbps", 50e9), ("100 Mbps", 12.5e6), ("1GiB/s", 2**30), ("0", 0),
])  # fmt: skip
def test_bandwidths(text: str, value: float) -> None:
    assert bandwidth(text) == value


@pytest.mark.parametrize(
    "text", ["", "m", "10 parsec", "1,5h", "1h30m", "10m/s", "nan", "inf", "1e999", "--1s", "True"]
)
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="time"):
        seconds(text)


@pytest.mark.parametrize("value", [True, float("nan"), float("inf")])
def test_values_that_only_look_like_numbers_are_refused(value: float) -> None:
    with pytest.raises(UserError):
        seconds(value)


@pytest.mark.parametrize("text", [25, "25", "25 GB", "25 s", "25 gb/s", "fast"])
def test_a_bandwidth_must_say_bits_or_bytes_per_second(text: str | float) -> None:
    with pytest.raises(UserError, match="bandwidth"):
        bandwidth(text)


@given(st.floats(1e-6, 1e9, allow_nan=False), st.sampled_from(["ns", "us", "ms", "s", "m", "min", "h", "d", "w"]))
def test_a_unit_is_a_factor(number: float, unit: str) -> None:
    assert seconds(f"{number!r}{unit}") == pytest.approx(number * seconds(f"1{unit}"), rel=1e-12)


@pytest.mark.parametrize(("value", "text"), [
    (5e-9, "5 ns"), (2.5e-3, "2.5 ms"), (12, "12.0 s"), (119.94, "119.9 s"), (180, "3 min"), (10800, "3 h"),
    (864000, "10.0 d"), (math.nan, "–"), (-12, "-12.0 s"), (0, "0.0 s"),
])  # fmt: skip
def test_times_for_people(value: float, text: str) -> None:
    assert show_time(value) == text


@pytest.mark.parametrize(("value", "text"), [(12, "12 B"), (25e6, "25 MB"), (1.5e9, "1.5 GB"), (3e12, "3 TB")])
def test_bytes_for_people(value: float, text: str) -> None:
    assert show_bytes(value) == text
