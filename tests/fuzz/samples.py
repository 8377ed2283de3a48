"""One small sound file of every form that a reader of Dally knows: what the fuzz spoils."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """`rows`: lines are jobs, so that they can be counted; `head`: lines before the first of them."""

    name: str
    data: bytes
    kind: str  # trace, cluster, nodes, scenario, sweep, outages, queues, throughputs, mix, pairs, conf, journal
    rows: bool = False
    head: int = 1


def _table(head: str, row: Callable[[int], str], count: int = 8) -> bytes:
    return ("\n".join([head, *(row(index) for index in range(count))]) + "\n").encode()


def _clock(minutes: int) -> str:
    return f"{10 + minutes // 60:02}:{minutes % 60:02}:00"


def _padded(text: str) -> bytes:
    """A dump as sacct prints it without -P: right-aligned under a line of dashes."""
    rows = [line.split("|") for line in text.splitlines()]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [" ".join(value.rjust(width) for value, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([lines[0], " ".join("-" * width for width in widths), *lines[1:], ""]).encode()


def _traces() -> list[Sample]:
    day = "2026-03-01"
    tiresias = _table("job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
                      lambda i: f"{i},{1 << i % 3},{i * 30},{100 + i},resnet50,{60 + 7 * i},0")  # fmt: skip
    philly = _table("timestamp,duration,num_gpus,gpu_time,cluster",
                    lambda i: f"{day} {_clock(i)},{60 + i},{1 << i % 3},60,vc{i % 2}")  # fmt: skip
    helios = _table("job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
                    lambda i: f"{i},u{i % 2},vc{i % 2},{1 << i % 3},1,1,{('COMPLETED', 'CANCELLED', 'FAILED')[i % 3]},{day} {_clock(i)},"
                              f"{day} {_clock(i + 5)},{day} {_clock(i + 20)},900,300")  # fmt: skip
    acme = _table("job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time",
                  lambda i: f"{i},u{i % 2},1,{1 << i % 3},1,Other,COMPLETED,{day} {_clock(i)}+08:00,{day} {_clock(i + 5)}+08:00,"
                            f"{day} {_clock(i + 20)}+08:00,900,300,7200")  # fmt: skip
    openb = _table("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
                   lambda i: f"pod-{i},1000,100,{1 + i % 2},{(1000, 460)[i % 2]},{('', 'V100M16|V100M32')[i % 2]},LS,Succeeded,{i * 60},"
                             f"{i * 60 + 900},{i * 60 + 30}")  # fmt: skip
    gavel = "".join(f"ResNet-18 (batch size 16)\tcmd\tdir\t--steps\t1\t{900 * (i + 1)}\t{1 + i % 2}\t1\t{(-1, 1.2)[i % 2]}\t{100 * i}\n"
                    for i in range(8)).encode()  # fmt: skip
    old = "".join(f"ResNet-18 (batch size 16)\tcmd\t--steps\t1\t{900 * (i + 1)}\t{100 * i}\t{1 + i % 2}\n" for i in range(8)).encode()
    swf = b"; UnixStartTime: 1700000000\n" + "".join(
        f"{i + 1} {60 * i} 5 {100 + i} {1 << i % 3} -1 -1 {1 << i % 3} 600 -1 1 {i % 3} 1 -1 1 1 -1 -1\n" for i in range(8)).encode()  # fmt: skip
    sacct = _table("JobID|JobName|Submit|Eligible|Start|End|State|AllocTRES|ReqTRES|TimelimitRaw|User|Account|NodeList|NNodes|Elapsed",
                   lambda i: f"{100 + i}|train|{day}T{_clock(i)}|{day}T{_clock(i)}|{day}T{_clock(i + 3)}|{day}T{_clock(i + 33)}|"
                             f"{('COMPLETED', 'TIMEOUT', 'CANCELLED by 7')[i % 3]}|billing=8,gres/gpu={1 << i % 3},node=1|"
                             f"gres/gpu:a100={1 << i % 3}|60|u{i % 2}|ml|n{i % 2 + 1}|1|00:30:00")  # fmt: skip
    sacct_json = {"jobs": [{"job_id": i, "time": {"submission": 1700000000 + i, "start": 1700000100 + i, "end": 1700000900 + i,
                                                 "elapsed": 800, "limit": {"set": True, "infinite": False, "number": 60}},
                            "state": {"current": ["COMPLETED"]}, "user": "u", "account": "ml", "nodes": "n[1-2]",
                            "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 2}], "requested": []}}
                           for i in range(4)]}  # fmt: skip
    padded = _padded(sacct.decode())
    controller = {"last_update": {"set": True, "infinite": False, "number": 1700002000}, "jobs": [
        {"job_id": i, "job_state": [("RUNNING", "COMPLETED", "PENDING")[i % 3]], "submit_time": {"set": True, "number": 1700000000 + i},
         "start_time": 1700000100 + i, "end_time": 1700000900 + i, "node_count": {"set": True, "number": 1}, "tasks": 2, "nodes": "n1", "user_name": "u",
         "gres_detail": [["gpu:h100:2(IDX:0-1)"], []][i % 2], "tres_per_task": "gres/gpu=1", "tres_per_socket": "gres/gpu:2", "sockets_per_node": 1,
         "time_limit": {"set": True, "infinite": False, "number": 60}} for i in range(6)]}  # fmt: skip
    philly_json = [{"jobid": f"j{i}", "status": "Pass", "vc": "v", "user": "u", "submitted_time": f"{day} {_clock(i)}",
                    "attempts": [{"start_time": f"{day} {_clock(i + 2)}", "end_time": f"{day} {_clock(i + 30)}",
                                  "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]} for i in range(4)]  # fmt: skip
    lucid = [{"job_id": f"a{i}", "duration": 100 + i, "max_parallelism": 2, "arrival_time": 30 * i, "model": "vgg16",
              "total_iterations": 500} for i in range(4)]  # fmt: skip
    pai = _table("job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
                 lambda i: f"j{i},tensorflow,1,Terminated,{1000 + i * 10}.0,{2000 + i * 10}.0,600.0,29.0,{(100, 50)[i % 2]}.0,V100")
    own = ("# dally-trace 1\n" '# {"name": "week", "format": "x", "origin": "2026-03-01T07:00:00", "notes": [], "dropped": {}, "repaired": {}}\n'
           "id,submit_time,gpus,duration,gpu_type,user,priority,failures,ran_on,within,wait,ending,means,min_gpus,max_gpus\n" + "".join(
               f'j{i},{i * 30},{1 << i % 3},{100 + i},,u{i % 2},0,"[0.5]","[[""m0"", 1]]",,,completed,best-placement,,\n' for i in range(6))).encode()  # fmt: skip
    return [
        Sample("tiresias.csv", tiresias, "trace", True), Sample("philly.csv", philly, "trace", True),
        Sample("helios.csv", helios, "trace", True), Sample("acme.csv", acme, "trace", True), Sample("openb.csv", openb, "trace", True),
        Sample("gavel.trace", gavel, "trace", True, 0), Sample("old.trace", old, "trace", True, 0), Sample("a.swf", swf, "trace", True),
        Sample("sacct.txt", sacct, "trace", True), Sample("padded.txt", padded, "trace", True, 2),
        Sample("squeue.json", json.dumps(controller, indent=1).encode(), "trace"), Sample("sacct.json", json.dumps(sacct_json).encode(), "trace"),
        Sample("philly.json", json.dumps(philly_json).encode(), "trace"), Sample("lucid.json", json.dumps(lucid, indent=1).encode(), "trace"),
        Sample("pai_task_table.csv", pai, "trace"), Sample("own.csv", own, "trace"),
    ]  # fmt: skip


CLUSTER = b"""dally-cluster: 1
name: lab
fabric:
  levels:
    - {name: rack, kind: switch, bandwidth: 200 Gbit/s, per: machine, latency: 2us}
    - {name: cluster, kind: switch, oversubscription: 2, latency: 4us}
