"""Machines, fabrics and cloud instances as presets: what is inside a machine, and what joins machines."""

from __future__ import annotations

from dally.core.records import dataclass
from dally.core.topology import Level, LinkKind


@dataclass(frozen=True, slots=True)
class InnerLevel:
    """Links inside a machine: `units` GPUs (or groups of GPUs) joined by `link`, whose bandwidth is per GPU."""

    units: int
    link: Level


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type; `levels` goes from the GPUs outwards and its units multiply to `gpus`."""

    name: str
    gpu: str  # name in the catalog
    gpus: int
    levels: tuple[InnerLevel, ...]
    nics: int
    nic_bandwidth: float  # bytes/s of each NIC in each direction
    source: str
    aliases: tuple[str, ...] = ()
    title: str = ""

    @property
    def network_bandwidth(self) -> float:
        """Bytes/s of all NICs together, in each direction."""
        return self.nics * self.nic_bandwidth


@dataclass(frozen=True, slots=True)
class FabricLevel:
    """One level of a fabric: either a bandwidth per `per`, or an oversubscription of what is below it."""

    name: str
    kind: LinkKind
    latency: float  # seconds per hop
    bandwidth: float | None = None  # bytes/s in each direction
    per: str = "unit"  # gpu, nic, machine or unit: whose bandwidth that is
    oversubscription: float | None = None  # sum of the ports below over the uplink


@dataclass(frozen=True, slots=True)
class Fabric:
    """What joins machines, from the rack upwards."""

    name: str
    levels: tuple[FabricLevel, ...]
    source: str
    aliases: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """A cloud instance: a machine preset with a price."""

    name: str
    machine: str  # name in the catalog
    price: float  # US dollars per hour, on demand
    region: str
    date: str  # when that price was published
    source: str
    provider: str = ""
    vcpus: int | None = None
    spot: float | None = None  # US dollars per hour for capacity that may be taken back
    spot_date: str = ""
    estimated: bool = False  # the price is nobody's list price
    aliases: tuple[str, ...] = ()
    title: str = ""
