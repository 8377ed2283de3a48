"""One rank of a benchmark job: asks the starter for a process with PyTorch loaded, and lives and dies with it.

Importing PyTorch takes two CPU seconds; sixteen ranks that start at once would have this host, not the cluster, for
their bottleneck. The process that trains is forked in the starter, enters the namespaces of this one, and has its
output, environment and working directory. Signals are handed on; when either of the two dies, so does the other.
Without BENCHMARK_STARTER the job is run right here. Imports little: it is started often.
"""

import json
import os
import signal
import socket
import sys

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)


def main() -> int:
    path = os.environ.get("BENCHMARK_STARTER")
    if not path:
        sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]  # noqa: PTH100, PTH120
        from testbed.train import main as train

        train(sys.argv[1:])
        return 0
    forwarded = []
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def hand_on(number: int, frame: object) -> None:
        forwarded.append(number)
        connection.send(bytes([number]))

    for number in SIGNALS:
        signal.signal(number, hand_on)
    connection.connect(path)
    wish = json.dumps({"words": sys.argv[1:], "environment": dict(os.environ), "cwd": os.getcwd()}).encode()  # noqa: PTH109
    socket.send_fds(connection, [len(wish).to_bytes(4, "big")], [0, 1, 2])
    connection.sendall(wish)
    answer = connection.recv(1)
    if answer:
        return answer[0]
    if forwarded:  # it died of what was handed on; 143 would claim that it has saved
        signal.signal(forwarded[-1], signal.SIG_DFL)
        os.kill(os.getpid(), forwarded[-1])
    return 1


if __name__ == "__main__":
    sys.exit(main())
