"""Plays Weights & Biases' server for one sweep: every agent gets one run; requests are noted.

    python wandb_server.py KEY REQUESTS      prints its port; REQUESTS gets a line of JSON each

The words are those of the agent's own queries (wandb 0.31, wandb/apis/public/sweeps.py).
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

CONFIG = "program: train.py\nmethod: grid\ncommand: [python3, '${program}', '${args}']\n"
ADA = {"id": "1", "entity": "lab", "username": "ada", "email": "a@b", "flags": "{}"}
LOCK = threading.Lock()
AGENTS = count(1)
SERVED: set[str] = set()


def answer_query(query: str, variables: dict[str, str]) -> dict[str, Any]:
    """Return the data of an answer."""
    if "viewer" in query:
        return {"viewer": {**ADA, "teams": {"edges": []}}}
    if "SweepWithRuns" in query:
        sweep = {"id": "1", "name": variables["sweep"], "state": "RUNNING", "config": CONFIG}
        return {"project": {"sweep": {**sweep, "runs": {"edges": []}}}}
    if "createAgent" in query:
        return {"createAgent": {"agent": {"id": str(next(AGENTS))}}}
    if "agentHeartbeat" in query:
        agent = variables["id"]
        commands = json.dumps(next_commands(agent))
        return {"agentHeartbeat": {"agent": {"id": agent}, "commands": commands}}
    return {}


def next_commands(agent: str) -> list[dict[str, Any]]:
    """Return one run for an agent that has had none."""
    if agent in SERVED:
        return []
    SERVED.add(agent)
    arguments = {"lr": {"value": int(agent) / 10}}
    return [{"type": "run", "run_id": f"run{agent}", "program": "train.py", "args": arguments}]


class SweepServer(BaseHTTPRequestHandler):
    """Answers one request after the other."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked: dict[str, Any] = {"query": ""}
        if self.path == "/graphql":
            asked = json.loads(body)
        given = base64.b64decode((self.headers.get("Authorization") or "").partition(" ")[2])
        known = given.decode().partition(":")[2] == sys.argv[1]
        with LOCK, Path(sys.argv[2]).open("a", encoding="utf-8") as out:
            out.write(json.dumps({"known": known, "query": asked["query"]}) + "\n")
            data = answer_query(asked["query"], asked.get("variables") or {})
        text = json.dumps({"data": data if known else {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), SweepServer) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
