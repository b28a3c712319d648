"""Sweep over two widths of a small network with Hydra, train each with Lightning: both must learn."""

import logging
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

WIDTHS = (4, 16)


def train(width: int) -> None:
    """Train one point of the sweep, and leave its losses in the run's own folder."""
    import torch
    from lightning.pytorch import LightningModule, Trainer, seed_everything
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    logging.getLogger("lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    losses: list[float] = []

    class Network(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(10, width), nn.Tanh(), nn.Linear(width, 1))

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            rows, wanted = batch
            loss = nn.functional.mse_loss(self.layers(rows), wanted)
            losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 0.02)

    seed_everything(1)
    rows = torch.randn(512, 10)
    data = DataLoader(TensorDataset(rows, torch.tanh(rows.sum(1, keepdim=True))), batch_size=64)
    trainer = Trainer(
        max_epochs=5, devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Network(), data)
    where = (
        torch.cuda.get_device_name()
        if trainer.accelerator.__class__.__name__ == "CUDAAccelerator"
        else "CPU"
    )
    Path("losses.txt").write_text(f"{width} {losses[0]} {losses[-1]} {where}\n")


def run(folder: Path) -> None:
    """Start Hydra's own sweep: one folder a point."""
    config = folder / "config"
    config.mkdir()
    (config / "sweep.yaml").write_text("model:\n  width: 8\nhydra:\n  job:\n    chdir: true\n")
    sweep = [sys.executable, __file__, "--config-dir", str(config), "--config-name", "sweep", "-m"]
    points = ",".join(str(width) for width in WIDTHS)
    done = subprocess.run(
        [*sweep, f"model.width={points}", f"hydra.sweep.dir={folder}/runs"], check=False
    )
    found = [
        path.read_text().split(maxsplit=3) for path in sorted(folder.glob("runs/*/losses.txt"))
    ]
    told = "; ".join(
        f"width {width}: loss {float(first):.2f} to {float(last):.2f}"
        for width, first, last, _ in found
    )
    print(told + (f", on {found[0][3].strip()}" if found else ""))
    if done.returncode or {int(width) for width, *_ in found} != set(WIDTHS):
        sys.exit(
            f"the sweep over {points} ended with code {done.returncode} and {len(found)} results"
        )
    if not all(float(last) < float(first) / 2 for _, first, last, _ in found):
        sys.exit("the loss did not fall")


if len(sys.argv) > 1:
    import hydra
    from omegaconf import DictConfig

    @hydra.main(version_base=None, config_path=None)
    def main(config: DictConfig) -> None:
        """One point of the sweep, in a process of Hydra's."""
        train(config.model.width)

    main()
else:
    with tempfile.TemporaryDirectory() as name:
        run(Path(name))
