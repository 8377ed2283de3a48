"""Clusters from whatever describes them: a shape, pools, a preset, a YAML file, a CSV table or Slurm's files."""

from __future__ import annotations

from dally.catalog.clusters.describe import (
    ClusterDescription,
    FabricRow,
    LevelRow,
    PresetRow,
    describe_cluster,
    describe_clusters,
    describe_fabrics,
)
from dally.catalog.clusters.load import LoadedCluster, load_cluster, match_gpu_type, read_cluster

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