racks: 2
machines: 2
machine: {preset: dgx-a100, gpus: 4}
"""
TREE = b"""dally-cluster: 1
fabric: ethernet-100g
machine: {preset: dgx-a100}
tree:
  - name: hall-1
    units:
      - name: rack-1
        machines:
          - {names: "n[01-03]"}
          - {name: old, gpu: v100, gpus: 4}
      - names: rack-[2-3]
        machines: [{count: 2}]
"""
SLURM_CONF = b"""ClusterName=lab
SelectType=select/cons_tres
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightJobSize=100
SchedulerParameters=bf_interval=600,bf_window=1440
NodeName=n[1-4] Gres=gpu:a100:4 CPUs=64 RealMemory=256000 State=UNKNOWN
PartitionName=gpu Nodes=n[1-4] Default=YES MaxTime=2-00:00:00 State=UP
"""
TOPOLOGY = b"SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\nSwitchName=top Switches=s[1-2]\n"


def _others() -> list[Sample]:
    scenario = b"trace: synth:philly\njobs: 12\ncluster: 1x2x4\nload: 0.9\nseed: 3\nmtbf: 30d\nknowledge: noisy=0.5\nwindow: all\n"
    sweep = b"name: s\nscenario: {trace: 'synth:philly', jobs: 6, cluster: 1x2x4}\npolicies: [fifo, las]\nvary: {load: [0.5, 1.0]}\nseeds: 1\n"
    rates = {f"('ResNet-18 (batch size 16)', {gpus})": {"null": 1.5 * gpus, "('ResNet-18 (batch size 16)', 1)": [1.0, 1.0]} for gpus in (1, 2)}
    mix = b"mix:\n  all:\n    gpus: [1, null]\n    duration: [0s, null]\n    models: {resnet50: 3, vgg16: 1}\n    source: estimate\n"
    return [
        Sample("lab.yaml", CLUSTER, "cluster"), Sample("tree.yaml", TREE, "cluster"), Sample("slurm.conf", SLURM_CONF, "cluster"),
        Sample("topology.conf", TOPOLOGY, "topology"), Sample("tiresias.csv", b"num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,2,4,60,256\n", "cluster"),
        Sample("nodes.csv", b"sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,4,V100M16\nn2,64000,262144,2,T4\n", "cluster"),
        Sample("scenario.yaml", scenario, "scenario"), Sample("sweep.yaml", sweep, "sweep"),
        Sample("outages.csv", b"machine,down,up\nrack0/m0,1h,2h\nrack0/m1,100,\n", "outages"),
        Sample("events.txt", b"Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\nc||2026-03-01T00:00:00|Unknown||count|\n"
               b"c|m0|2026-03-01T09:00:00|2026-03-01T10:10:00|DOWN*|gone|root(0)\nc|m1|2026-03-01T10:05:00|Unknown|DRAINED|fan|root(0)\n"
               b"c|m1|2026-03-01T10:20:00|2026-03-01T10:30:00|DOWN|fan|root(0)\n", "outages"),
        Sample("queues.yaml", b"queues:\n  vc0: {weight: 2, max_gpus: 4}\n  default: {weight: 0.5, max_jobs_per_user: 3}\n", "queues"),
        Sample("throughputs.json", json.dumps({"v100": rates, "k80": rates}).encode(), "throughputs"),
        Sample("mix.yaml", mix, "mix"), Sample("slurm.conf", SLURM_CONF, "conf"),
    ]  # fmt: skip


def all_samples() -> list[Sample]:
    return [*_traces(), *_others()]


_ODD = (b"", b"0", b"-1", b"1e308", b"1e999", b"9" * 25, b"10000000000000000000", b"nan", b"inf", b"-inf", b"None", b"null", b"Unknown", b"\"",
        b"'", b"\\", b"1e-320", b"0x10", b"1_000", b"\xff", b"\xc3\xa9", b"\x00", b"2026-02-30 10:00:00", b"0001-01-01", b"9999-12-31 23:59:59", b"1970-01-01",
        b"12:61:61", b"1-99:99:99", b"true", b"[]", b"{}", b"[0-999999999]", b"n[1-1000000000000]", b"4x", b"x8", b"1.5", b" ", b"\t", b"%", b"$", b"#", b"-",
        b"CANCELLED", b"WEIRD", b"gres/gpu=99999999999", b"&a [*a]", b"!!python/object:os.system", b"1e22", b"\xe2\x80\xa8", b"\x85", b"1h", b"-5m",
        b"x" * 5000)  # fmt: skip


def spoil(data: bytes, rng: random.Random) -> bytes:
    """The file after one to four things that happen to files."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(_WAYS)(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if made:
            made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    what = rng.randrange(4)
    if what == 0:
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif what == 1:
        del lines[at]
    elif what == 2:
        rng.shuffle(lines)
    else:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    return b"\n".join(lines)


