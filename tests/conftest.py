"""What all tests share: hypothesis profiles, the reference results, and how golden files are renewed.

`pytest --update-golden` writes the golden journals and rendered pictures anew; read the difference before
committing it. `pytest --hypothesis-profile=explore` searches at random and longer than the everyday profile,
which tries the same examples every time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

if TYPE_CHECKING:
    from dally.live.testbed.bed import Bed
    from postgres import Postgres

if not os.environ.get("DALLY_COMPILED"):  # calls can be counted, and functions replaced, in pure Python alone
    os.environ["DALLY_PURE"] = "1"
sys.path.insert(0, str(Path(__file__).parent))  # so that tests of every room can import `builders`

_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture)
settings.register_profile(  # says at once what fails; `explore` looks for the smallest example that does
    "everyday", deadline=None, derandomize=True, max_examples=24, suppress_health_check=_QUIET,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
settings.register_profile("explore", deadline=None, max_examples=400, suppress_health_check=_QUIET)
settings.load_profile("everyday")


def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis also draws constants of whatever modules are imported by then, so that the examples of a test would
    depend on which tests ran before it in the same process. The everyday profile tries the same ones every time."""
    if config.getoption("--hypothesis-profile", None) is None:
        providers.is_local_module_file = lambda path: False  # type: ignore[assignment, unused-ignore]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def tiresias() -> Path:
    """Folder with the results of the released Tiresias simulator, kept beside the repository."""
    chosen = os.environ.get("DALLY_REFERENCE")
    base = Path(chosen) if chosen else Path(__file__).parents[1].parent / "shared"
    for folder in (base / "tiresias", base / "reference" / "tiresias"):
        if folder.is_dir():
            return folder
    pytest.skip("the reference results are not beside the repository; set DALLY_REFERENCE")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, where it is installed."""
    from postgres import Postgres, programs

    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    server = Postgres()
    yield server
    server.close()


@pytest.fixture(scope="module")
def slurm_bed() -> Iterator[Bed]:
    """A real Slurm of 2 racks × 2 nodes × 2 GPUs, where one can be made."""
    from slurmbed import bed

    with bed("2x2x2") as made:
        yield made
