"""What mypyc compiles without a word and into something else: found in the sources, before anything is compiled.

Each rule stands for a difference between the two builds that was met. A class that breaks one goes to a module that
stays Python (`[tool.dally.compiled]` in pyproject.toml), or is written another way.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from pathlib import Path

MEMORY = "dally.core.memory.Memory"
POLICY = "dally.core.policy_base.PolicyBase"
# mypyc leaves these as they are: their classes may be derived from, and have no layout of their own
_PYTHON = {"NamedTuple", "Enum", "Protocol", "TypedDict", "Exception", "LookupError", "ValueError"}


def differences(package: Path, compiled: Sequence[str]) -> list[str]:
    """Where what is to be compiled would mean something else; a sentence each. `compiled`: paths inside the package,
    without `.py`."""
    names = set(compiled)
    known = _Classes(package)
    found: list[str] = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).with_suffix("").as_posix()
        if name in names:
            found += [f"{name}.py:{line}: {what}" for line, what in _identities(path.read_text())]
        for each in known.classes_of(name):
            where = f"{name}.py:{each.lineno}, class {each.name}"
            for what in _native(known, name, each) if name in names else _plain(known, name, each, names):
                found.append(f"{where}: {what}")
    return found


def _native(known: _Classes, module: str, each: ast.ClassDef) -> Iterator[str]:
    above = [base for base, _ in known.above(module, each)]
    if MEMORY in above:
        yield "a memory's fields are its annotations, and compiled classes have none; it must stay Python"
    if POLICY in above:
        yield "policies derive from plain Python and are derived from; it must stay Python"
    decorators = {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in each.decorator_list}
    if "runtime_checkable" in decorators:
        yield "compiled protocols cannot be checked with isinstance; it must stay Python"
    methods = {member.name: member for member in each.body if isinstance(member, ast.FunctionDef)}
    if "__len__" in methods and "__bool__" not in methods:
        yield "mypyc takes `if x` of an optional object as true even where its length is 0; say `__bool__`, too"
    for method in methods.values():
        if any(ast.unparse(decorator).endswith("cached_property") for decorator in method.decorator_list):
            yield f"mypyc works out a cached_property at every use ({method.name}); keep it in a field"


def _identities(text: str) -> Iterator[tuple[int, str]]:
    """Where things are compared by identity that may be tuples or numbers: `a is b` for two things that are neither
    constants nor classes, on a line that does not say `# objects`."""
    lines = text.splitlines()
    for each in ast.walk(ast.parse(text)):
        if isinstance(each, ast.Compare) and isinstance(each.ops[0], (ast.Is, ast.IsNot)):
            sides = [each.left, *each.comparators]
            if not any(map(_has_identity, sides)) and "# objects" not in lines[each.lineno - 1]:
                yield each.lineno, (f"`{ast.unparse(each)}`: compiled, tuples and numbers have no identity; compare "
                                    "them with `==`, or write `# objects` where they are neither")  # fmt: skip


def _has_identity(side: ast.expr) -> bool:
    """A constant, a class, a function of one, a type: mypyc takes these for what they are."""
    written = ast.unparse(side)
    if isinstance(side, ast.Constant) or written.startswith("type("):
        return True
    first, last = written.split(".")[0], written.split(".")[-1]
    return written in dir(builtins) or last[:1].isupper() or first[:1].isupper()


def _plain(known: _Classes, module: str, each: ast.ClassDef, compiled: set[str]) -> Iterator[str]:
    for base, native in known.above(module, each):
        if native and base.startswith("dally.") and (home := known.home(base)) in compiled:
            yield f"it derives from {base.rsplit('.', 1)[1]}, which is compiled ({home}.py): plain Python cannot"


class _Classes:
    """All classes of the package by their whole names, and what they derive from."""

    def __init__(self, package: Path) -> None:
        self._defined: dict[str, tuple[str, ast.ClassDef]] = {}
        self._imported: dict[str, str] = {}  # `module.name` → what it is called where it comes from
        self._of: dict[str, list[ast.ClassDef]] = {}
        for path in package.rglob("*.py"):
            name = path.relative_to(package).with_suffix("").as_posix()
            dotted = "dally." + name.replace("/", ".")
            for each in ast.walk(ast.parse(path.read_text())):
                if isinstance(each, ast.ClassDef):
                    self._of.setdefault(name, []).append(each)
                    self._defined[f"{dotted}.{each.name}"] = (name, each)
                elif isinstance(each, ast.ImportFrom) and each.module is not None and each.module.startswith("dally"):
                    for alias in each.names:
                        self._imported[f"{dotted}.{alias.asname or alias.name}"] = f"{each.module}.{alias.name}"

    def classes_of(self, module: str) -> list[ast.ClassDef]:
        return self._of.get(module, [])

    def home(self, name: str) -> str | None:
        return self._defined[name][0] if name in self._defined else None

    def above(self, module: str, each: ast.ClassDef) -> list[tuple[str, bool]]:
        """All classes it derives from, at any distance, and whether mypyc would give them a layout of their own."""
        found: list[tuple[str, bool]] = []
        for base in each.bases:
            written = ast.unparse(base).split("[")[0]
            name = f"dally.{module.replace('/', '.')}.{written}"
            while name in self._imported:
                name = self._imported[name]
            if name not in self._defined:
                found.append((written.split(".")[-1], False))
                continue
            home, parent = self._defined[name]
            further = self.above(home, parent)
            found.append((name, not _PYTHON.intersection(one for one, _ in further)))
            found += further
        return found
