"""Train a small network on drawn digits for a few steps: it must learn to tell them apart."""

import sys

import torch
from torch import nn

FONT = {  # 3 x 5 pixels a digit, one row a group of bits
    0: "111 101 101 101 111",
    1: "010 110 010 010 111",
    2: "111 001 111 100 111",
    3: "111 001 111 001 111",
    4: "101 101 111 001 001",
    5: "111 100 111 001 111",
    6: "111 100 111 101 111",
    7: "111 001 010 010 010",
    8: "111 101 111 101 111",
    9: "111 101 111 001 111",
}


def draw(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``count`` noisy 28 x 28 images of digits and their labels."""
    glyphs = torch.tensor(
        [[[int(bit) for bit in row] for row in FONT[digit].split()] for digit in range(10)]
    ).float()
    large = nn.functional.interpolate(glyphs[:, None], scale_factor=4)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = torch.zeros(count, 1, 28, 28)
    shifts = torch.randint(0, 8, (count, 2), generator=generator)
    for image, label, (down, right) in zip(images, labels, shifts, strict=True):
        image[0, down : down + 20, right : right + 12] = large[label, 0]
    return images + 0.2 * torch.randn(images.shape, generator=generator), labels


torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(
    nn.Conv2d(1, 16, 5, stride=2),
    nn.ReLU(),
    nn.Conv2d(16, 32, 5, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(512, 10),
).to(device)
optimizer = torch.optim.Adam(model.parameters(), 0.002)
source = torch.Generator().manual_seed(1)
losses = []
for _ in range(60):
    images, labels = draw(64, source)
    loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

images, labels = draw(256, source)
with torch.no_grad():
    right = (model(images.to(device)).argmax(1).cpu() == labels).float().mean().item()
where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
print(f"loss {losses[0]:.2f} to {losses[-1]:.2f}, {right:.0%} of new digits right, on {where}")
if not right > 0.5:
    sys.exit("the network did not learn to tell the digits apart")