def _field(data: bytes, rng: random.Random) -> bytes:
    """One field becomes something else, in one line or in all."""
    lines = data.split(b"\n")
    line = rng.randrange(len(lines))
    mark = max((b",", b"|", b"\t", b" ", b": ", b"="), key=lines[line].count)
    fields = lines[line].split(mark)
    at = rng.randrange(len(fields))
    if rng.random() < 0.2:
        other = rng.randrange(len(fields))
        fields[at], fields[other] = fields[other], fields[at]
    else:
        fields[at] = rng.choice(_ODD)
    lines[line] = mark.join(fields)
    if rng.random() < 0.1:
        value = rng.choice(_ODD)
        lines = [mark.join(value if index == at else part for index, part in enumerate(each.split(mark))) for each in lines]
    return b"\n".join(lines)


def _number(data: bytes, rng: random.Random) -> bytes:
    """Some number in it becomes another."""
    import re

    found = list(re.finditer(rb"\d+(?:\.\d+)?", data))
    if not found:
        return data
    match = rng.choice(found)
    return data[: match.start()] + rng.choice(_ODD) + data[match.end() :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(_ODD) + data[at:]


def _encode(data: bytes, rng: random.Random) -> bytes:
    what = rng.randrange(5)
    if what == 0:
        return b"\xef\xbb\xbf" + data
    if what == 1:
        return data.decode("latin-1").encode("utf-16")
    if what == 2:
        return data.replace(b"\n", b"\r\n")
    if what == 3:
        return data.replace(b"\n", b"\r")
    return data.replace(b"e", b"\xe9")


def _pack(data: bytes, rng: random.Random) -> bytes:
    import gzip
    import zipfile

    if rng.random() < 0.5:
        made = gzip.compress(data, mtime=0)
    else:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in range(rng.choice((1, 1, 1, 0, 2))):
                archive.writestr(f"{name}.csv", data)
        made = buffer.getvalue()
    return rng.choice((lambda x, _: x, _flip, _cut))(made, rng)


_WAYS = (_flip, _cut, _lines, _lines, _field, _field, _field, _number, _number, _number, _insert, _insert, _encode, _pack)
