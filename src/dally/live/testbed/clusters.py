"""Which cluster a bed is made after: a cluster file, a shape, or the default."""

from __future__ import annotations

from pathlib import Path

from dally.core.topology import Topology
from dally.live.testbed.layout import DEFAULT_CLUSTER


def read_bed_cluster(text: str | None) -> tuple[Topology, str | None, tuple[str, ...]]:
    """The cluster, the text of its file where it has one, and what its reader had to assume."""
    from dally.catalog.clusters import read_cluster

    if text is None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "testbed.yaml"
            path.write_text(DEFAULT_CLUSTER)
            return read_cluster(str(path)).topology, DEFAULT_CLUSTER, ()
    loaded = read_cluster(text)
    path = Path(text)
    own = path.suffix in (".yaml", ".yml") and path.is_file() and path.name != "topology.yaml"
    return loaded.topology, path.read_text() if own else None, loaded.notes
