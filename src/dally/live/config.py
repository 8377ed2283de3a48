"""What a service is told about itself: `dally.yaml` and the options of `dally serve` (docs/formats/service.md)."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from dally.core.errors import UserError
from dally.core.units import size_bytes
from dally.live.lines import Document, documents, read_text
from dally.live.places import HOST, PORT, default_state
from dally.live.spec import Duration, Label, Name

# what the engine says to `sbatch` itself
_NOT_YOURS = frozenset(("--hold", "--requeue", "--no-requeue", "--comment", "--job-name", "--chdir", "--export",
                        "--nodes", "--nodelist", "--ntasks", "--ntasks-per-node", "--distribution", "--gpus",
                        "--gpus-per-node", "--gpus-per-task", "--gres", "--output", "--error", "--array", "--time",
                        "--wrap", "--parsable", "--test-only", "--wait"))  # fmt: skip
_RELOAD: dict[str, Any] = {"reload": True}  # may change while the service runs


def _size(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"it must be a size such as 8MB, not {value!r}")
    try:
        found = size_bytes(value)
    except UserError as error:
        raise ValueError(str(error)) from None
    if found < 1:
        raise ValueError("it must be at least one byte")
    return int(found)


def _listen(value: Any) -> Any:
    """`7433`, `0.0.0.0:7433`, `[::1]:7433` or {host, port}."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"port": value}
    if isinstance(value, str):
        host, colon, port = value.rpartition(":")
        if not colon or not port.isdigit() or not host:
            raise ValueError(f"{value!r} is not where to listen; write 127.0.0.1:7433 or [::1]:7433")
        return {"host": host.strip("[]"), "port": int(port)}
    return value


def _all_defaults(value: Any) -> Any:
    return {} if value is None else value  # `research:` with nothing after it is a queue too


Size = Annotated[int, BeforeValidator(_size), WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]})]
SlurmOption = Annotated[str, Field(pattern=r"^--[a-z-]+(=.*)?$", max_length=1000)]
PathText = Annotated[str, Field(min_length=1, max_length=4000)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Listen(_Part):
    host: Annotated[str, Field(min_length=1)] = HOST
    port: Annotated[int, Field(ge=0, le=65535)] = PORT  # 0: any that is free

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class Tls(_Part):
    certificate: PathText
    key: PathText


class QueueConfig(_Part):
    weight: Annotated[float, Field(gt=0)] = 1.0
    max_gpus: Annotated[int, Field(ge=1)] | None = None
    max_gpus_per_user: Annotated[int, Field(ge=1)] | None = None
    max_jobs_per_user: Annotated[int, Field(ge=1)] | None = None


class RulesConfig(_Part):
    """What a live world keeps to where a job says nothing of its own."""

    retries: Annotated[int, Field(ge=0, le=1000)] = 0
    start_timeout: Duration = 60.0


class OutputConfig(_Part):
    files: Annotated[int, Field(ge=1, le=1000)] = 8
    size: Size = 8_000_000


class LogConfig(_Part):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    requests: bool = False  # a line for every request


class LimitsConfig(_Part):
    body: Size = 1_000_000  # bytes of one request
    writes: Annotated[int, Field(ge=1)] = 256  # requests that change something, at a time
    requests: Annotated[int, Field(ge=1)] = 1024  # of any kind, at a time
    streams: Annotated[int, Field(ge=1)] = 1000  # of events, at a time


class SlurmConfig(_Part):
    """How the engine `slurm` uses the Slurm it finds."""

    options: list[SlurmOption] = []
    srun: list[SlurmOption] = []
    python: PathText | None = None
    poll: Annotated[Duration, Field(gt=0)] = 1.0
    command_timeout: Annotated[Duration, Field(gt=0)] = 20.0
    before_reservations: Duration = 3600.0

    @model_validator(mode="after")
    def _ours(self) -> SlurmConfig:
        for option in self.options:
            if option.partition("=")[0] in _NOT_YOURS:
                raise ValueError(f"options: {option.partition('=')[0]} is what the service itself says to sbatch")
        return self


class ServiceConfig(_Part):
    """Every field has a default: a service needs no file at all."""

    state: PathText | None = None
    store: PathText | None = None
    listen: Annotated[
        Listen, BeforeValidator(_listen),
        WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "object"}]}),
    ] = Listen()  # fmt: skip
    tls: Tls | None = None
    tokens: PathText | None = None
    policy: Label = Field("dally", json_schema_extra=_RELOAD)
    cluster: PathText | None = None
    engine: Literal["local", "slurm"] = "local"
    slurm: SlurmConfig = SlurmConfig()
    queues: dict[Name, Annotated[QueueConfig, BeforeValidator(_all_defaults)]] = Field({}, json_schema_extra=_RELOAD)
    rules: RulesConfig = Field(RulesConfig(), json_schema_extra=_RELOAD)
    output: OutputConfig = OutputConfig()
    stop: Literal["go-on", "checkpoint"] = Field("go-on", json_schema_extra=_RELOAD)
    log: LogConfig = Field(LogConfig(), json_schema_extra=_RELOAD)
    limits: LimitsConfig = LimitsConfig()
    insecure: bool = False  # beyond loopback without TLS: something in front of the service has it

    @model_validator(mode="after")
    def _where(self) -> ServiceConfig:
        if self.store is not None and not self.store.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:")):
            raise ValueError(f"store: write a URL such as postgresql://user@host/name, not {self.store!r}")
        return self

    @property
    def folder(self) -> Path:
        return Path(self.state) if self.state is not None else default_state()

    @property
    def token_file(self) -> Path:
        return Path(self.tokens) if self.tokens is not None else self.folder / "tokens.json"

    @property
    def url(self) -> str:
        host = f"[{self.listen.host}]" if ":" in self.listen.host else self.listen.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.listen.port}"


