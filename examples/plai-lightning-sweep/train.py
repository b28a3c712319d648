"""Fit a curve with PyTorch Lightning: one point of a sweep."""

import argparse
from pathlib import Path

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--rate", type=float, default=0.01)
given = parser.parse_args()


class Curve(lightning.LightningModule):
    """A network of one hidden layer."""

    def __init__(self) -> None:
        """Make its layers."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, given.width), nn.Tanh(), nn.Linear(given.width, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        loss = nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), given.rate)


rows = [tuple(map(float, line.split(","))) for line in given.data.read_text().splitlines()[1:]]
points = torch.tensor(rows)
loader = DataLoader(TensorDataset(points[:, :1], points[:, 1:]), batch_size=20, shuffle=True)
trainer = lightning.Trainer(
    max_epochs=200, devices="auto", num_nodes=1, enable_checkpointing=False, logger=False
)
trainer.fit(Curve(), loader)
print(f"width {given.width}, rate {given.rate}: loss {trainer.callback_metrics['loss']:.4f}")
