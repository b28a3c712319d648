"""Train one model by a process per GPU."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
given = parser.parse_args()

gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if gpu else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
torch.manual_seed(1)
weights = torch.randn(20, 1)  # the same in every process; the rows are its own
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
torch.manual_seed(dist.get_rank())
for step in range(given.steps):
    rows = torch.randn(256, 20)
    loss = nn.functional.mse_loss(model(rows.to(device)), torch.tanh(rows @ weights).to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0 and dist.get_rank() == 0:
        print(
            f"step {step} of {dist.get_world_size()} processes: loss {loss.item():.4f}", flush=True
        )
dist.destroy_process_group()
