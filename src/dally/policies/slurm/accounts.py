"""What slurmdbd knows and slurm.conf does not: accounts and users with their shares and limits, QOS, reservations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

ROOT = "root"  # the account above all others


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that some jobs may have at a time, all together; None: any number."""

    jobs: int | None = None
    gpus: int | None = None
    nodes: int | None = None
    gpu_seconds: float | None = None  # that their limits still leave them (GrpTRESRunMins)
    typed: tuple[tuple[str, int], ...] = ()  # GPUs of one type

    @property
    def any(self) -> bool:
        return self != NO_CAPS

    def scaled(self, by: float) -> Caps:
        """So many times as much of everything, rounded up."""
        return Caps(_times(self.jobs, by), _times(self.gpus, by), _times(self.nodes, by),
                    None if self.gpu_seconds is None else self.gpu_seconds * by,
                    tuple((kind, _times(most, by) or 0) for kind, most in self.typed))  # fmt: skip


NO_CAPS = Caps()


def _times(most: int | None, by: float) -> int | None:
    return None if most is None else int(-(-most * by // 1))


@dataclass(frozen=True, slots=True)
class Association:
    """An account, or a user in an account; `group` is for all under it together, `each` for one user of it."""

    account: str
    user: str | None = None
    parent: str = ROOT  # of an account; a user's is its account
    shares: float = 1.0
    group: Caps = NO_CAPS
    each: Caps = NO_CAPS


@dataclass(frozen=True, slots=True)
class Qos:
    name: str
    priority: int = 0
    preempt: frozenset[str] = frozenset()  # QOS whose jobs it may preempt
    usage_factor: float = 1.0
    group: Caps = NO_CAPS
    per_user: Caps = NO_CAPS
    per_account: Caps = NO_CAPS
    reserves: bool = True  # not NoReserve
    over_partition: bool = False  # its limits go before those of the partition's QOS
    exempt_time: float = 0.0  # seconds its jobs run before anybody may preempt them


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that are for jobs submitted to it, from `begin` to `end`, seconds since 1970 on the clock of the dump."""

    name: str
    begin: float
    end: float
    nodes: tuple[str, ...] | None  # None: all


@dataclass(frozen=True, slots=True)
class Accounts:
    associations: Mapping[tuple[str, str | None], Association] = field(default_factory=dict)
    qos: Mapping[str, Qos] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()

    @property
    def limits(self) -> int:
        """Associations and QOS that have any."""
        return (sum(each.group.any or each.each.any for each in self.associations.values())
                + sum(each.group.any or each.per_user.any or each.per_account.any for each in self.qos.values()))

    def scaled(self, by: float) -> Accounts:
        """The same with every limit so many times as large."""
        return replace(self, associations={key: replace(each, group=each.group.scaled(by), each=each.each.scaled(by))
                                           for key, each in self.associations.items()},
                       qos={name: replace(each, group=each.group.scaled(by), per_user=each.per_user.scaled(by),
                                          per_account=each.per_account.scaled(by))
                            for name, each in self.qos.items()})  # fmt: skip

    def unlimited(self) -> Accounts:
        return replace(self, associations={key: replace(each, group=NO_CAPS, each=NO_CAPS)
                                           for key, each in self.associations.items()},
                       qos={name: replace(each, group=NO_CAPS, per_user=NO_CAPS, per_account=NO_CAPS)
                            for name, each in self.qos.items()})  # fmt: skip


NO_ACCOUNTS = Accounts()
