# Runs on any Python 3 with the standard library alone, on both ends of a job's standard streams.
# A kernel on a node and the Jupyter that asks for it talk through those streams: no port of the
# node is open to anybody, and no node need be reachable.
#   relay.py forward CONNECTION COMMAND...   beside Jupyter: listens where the connection file says,
#                                            and runs COMMAND, which ends in the other one
#   relay.py serve                           on the node: starts the kernel in a private folder
# A frame is its kind, a channel's number and the length of its data, then the data.
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

BEGIN = b"\nenvbuild relay 1\n"
HEAD = struct.Struct("!BII")
FACTS, OPEN, DATA, CLOSE, ALIVE = range(5)
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
PIECE = 65536
# seconds: between two signs of life, without one until the end, and for a kernel to start or end
BEAT, SILENCE, START, END = 10, 60, 120, 5


class Stream:
    """Frames in both directions, and the sockets whose bytes they carry."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.lock = threading.Lock()
        self.sockets = {}
        self.heard = time.monotonic()

    def send(self, kind, channel=0, data=b""):
        with self.lock:
            self.target.write(HEAD.pack(kind, channel, len(data)) + data)
            self.target.flush()

    def receive(self):
        """Return kind, channel and data; None at the end."""
        head = self.source.read(HEAD.size)
        if len(head) < HEAD.size:
            return None
        kind, channel, length = HEAD.unpack(head)
        data = self.source.read(length)
        self.heard = time.monotonic()
        return (kind, channel, data) if len(data) == length else None

    def join(self, channel, end):
        """Carry what a socket says from now on."""
        self.sockets[channel] = end
        threading.Thread(target=self._copy, args=(channel, end), daemon=True).start()

    def _copy(self, channel, end):
        try:
            data = end.recv(PIECE)
            while data:
                self.send(DATA, channel, data)
                data = end.recv(PIECE)
            self.send(CLOSE, channel)
        except OSError:
            pass  # the other side has closed it, or all is over

    def carry(self, open_channel=None):
        """Hand frames to their sockets until the stream ends."""
        frame = self.receive()
        while frame is not None:
            kind, channel, data = frame
            end = self.sockets.get(channel)
            if kind == OPEN and open_channel is not None:
                open_channel(channel, data.decode())
            elif kind == DATA and end is not None:
                try:
                    end.sendall(data)
                except OSError:
                    self._drop(channel)
            elif kind == CLOSE:
                self._drop(channel)
            frame = self.receive()

    def _drop(self, channel):
        end = self.sockets.pop(channel, None)
        if end is not None:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


def forward(connection, command):
    """Listen for Jupyter, carry its connections to the kernel; return the command's code."""
    with open(connection) as file:
        facts = json.load(file)
    listeners = {}
    for name in PORTS:
        listeners[name] = socket.create_server((facts["ip"], facts[name]))
    # Jupyter kills the group of this process: the job ends by the end of its input
    job = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        stream = Stream(job.stdout, job.stdin)
        if not wait_for_begin(job.stdout):
            return job.wait()
        stream.send(FACTS, 0, json.dumps(facts).encode())
        numbers = itertools.count(1)
        for name, listener in listeners.items():
            threading.Thread(
                target=accept, args=(stream, listener, name, numbers), daemon=True
            ).start()
        threading.Thread(target=beat, args=(stream,), daemon=True).start()
        stream.carry()
    finally:
        try:
            job.stdin.close()
        except OSError:
            pass
        try:
            code = job.wait(4 * END)
        except subprocess.TimeoutExpired:
            job.terminate()
            code = job.wait()
    return code


def wait_for_begin(source):
    """Copy what scripts of the site say before the kernel begins; tell whether it does."""
    said = b""
    while not said.endswith(BEGIN):
        one = source.read(1)
        if not one:
            sys.stderr.buffer.write(said)
            return False
        said += one
    sys.stderr.buffer.write(said[: -len(BEGIN)])
    sys.stderr.flush()
    return True


def accept(stream, listener, name, numbers):
    while True:
        end, _ = listener.accept()
        channel = next(numbers)
        stream.send(OPEN, channel, name.encode())
        stream.join(channel, end)


def beat(stream):
    while True:
        time.sleep(BEAT)
        try:
            stream.send(ALIVE)
        except (OSError, ValueError):
            return


def serve():
    """Start the kernel with sockets of its own and carry its connections; return its exit code."""
    stream = Stream(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    # what the kernel prints is for Jupyter's log
    os.dup2(2, 1)
    stream.target.write(BEGIN)
    stream.target.flush()
    first = stream.receive()
    if first is None or first[0] != FACTS:
        return 1
    folder = tempfile.mkdtemp(prefix="kernel-")
    facts = dict(json.loads(first[2].decode()), transport="ipc", ip=os.path.join(folder, "k"))
    facts.update((name, number) for number, name in enumerate(PORTS, 1))
    connection = os.path.join(folder, "connection.json")
    with open(connection, "w") as file:
        json.dump(facts, file)
    words = [sys.executable, "-m", "ipykernel_launcher", "-f", connection]
    kernel = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        paths = {name: "{}-{}".format(facts["ip"], facts[name]) for name in PORTS}
        due = time.monotonic() + START
        while not all(map(os.path.exists, paths.values())):
            if kernel.poll() is not None or time.monotonic() > due:
                return kernel.poll() or 1
            time.sleep(0.05)

        def open_channel(channel, name):
            end = socket.socket(socket.AF_UNIX)
            end.connect(paths[name])
            stream.join(channel, end)

        reader = threading.Thread(target=stream.carry, args=(open_channel,), daemon=True)
        stream.heard = time.monotonic()
        reader.start()
        while kernel.poll() is None and reader.is_alive():
            if time.monotonic() - stream.heard > SILENCE:
                sys.stderr.write("envbuild: nothing heard of Jupyter: the kernel ends\n")
                break
            time.sleep(0.2)
        # its last words are still on their way
        time.sleep(0.2)
    finally:
        if kernel.poll() is None:
            kernel.terminate()
            try:
                kernel.wait(END)
            except subprocess.TimeoutExpired:
                kernel.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return kernel.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        code = serve()
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        code = forward(sys.argv[2], sys.argv[3:])
    # threads that wait for a socket or the stream must not hold this back
    sys.stderr.flush()
    os._exit(code if 0 <= code < 256 else 128 - code)
