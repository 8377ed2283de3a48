"""A file that a command writes: beside first, put in place whole, and never over another one without `--force`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from filecmp import cmp
from pathlib import Path

import click

from dally.core.errors import UserError

force_file_option = click.option("--force", is_flag=True, help="Write over a file that is there.")


def check_free(path: Path, force: bool) -> None:
    """Before work that takes long, and whose result never is the same twice: a file that is there is somebody's."""
    if not force and _holds_something(path):
        raise UserError(f"{path} is there already: take another name, or --force to write over it")


@contextmanager
def whole_file(path: Path, force: bool) -> Iterator[Path]:
    """The name to write to. It takes the place of `path` when the body has come to its end; a file that is there gives
    way to the same bytes, or with `force`. What is no file (a pipe, /dev/stdout) is written to as it is."""
    if path.exists() and not path.is_file():
        try:
            yield path
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None
        return
    beside = path.with_name(f".part-{path.name}")  # its ending stays: it may decide what is written
    try:
        try:
            yield beside
            if not force and _holds_something(path) and not cmp(beside, path, shallow=False):
                raise UserError(f"{path} is there already and holds something else: take another name, or --force to "
                                "write over it")  # fmt: skip
            beside.replace(path)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from None
        except UserError as error:
            raise UserError(str(error).replace(str(beside), str(path))) from None
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def whole_page(path: Path) -> Iterator[Path]:
    """A page is drawn from what stays, and takes the place of a page; of nothing else, so that a slip of the hand
    costs no measurement."""
    if _holds_something(path):
        with path.open("rb") as file:
            if b"<html" not in file.read(200).lower():
                raise UserError(f"{path} is there already and is no page: take another name")
    with whole_file(path, force=True) as beside:
        yield beside


@contextmanager
def set_aside(path: Path | None) -> Iterator[None]:
    """The file is out of the way; it is back afterwards where nothing took its place and the body failed."""
    if path is None or not path.is_file():
        yield
        return
    aside = path.with_name(path.name + ".old")
    path.replace(aside)
    try:
        yield
    except BaseException:
        if not path.exists():
            aside.replace(path)
        raise
    finally:
        aside.unlink(missing_ok=True)


def write_whole(path: Path, text: str, force: bool) -> None:
    with whole_file(path, force) as beside:
        beside.write_text(text, encoding="utf-8")


def _holds_something(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > 0
    except OSError:
        return False
