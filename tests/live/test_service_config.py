"""The configuration of a service: every field has a default, every mistake its file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from dally.core.errors import UserError
from dally.live.config import ServiceConfig, check_exposure, differences, read_config, reloadable


def test_a_service_needs_no_file_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DALLY_STATE", str(tmp_path))
    config = read_config(None).config
    assert (config.url, config.policy, config.folder) == ("http://127.0.0.1:7433", "dally", tmp_path)
    assert config.token_file == tmp_path / "tokens.json"


def test_options_win_over_the_file_and_host_and_port_may_come_from_different_places(tmp_path: Path) -> None:
    path = tmp_path / "dally.yaml"
    path.write_text("policy: las\nlisten: 0.0.0.0:80\nstate: /var/lib/dally\nqueues:\n  vision: {weight: 2}\n  other:\n")
    config = read_config(path, {"policy": "fifo", "listen": {"port": 8080}, "store": None}).config
    assert (config.policy, config.listen.host, config.listen.port) == ("fifo", "0.0.0.0", 8080)
    assert (config.queues["vision"].weight, config.queues["other"].weight) == (2.0, 1.0)


@pytest.mark.parametrize(("text", "sentence"), [
    ("polcy: fifo\n", "line 1: polcy: there is no such field; did you mean policy?"),
    ("state: /x\npolicy: nope\n", "line 2: policy: there is no policy 'nope'"),
    ("cluster: no-such-cluster\n", "line 1: cluster: "),
    ("listen: everywhere\n", "line 1: listen: 'everywhere' is not where to listen; write 127.0.0.1:7433 or [::1]:7433"),
    ("listen: {port: 70000}\n", "line 1: listen.port: it must be at most 65535, not 70000"),
    ("rules:\n  retrys: 1\n", "line 2: rules.retrys: there is no such field; did you mean retries?"),
    ("queues:\n  a:\n    weight: 0\n", "line 3: queues.a.weight: it must be above 0, not 0"),
    ("log: {level: loud}\n", "line 1: log.level: it must be 'debug', 'info', 'warning' or 'error', not 'loud'"),
    ("store: mysql://x\n", "line 1: store: write a URL such as postgresql://user@host/name, not 'mysql://x'"),
    ("output: {size: big}\n", "line 1: output.size: 'big' is not a size; write it like 25MB or 1.5GiB"),
    ("tls: {certificate: /no/such, key: /no/such}\n", "line 1: tls.certificate: /no/such cannot be read"),
    ("- a\n", "line 1: it must be a mapping of fields to values"),
])  # fmt: skip
def test_what_is_wrong_is_said_with_file_line_and_field(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "dally.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_config(path).check()
    assert str(caught.value).startswith(f"{path}, {sentence}")


def test_what_can_change_while_the_service_runs_is_declared() -> None:
    assert reloadable() == {"policy", "queues", "rules", "stop", "log"}
    old = ServiceConfig()
    new = ServiceConfig(policy="las", state="/elsewhere")
    assert differences(old, new) == ({"policy"}, {"state"})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_on_loopback_no_tokens_are_needed(host: str) -> None:
    check_exposure(read_config(None, {"listen": {"host": host}}).config, tokens=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_others_are_let_in_only_with_tokens_and_tls(host: str) -> None:
    config = read_config(None, {"listen": {"host": host}}).config
    with pytest.raises(UserError, match="there are no tokens"):
        check_exposure(config, tokens=False)
    with pytest.raises(UserError, match="without TLS sends tokens in the clear"):
        check_exposure(config, tokens=True)
    insecure = config.model_copy(update={"insecure": True})
    check_exposure(insecure, tokens=True)
    with pytest.raises(UserError, match="there are no tokens"):
        check_exposure(insecure, tokens=False)


@pytest.mark.parametrize(("text", "said"), [
    ("engine: slurm\nslurm: {options: [--nodelist=n1]}\n", "--nodelist is what the service itself says to sbatch"),
    ("engine: slurm\nslurm: {options: [partition]}\n", "options"),
    ("engine: slurm\nslurm: {poll: 0s}\n", "poll"),
    ("slurm: {poll: 2s}\n", "it counts for `engine: slurm` only"),
])  # fmt: skip
def test_what_slurm_cannot_be_told_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "dally.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        read_config(file).check()
    assert said in str(error.value) and "line" in str(error.value)


def test_slurm_is_configured_in_a_part_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "dally.yaml"
    file.write_text("engine: slurm\nslurm: {options: [--partition=gpu, --cpus-per-gpu=8], poll: 2s, python: /usr/bin/python3}\n")
    configured = read_config(file)
    configured.check()
    found = configured.config.slurm
    assert found.options == ["--partition=gpu", "--cpus-per-gpu=8"] and found.poll == 2.0
