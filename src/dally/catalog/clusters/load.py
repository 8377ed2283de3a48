"""`load_cluster`: what a cluster argument means, and which reader it goes to."""

from __future__ import annotations

from pathlib import Path

from dally.catalog.clusters import shorthand
from dally.catalog.clusters.assembly import Planned, assemble
from dally.catalog.clusters.insides import DEFAULT_MACHINE, catalog_gpu, shape_inside
from dally.catalog.store import find_fabric, find_machine, gpus, normalise
from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.core.topology import Topology

DEFAULT_FABRIC = "dally"  # of shapes, which say nothing about the machines: the papers' figures refer to it
LISTED_FABRIC = "ethernet-100g"  # of pools and node lists, whose machines are real: one 100 Gbit/s port each
_FORMS = "a preset, a shape such as 4x8x8, pools such as v100=8,p100=16, or a file"


@dataclass(frozen=True, slots=True)
class LoadedCluster:
    """A cluster with what its reader had to leave out or assume, in sentences."""

    topology: Topology
    notes: tuple[str, ...] = ()


def load_cluster(text: str, *, fabric: str | None = None, gpu_type: str | None = None,
                 nodes: Path | None = None) -> Topology:  # fmt: skip
    """The cluster that `text` describes; `read_cluster` also says what was left out or assumed."""
    return read_cluster(text, fabric=fabric, gpu_type=gpu_type, nodes=nodes).topology


def read_cluster(text: str, *, fabric: str | None = None, gpu_type: str | None = None,
                 nodes: Path | None = None) -> LoadedCluster:  # fmt: skip
    """Presets win over files of the same name; `nodes` is the node list that goes with Slurm's topology."""
    from dally.catalog.clusters.presets import preset_entry

    text = text.strip()
    path = Path(text)
    entry = preset_entry(text)
    if nodes is not None and (entry is not None or not _exists(text)):
        raise UserError(f"cluster {text!r}: a node list goes with Slurm's topology.conf or topology.yaml only")
    if entry is not None:
        from dally.catalog.clusters.document import build_cluster

        return LoadedCluster(build_cluster(entry, entry.name.partition(".")[2], fabric, gpu_type))
    if shorthand.is_shape(text):
        return LoadedCluster(_shape(text, shorthand.parse_shape(text), fabric, gpu_type))
    if _exists(text):
        return _file(path, fabric, gpu_type, nodes)
    if shorthand.is_pools(text):
        if gpu_type is not None:
            raise UserError(f"cluster {text!r} names its GPU types; another one cannot be given")
        return LoadedCluster(assemble(text, shorthand.plan_pools(text), find_fabric(fabric or LISTED_FABRIC)))
    raise UserError(f"there is no cluster {text!r}; {_hint(text)}")


def assumed_fabric(text: str) -> str | None:
    """The fabric a cluster gets that says nothing of its links, where none is given; None where it describes them."""
    from dally.catalog.clusters.presets import preset_entry

    text = text.strip()
    if preset_entry(text) is not None:
        return None
    if shorthand.is_shape(text):
        return DEFAULT_FABRIC
    path = Path(text)
    if not _exists(text):
        return LISTED_FABRIC
    if path.suffix.lower() in (".yaml", ".yml") and path.name != "topology.yaml":
        return None
    return LISTED_FABRIC