class Configured:
    """A configuration and where each field of it stands, so that what is wrong later can be said with its line."""

    def __init__(self, config: ServiceConfig, document: Document | None = None) -> None:
        self.config, self._document = config, document

    def check(self) -> None:
        """What only shows when it is tried: the policy, the cluster, files that must be there."""
        from dally.policies.options import make_policy

        config = self.config
        try:
            make_policy(config.policy)
        except UserError as error:
            raise self._fail("policy", error) from None
        if config.engine != "slurm" and config.slurm != SlurmConfig():
            raise self._fail("slurm", UserError("it counts for `engine: slurm` only"))
        if config.cluster is not None:
            from dally.catalog.clusters import load_cluster

            try:
                load_cluster(config.cluster)
            except UserError as error:
                raise self._fail("cluster", error) from None
        for name, path in (("tls.certificate", config.tls and config.tls.certificate),
                           ("tls.key", config.tls and config.tls.key)):  # fmt: skip
            if path and not os.access(path, os.R_OK):
                raise self._fail(name, UserError(f"{path} cannot be read"))
        if config.tls is not None:
            _certificate(config.tls)

    def _fail(self, field: str, error: UserError) -> UserError:
        where = tuple(field.split("."))
        if self._document is None or where not in self._document.lines:
            return error
        return self._document.fail(where, str(error))


def read_config(path: Path | None, over: dict[str, Any] | None = None) -> Configured:
    """The file, with what the command line gives in its place; one sentence for what is wrong."""
    given = {name: value for name, value in (over or {}).items() if value is not None}
    if path is None:
        return Configured(Document("the options", given, {}).read(ServiceConfig))
    found = documents(str(path), read_text(path))
    if len(found) > 1:
        raise UserError(f"{path}: it must hold one document, not {len(found)}")
    document = found[0] if found else Document(str(path), {}, {})
    if not isinstance(document.data, dict):
        raise document.fail((), "it must be a mapping of fields to values")
    data = dict(document.data)
    document.read(ServiceConfig)  # what is wrong in the file is said even where an option hides it
    if "listen" in given and "listen" in data:  # host and port may come from different places
        try:
            data["listen"] = {**_listen(data["listen"]), **given.pop("listen")}
        except ValueError as error:
            raise document.fail(("listen",), str(error)) from None
    document = Document(document.name, {**data, **given}, document.lines)
    return Configured(document.read(ServiceConfig), document)


def reloadable() -> frozenset[str]:
    """Fields that may change while the service runs (SIGHUP)."""
    return frozenset(name for name, info in ServiceConfig.model_fields.items() if info.json_schema_extra == _RELOAD)


def differences(old: ServiceConfig, new: ServiceConfig) -> tuple[frozenset[str], frozenset[str]]:
    """Fields that changed: those that count at once, and those that need a restart."""
    changed = {name for name in ServiceConfig.model_fields if getattr(old, name) != getattr(new, name)}
    return frozenset(changed & reloadable()), frozenset(changed - reloadable())


def check_exposure(config: ServiceConfig, tokens: bool) -> None:
    """Nobody but this machine may reach a service that asks nobody who they are, or in the clear."""
    if config.listen.loopback:
        return
    where = config.listen.host
    if not tokens:
        raise UserError(f"listening on {where} lets others in, and there are no tokens: make one with `dally token add "
                        f"USER --admin --state {config.folder}`, or listen on 127.0.0.1")  # fmt: skip
    if config.tls is None and not config.insecure:
        raise UserError(f"listening on {where} without TLS sends tokens in the clear: give tls.certificate and tls.key "
                        "in the configuration, or --insecure if something in front of the service has TLS")  # fmt: skip


def _certificate(tls: Tls) -> None:
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
    except (ssl.SSLError, OSError) as error:
        raise UserError(f"tls: {tls.certificate} and {tls.key} are no certificate and its key: {error}") from None
