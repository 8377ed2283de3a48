"""The commands, run as people run them, against an API that is really served over a service that plays along."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from api_serving import until

from dally.live.places import read_address

HERE = Path(__file__).parent
Done = subprocess.CompletedProcess[str]
Dally = Callable[..., Done]
STARTED: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """A test that fails leaves no service behind."""
    yield
    while STARTED:
        served = STARTED.pop()
        if served.poll() is None:
            served.kill()
            served.wait()


def start(state: Path, port: int = 0, config: Path | None = None) -> subprocess.Popen[bytes]:
    """A service of its own process, ready to answer. With a configuration, what it says is in `said` beside it."""
    words = [sys.executable, str(HERE / "served.py"), str(state), str(port), *([str(config)] if config else [])]
    with (config.with_name("said") if config else Path(os.devnull)).open("wb") as said:
        served = subprocess.Popen(words, stderr=said)
    STARTED.append(served)
    until(lambda: read_address(state) is not None or served.poll() is not None, 60)
    assert served.poll() is None
    return served


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def running(state: Path, nothing_is_left: None) -> Iterator[subprocess.Popen[bytes]]:
    served = start(state)
    yield served
    served.terminate()
    assert served.wait(30) == 0


@pytest.fixture
def dally(tmp_path: Path, state: Path) -> Dally:
    def run(*words: str, stdin: str | None = None, **variables: str) -> Done:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("DALLY_")}
        return subprocess.run([sys.executable, "-m", "dally.cli.main", *words], capture_output=True, text=True,
                              cwd=tmp_path, input=stdin, env={**plain, "DALLY_STATE": str(state), **variables},
                              timeout=120)  # fmt: skip

    return run


@pytest.mark.usefixtures("running")
def test_a_job_is_submitted_waited_for_and_seen(dally: Dally, tmp_path: Path) -> None:
    made = dally("submit", "--gpus", "2", "--name", "X", "--json", "--", "finish", "--gpus", "9")
    assert (made.returncode, json.loads(made.stdout)) == (0, {"id": "1"})
    assert dally("wait", "1").returncode == 0
    (row,) = json.loads(dally("queue", "--all", "--json").stdout)
    assert {name: row[name] for name in ("id", "name", "state", "attempts", "gpus")} == {
        "id": "1", "name": "X", "state": "finished", "attempts": 1, "gpus": 2}  # fmt: skip
    spec = json.loads(dally("job", "1", "--json").stdout)["spec"]
    assert spec["command"] == ["finish", "--gpus", "9"] and spec["directory"] == str(tmp_path)
    assert dally("logs", "1").stdout == dally("logs", "-f", "1").stdout == "hello\n"
    assert dally("queue").stdout == "no jobs\n"


@pytest.mark.usefixtures("running")
def test_exit_codes_say_how_it_went(dally: Dally) -> None:
    assert dally("submit", "--gpus", "1", "--wait", "--", "finish").returncode == 0
    failed = dally("submit", "--gpus", "1", "--wait", "--", "fail")
    assert failed.returncode == 1 and "job 2 (fail) failed, exit code 3" in failed.stderr
    assert dally("wait", "1", "2").returncode == 1
    dally("submit", "--gpus", "1", "--", "stay")
    assert dally("wait", "--timeout", "1s", "3").returncode == 5
    assert dally("cancel", "3").returncode == 0
    twice = dally("cancel", "3", "99")
    assert twice.returncode == 2
    assert twice.stderr.splitlines() == ["dally: job '3' is cancelled", "dally: there is no job '99'"]
    assert dally("wait", "3").returncode == 1
    assert dally("wait", "99").returncode == 2


@pytest.mark.usefixtures("running")
def test_the_id_of_an_array_stands_for_its_members(dally: Dally) -> None:
    made = dally("submit", "--gpus", "1", "--array", "0-2", "--json", "--", "stay")
    assert json.loads(made.stdout) == [{"id": "1_0"}, {"id": "1_1"}, {"id": "1_2"}]
    assert dally("cancel", "1").stdout.splitlines() == ["1_0 cancelled", "1_1 cancelled", "1_2 cancelled"]
    assert dally("wait", "1").returncode == 1


@pytest.mark.usefixtures("running")
def test_files_and_scripts_are_submitted_and_options_win_over_them(dally: Dally, tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("command: finish\ngpus: 1\nname: one\n---\ncommand: finish\ngpus: 2\nname: two\n")
    assert dally("submit", "jobs.yaml").stdout.split() == ["1", "2"]
    (tmp_path / "job.sh").write_text("#!/bin/bash\n#SBATCH --gpus=4 -J three --mail-type=END\necho $1\n")
    made = dally("submit", "job.sh", "--name", "mine", "--", "word")
    assert made.stdout.split() == ["3"] and "note: job.sh, line 2: --mail-type is left out" in made.stderr
    rows = json.loads(dally("queue", "--all", "--json").stdout)
    assert [(row["name"], row["gpus"]) for row in rows] == [("one", 1), ("two", 2), ("mine", 4)]
    command = json.loads(dally("job", "3", "--json").stdout)["spec"]["command"]
    assert command[:2] == ["/bin/bash", "-c"] and command[3:] == ["job.sh", "word"]


@pytest.mark.usefixtures("running")
def test_options_become_fields(dally: Dally) -> None:
    dally("submit", "--nodes", "2", "--gpus-per-node", "4", "--queue", "vision", "--priority", "-3", "--preferred", "rack",
          "--wait-for", "10m", "--grace", "1m", "--checkpoint", "ckpt", "--requeue-on", "3,75", "--retries", "2",
          "--time-limit", "2h", "--env", "A=1", "--env", "HOME", "--after-ok", "7,8", "--processes", "gpu", "--hold",
          "--output", "o-%j", "--", "stay")  # fmt: skip
    spec = json.loads(dally("job", "1", "--json").stdout)["spec"]
    assert (spec["nodes"], spec["gpus_per_node"], spec["queue"], spec["priority"]) == (2, 4, "vision", -3)
    assert spec["placement"] == {"preferred": "rack", "wait": 600.0}
    assert spec["checkpoint"]["grace"] == 60.0 and spec["checkpoint"]["directory"].endswith("/ckpt")
    assert (spec["requeue_on"], spec["retries"], spec["time_limit"], spec["after_ok"]) == ([3, 75], 2, 7200.0, ["7", "8"])
    assert (spec["environment"]["A"], spec["environment"]["HOME"]) == ("1", os.environ["HOME"])
    assert (spec["processes"], spec["hold"], spec["output"].endswith("/o-%j")) == ("gpu", True, True)


@pytest.mark.usefixtures("running")
def test_machines_policy_and_explanations_are_shown(dally: Dally) -> None:
    assert "rack0/m1" in dally("nodes").stdout
    assert dally("drain", "rack0/m1").stdout == "rack0/m1 drained\n"
    assert [node["state"] for node in json.loads(dally("nodes", "--json").stdout)] == ["up", "drained"]
    assert dally("resume", "rack0/m1").returncode == 0
    assert dally("drain", "rack0/m9").returncode == 2
    assert (dally("policy", "show").stdout, dally("policy", "set", "las").stdout) == ("fifo\n", "las\n")
    assert dally("policy", "set", "nope").returncode == 2
    assert "2 machines" in dally("topology").stdout
    tried = dally("submit", "--gpus", "1", "--dry-run", "--", "x")
    assert tried.stdout.lower().startswith("it would start at once on rack0/m0") and dally("queue").stdout == "no jobs\n"
    assert "GPUs in use" in dally("top").stdout and set(json.loads(dally("top", "--json").stdout)) >= {"nodes", "jobs"}


MISTAKES: list[tuple[tuple[str, ...], str]] = [
    (("submit",), "there is nothing to run: name a file, or write the command after --"),
    (("submit", "--", "x"), "the number of GPUs is missing: write --gpus N"),
    (("submit", "python", "--gpus", "1"), "there is no file 'python'; a command is written after --"),
    (("submit", "--gpus", "0", "--", "x"), "gpus: it must be at least 1, not 0"),
    (("submit", "--gpus", "1", "--time-limit", "10x", "--", "x"),
     "time_limit: '10x' is not a time: unknown unit 'x'; write it like 90s, 10m or 1.5h"),
    (("submit", "--gpus", "1", "--env", "NO_SUCH_VARIABLE", "--", "x"),
     "--env NO_SUCH_VARIABLE: there is no such variable here; write NO_SUCH_VARIABLE=VALUE"),
    (("job", "../../etc/passwd"), "there is nothing at /v1/jobs/../../etc/passwd"),
    (("queue", "--state", "asleep"), "state: there is no state 'asleep'; there are held, waiting, starting, running, "
     "yielding, lost, finished, failed, cancelled, rejected, active and ended"),
]  # fmt: skip


@pytest.mark.usefixtures("running")
def test_a_mistake_is_one_line_and_exit_code_two(dally: Dally) -> None:
    for words, sentence in MISTAKES:
        done = dally(*words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"dally: {sentence}\n")


def test_where_no_service_is_one_line_says_what_to_do_and_the_exit_code_is_four(dally: Dally) -> None:
    nobody = dally("queue")
    assert nobody.returncode == 4
    assert nobody.stderr == ("dally: no service answers at http://127.0.0.1:7433: start one with `dally serve`, or say "
                             "where it is with DALLY_URL\n")  # fmt: skip
    gone = dally("queue", DALLY_URL="http://127.0.0.1:9", DALLY_PATIENCE="0.3s")
    assert gone.returncode == 4 and "http://127.0.0.1:9 does not answer; trying again" in gone.stderr


def test_wait_lives_through_a_restart_of_the_service(dally: Dally, state: Path) -> None:
    first = start(state)
    url = read_address(state)
    assert url is not None
    dally("submit", "--gpus", "1", "--", "restart")
    waiting = subprocess.Popen([sys.executable, "-m", "dally.cli.main", "wait", "1"], stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "DALLY_URL": url})  # fmt: skip
    until(lambda: _asks(waiting))
    first.send_signal(signal.SIGKILL)
    first.wait()
    (state / "service.json").unlink()
    again = start(state, int(url.rpartition(":")[2]))
    _, said = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, said
    assert again.poll() is None
    again.terminate()
    again.wait(30)


def _asks(process: subprocess.Popen[str]) -> bool:
    """Whether it has opened a connection."""
    try:
        return any(str(link.readlink()).startswith("socket:") for link in Path(f"/proc/{process.pid}/fd").iterdir())
    except OSError:
        return False


def test_a_service_stops_cleanly_and_says_that_it_is_gone(dally: Dally, state: Path) -> None:
    served = start(state)
    dally("submit", "--gpus", "1", "--", "stay")
    served.terminate()
    assert served.wait(30) == 0 and read_address(state) is None
    assert dally("queue").returncode == 4


def test_the_configuration_is_read_again_at_a_signal_and_a_broken_one_changes_nothing(dally: Dally, state: Path,
                                                                                     tmp_path: Path) -> None:  # fmt: skip
    config, said = tmp_path / "dally.yaml", tmp_path / "said"
    config.write_text("policy: fifo\nlog: {format: json}\n")
    served = start(state, config=config)
    assert dally("policy", "show").stdout == "fifo\n"
    config.write_text("policy: las\ncluster: 2x2\nlog: {format: json}\n")
    served.send_signal(signal.SIGHUP)
    until(lambda: "these count only after a restart: cluster" in said.read_text())
    assert dally("policy", "show").stdout == "las\n"
    config.write_text("policy: nope\n")
    served.send_signal(signal.SIGHUP)
    until(lambda: "the configuration was not taken over" in said.read_text())
    assert dally("policy", "show").stdout == "las\n"
    first, *lines = said.read_text().splitlines()
    assert first.startswith("dally serves http://127.0.0.1:")
    assert [json.loads(line)["level"] for line in lines] == ["info", "warning", "error"]
    served.terminate()
    assert served.wait(30) == 0


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_with_tls_a_service_is_reached_by_those_who_trust_its_certificate(dally: Dally, state: Path, tmp_path: Path) -> None:
    made = ("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem "
            "-addext subjectAltName=IP:127.0.0.1,DNS:localhost")  # fmt: skip
    subprocess.run(made.split(), cwd=tmp_path, check=True, capture_output=True)
    config = tmp_path / "dally.yaml"
    config.write_text(f"policy: fifo\ntls: {{certificate: {tmp_path}/cert.pem, key: {tmp_path}/key.pem}}\n")
    served = start(state, config=config)
    url = read_address(state)
    assert url is not None and url.startswith("https://")
    assert dally("queue", DALLY_CA=str(tmp_path / "cert.pem")).stdout == "no jobs\n"
    stranger = dally("queue")
    assert stranger.returncode == 4 and "is not trusted: name the file" in stranger.stderr
    assert dally("queue", DALLY_CA="/no/such/file").returncode == 2
    served.terminate()
    served.wait(30)


def test_shells_are_told_how_to_complete(dally: Dally) -> None:
    assert "_dally_completion" in dally(_DALLY_COMPLETE="bash_source").stdout
    found = dally(_DALLY_COMPLETE="bash_complete", COMP_WORDS="dally que", COMP_CWORD="1").stdout
    assert found == "plain,queue\n"


def test_two_services_cannot_listen_on_one_port(state: Path, tmp_path: Path) -> None:
    served = start(state)
    url = read_address(state)
    assert url is not None
    other = subprocess.run([sys.executable, "-c", "import sys; from dally.cli.main import main\n"
                            "import dally.live.run as r\nfrom dally.live.config import read_config\n"
                            "from dally.core.errors import UserError\n"
                            f"try: r.run(lambda: read_config(None, {{'state': {str(tmp_path / 'b')!r}, 'policy': 'fifo', "
                            f"'listen': {{'port': {url.rpartition(':')[2]}}}}}), None)\n"
                            "except UserError as e: print(e); sys.exit(2)"], capture_output=True, text=True, timeout=60)  # fmt: skip
    assert other.returncode == 2 and "is a service there already? --port takes another one" in other.stdout
    served.terminate()
    served.wait(30)


def test_tokens_are_made_listed_and_removed(dally: Dally, state: Path) -> None:
    token = dally("token", "add", "alice").stdout.strip()
    assert token.startswith("dally_")
    admin = json.loads(dally("token", "add", "root", "--admin", "--json").stdout)["token"]
    served = start(state)
    refused = dally("queue")
    assert refused.returncode == 2 and "wants a token: set DALLY_API_TOKEN" in refused.stderr
    assert dally("submit", "--gpus", "1", "--", "stay", DALLY_API_TOKEN=token).stdout == "1\n"
    assert dally("drain", "rack0/m0", DALLY_API_TOKEN=token).returncode == 2
    assert dally("drain", "rack0/m0", DALLY_API_TOKEN=admin).returncode == 0
    assert [row["user"] for row in json.loads(dally("token", "list", "--json").stdout)] == ["alice", "root"]
    assert dally("token", "remove", "alice").returncode == 0
    assert dally("queue", DALLY_API_TOKEN=token).returncode == 2
    served.terminate()
    served.wait(30)


def test_looking_at_the_queue_imports_nothing_heavy() -> None:
    code = ("import sys; import dally.cli.live.queue, dally.cli.live.submit, dally.live.client\n"
            "print([name for name in ('fastapi', 'pydantic', 'numpy', 'polars', 'uvicorn', 'sqlalchemy') "
            "if name in sys.modules])")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"
