"""What was typed, as a record that can be run again: the words of the command line, and digests of its files."""

from __future__ import annotations

from collections.abc import Collection

import click
from click.core import ParameterSource

NO_MATTER = ("out", "force", "workers", "as_json", "quiet")  # options that change no result


def given(context: click.Context, files: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """`files`: options whose values may name one."""
    from dally.simulator.digests import digest_of

    words: list[str] = []
    digests: dict[str, str] = {}
    for option in context.command.params:
        name = option.name or ""
        if name in NO_MATTER or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        for each in value if isinstance(value, tuple) else (value,):
            words += [option.opts[0]] if isinstance(each, bool) else [option.opts[0], str(each)]
            digest = digest_of(str(each)) if name in files else None
            if digest is not None:
                digests[str(each)] = digest
    return words, digests
