"""Step time predicted from a measured fabric and profile against measured, over two namespaces with a shaped link.

    sudo python benchmarks/profiler/links.py            # needs root, iproute2 and dally[torch]; about ten minutes

Fabric and nothing else is fitted, at 1 Gbit and 100 Mbit; 300 Mbit is predicted with the share of the nominal rate that
the two fits agree on. The measured step at each rate is the median over windows of `dally profile run --machines`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mean

from dally.catalog.clusters import load_cluster
from dally.network.analytic import Analytic
from dally.network.explain import explain_step, parse_placement
from dally.network.step import StepOptions
from dally.profiler.document import Run, write_profile
from dally.profiler.fabric import Fabric, Link, cluster_file, measure_fabric
from dally.profiler.machines import parse_machines
from dally.profiler.measure import Found, Wish, measure

FITTED = ("1000mbit", "100mbit")
UNSEEN = "300mbit"
NAMES = ("dally-st0", "dally-st1")


def sh(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


@contextmanager
def two_machines() -> Iterator[None]:
    for name in NAMES:
        sh(f"ip netns add {name}")
    try:
        sh(f"ip link add dst0 netns {NAMES[0]} type veth peer name dst1 netns {NAMES[1]}")
        for number, name in enumerate(NAMES):
            sh(f"ip -n {name} addr add 10.78.0.{number + 1}/24 dev dst{number}")
            sh(f"ip -n {name} link set dst{number} up")
            sh(f"ip -n {name} link set lo up")
        yield
    finally:
        for name in NAMES:
            sh(f"ip netns del {name}")


def shape(rate: str) -> None:
    for number, name in enumerate(NAMES):
        sh(f"tc -n {name} qdisc replace dev dst{number} root tbf rate {rate} burst 128kb latency 200ms")


def nominal(rate: str) -> float:
    return float(rate.removesuffix("mbit")) * 125e3


def at_rate(fits: dict[str, Fabric], rate: str) -> Fabric:
    """The fabric at a rate nobody fitted: mean share of the nominal rate, mean latency."""
    links = {name: found.links[0] for name, found in fits.items()}
    share = mean(link.bandwidth / nominal(name) for name, link in links.items())
    latency = mean(link.latency for link in links.values())
    some = next(iter(fits.values()))
    link = Link("rack", 2, latency, 1 / (share * nominal(rate)), ())
    return replace(some, links=(link,))


def predicted(profile: Path, cluster: Path) -> float:
    topology = load_cluster(str(cluster))
    network = Analytic(topology, StepOptions(algorithm="ring"))
    return explain_step(network, str(profile), parse_placement("1+1", topology, 2), levels=False).profile.alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8, help="Small, so that links matter beside compute.")
    parser.add_argument("--models", nargs="*", default=["cnn", "mlp", "transformer"])
    parser.add_argument("--keep", type=Path, help="Folder for the profiles.")
    args = parser.parse_args()
    script = str(Path(__file__).with_name("trainings.py"))
    rows = []
    with tempfile.TemporaryDirectory() as temporary, two_machines():
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        machines = parse_machines(f"netns:{','.join(NAMES)}")
        fits = {}
        for rate in FITTED:
            shape(rate)
            fits[rate] = measure_fabric(machines, 1)
            link = fits[rate].links[0]
            print(
                f"{rate}: {link.bandwidth / 1e6:.1f} MB/s ({link.bandwidth / nominal(rate):.0%} of nominal), "
                f"{link.latency * 1e6:.0f} µs, fit off by at most {max(abs(r.off) for r in link.rungs):.0%}",
                flush=True,
            )
        for model in args.models:
            base = Wish(
                [sys.executable, script, model, "--batch-size", str(args.batch_size)],
                2,
                5,
                args.steps,
                args.repeats,
                threads=1,
                name=model,
                only=("all", "one"),
            )
            found = Found(base)
            measure(base, lambda text: None, found)
            apart: list[Run] = []
            for rate in (*FITTED, UNSEEN):
                shape(rate)
                wish = replace(base, machines=machines, link=rate, only=("apart",))
                there = Found(wish)
                measure(wish, lambda text: None, there)
                apart += there.apart()
            profile = found.profile()
            assert profile is not None and len(apart) == 3, (found.troubles, apart)
            profile = profile.model_copy(update={"apart": apart})
            path = folder / f"{model}.yaml"
            write_profile(profile, path)
            one, together = profile.runs["one"].step, profile.runs["all"].step
            print(
                f"{model}: one {1e3 * one:.1f} ms, two {1e3 * together:.1f} ms, without exchange "
                f"{1e3 * (profile.runs['all'].silent or 0):.1f} ms; {'; '.join(profile.notes)}",
                flush=True,
            )
            for run in apart:
                fabric = fits.get(run.link) or at_rate(fits, run.link)
                cluster = folder / f"{run.link}.yaml"
                cluster.write_text(cluster_file(fabric, run.link, "just now"))
                guess = predicted(path, cluster)
                stall = 100 * (run.step - together) / together
                rows.append(
                    {
                        "model": model,
                        "link": run.link,
                        "measured_ms": 1e3 * run.step,
                        "spread_ms": 1e3 * run.spread,
                        "predicted_ms": 1e3 * guess,
                        "off": guess / run.step - 1,
                        "network_stall_percent": stall,
                        "fitted": run.link in FITTED,
                    }
                )
                print(json.dumps(rows[-1]), flush=True)
    worst = max(abs(row["off"]) for row in rows if not row["fitted"])
    print(f"unseen rate {UNSEEN}: predicted over measured is off by at most {worst:.1%}")


if __name__ == "__main__":
    main()
