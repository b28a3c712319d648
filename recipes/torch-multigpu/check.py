"""Train one model by two processes of torchrun: their parameters must stay equal, and the loss must fall.

The processes use gloo on CPUs, or NCCL where there are two GPUs.
"""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS, STEPS = 2, 30


def train() -> None:
    """Train as one rank, and let rank 0 judge it."""
    gpu = torch.cuda.device_count() >= RANKS
    dist.init_process_group("nccl" if gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    torch.manual_seed(1)
    torch.set_num_threads(1)
    weights = torch.randn(20, 1)  # the same for all ranks; the rows that each one sees are its own
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    )
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    torch.manual_seed(rank)
    losses = []
    for _ in range(STEPS):
        rows = torch.randn(64, 20)
        loss = nn.functional.mse_loss(model(rows.to(device)), torch.tanh(rows @ weights).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / size)
    sums = torch.stack([parameter.detach().sum() for parameter in model.parameters()])
    gathered = [torch.zeros_like(sums) for _ in range(size)]
    dist.all_gather(gathered, sums)
    dist.destroy_process_group()
    if rank != 0:
        return
    where = "NCCL on GPUs" if gpu else "gloo on CPUs"
    print(f"{size} ranks, loss {losses[0]:.2f} to {losses[-1]:.2f}, {where}")
    if size != RANKS:
        sys.exit(f"torchrun was to start {RANKS} ranks, and started {size}")
    if not all(torch.equal(other, sums) for other in gathered):
        sys.exit("the ranks' parameters drifted apart: gradients were not exchanged")
    if not losses[-1] < losses[0] / 2:
        sys.exit("the loss did not fall")


if "RANK" in os.environ:
    train()
else:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={RANKS}",
        __file__,
    ]
    sys.exit(
        subprocess.run(torchrun, env={"OMP_NUM_THREADS": "1", **os.environ}, check=False).returncode
    )
