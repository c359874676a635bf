"""Seconds to the first tokens; see decode.py."""

from decode import timings


def bench(item, setting, seconds):
    return timings(item, setting, seconds, "first")