def _exists(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or no name at all
        return False


def match_gpu_type(name: str, topology: Topology) -> str | None:
    """The cluster's own spelling of a GPU type that a trace or a user names; None where it has no such GPU."""
    if name in topology.gpu_types:
        return name
    for kind in topology.gpu_types:
        if normalise(kind) == normalise(name):
            return kind
    known = gpus().resolve(name)
    for kind in topology.gpu_types:
        if known is not None and gpus().resolve(kind) == known:
            return kind
    return None


def _hint(text: str) -> str:
    from difflib import get_close_matches

    from dally.catalog.clusters.presets import preset_names

    near = get_close_matches(text.lower(), preset_names(), n=3, cutoff=0.5)
    if near and not any(mark in text for mark in "/\\"):
        return f"did you mean {' or '.join(near)}?"
    return f"write {_FORMS}"


def _shape(name: str, counts: tuple[int, ...], fabric: str | None, gpu_type: str | None) -> Topology:
    links = find_fabric(fabric or DEFAULT_FABRIC)
    inside = shape_inside(links.name, counts[-1], gpu_type)
    return assemble(name, shorthand.plan_shape(counts, inside), links)


def _file(path: Path, fabric: str | None, gpu_type: str | None, nodes: Path | None) -> LoadedCluster:
    if path.is_dir():
        path = _in_folder(path)
    text = read_text(path)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        _no_nodes(path, nodes)
        return _table(path, text, fabric, gpu_type)
    if suffix in (".yaml", ".yml"):
        from dally.catalog.clusters.document import compose, entry_of, is_list

        root = compose(path, text)
        if not is_list(root):
            from dally.catalog.clusters.document import build_file

            _no_nodes(path, nodes)
            return LoadedCluster(build_file(entry_of(path, "cluster", root), path.stem, fabric, gpu_type))
    from dally.catalog.clusters.slurm import plan_slurm

    notes: list[str] = []
    default = _Default(gpu_type)
    planned = plan_slurm(path, text, nodes, default, notes)
    return _listed(path, planned, fabric, default, notes)


def _table(path: Path, text: str, fabric: str | None, gpu_type: str | None) -> LoadedCluster:
    from dally.catalog.clusters import tables

    header, rows = tables.read_rows(path, text)
    if set(tables.TIRESIAS) <= set(header):
        return LoadedCluster(_shape(path.stem, tables.tiresias_shape(path, rows), fabric, gpu_type))
    if set(tables.OPENB) <= set(header):
        notes: list[str] = []
        default = _Default(gpu_type)
        planned = tables.plan_openb(path, rows, default, notes)
        notes.append("the list says nothing about the network: every machine is a rack of its own")
        return _listed(path, planned, fabric, default, notes)
    raise UserError(
        f"{path}, line 1: a cluster table has the columns {', '.join(tables.TIRESIAS)} (Tiresias)"
        f" or {', '.join(tables.OPENB)} (openb nodes), not {', '.join(header) or 'none'}"
    )


class _Default:
    """The GPU type of machines whose file names none; remembers whether anybody asked."""

    def __init__(self, gpu_type: str | None) -> None:
        self.given = gpu_type is not None
        self.kind = find_machine(DEFAULT_MACHINE).gpu if gpu_type is None else catalog_gpu(gpu_type)
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        return self.kind


def _listed(path: Path, planned: list[Planned], fabric: str | None, default: _Default,
            notes: list[str]) -> LoadedCluster:  # fmt: skip
    if default.given and not default.asked:
        raise UserError(f"{path} names the GPU type of every machine; another one cannot be given")
    if default.asked and not default.given:
        notes.append(f"no GPU type is named for {default.asked} of {len(planned)} machines: {default.kind} assumed")
    topology = assemble(path.stem, planned, find_fabric(fabric or LISTED_FABRIC))
    return LoadedCluster(topology, tuple(notes))


def _in_folder(folder: Path) -> Path:
    """A folder such as /etc/slurm stands for its topology; Slurm itself prefers the YAML file."""
    for name in ("topology.yaml", "topology.conf", "slurm.conf"):
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"{folder}: the folder has none of topology.yaml, topology.conf and slurm.conf")


def _no_nodes(path: Path, nodes: Path | None) -> None:
    if nodes is not None:
        raise UserError(f"{path}: a node list goes with Slurm's topology.conf or topology.yaml only")


def read_text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
        raise UserError(f"{path} cannot be read: {reason}") from None
    if not text.strip():
        raise UserError(f"{path} is empty")
    return text
