"""Clusters from whatever describes them: a shape, pools, a preset, a YAML file, a CSV table or Slurm's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dally.catalog.clusters.load import LoadedCluster, load_cluster, match_gpu_type, read_cluster

if TYPE_CHECKING:
    from dally.catalog.clusters.describe import (
        ClusterDescription,
        FabricRow,
        LevelRow,
        PresetRow,
        describe_cluster,
        describe_clusters,
        describe_fabrics,
    )

__all__ = [
    "ClusterDescription",
    "FabricRow",
    "LevelRow",
    "LoadedCluster",
    "PresetRow",
    "describe_cluster",
    "describe_clusters",
    "describe_fabrics",
    "load_cluster",
    "match_gpu_type",
    "read_cluster",
]


def __getattr__(name: str) -> Any:
    """What describes a cluster is fetched when first asked for: every simulation loads one, and few describe it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dally.catalog.clusters import describe

    return getattr(describe, name)
