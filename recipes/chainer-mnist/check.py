"""Train a small Chainer network on drawn digits for a few steps: it must learn to tell them apart."""

import sys
import tempfile

import chainer
import numpy as np
from chainer import functions, links, training
from chainer.backends import cuda

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


class Network(chainer.Chain):
    """Two convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.first = links.Convolution2D(1, 16, 5, stride=2)
            self.second = links.Convolution2D(16, 32, 5, stride=2)
            self.last = links.Linear(512, 10)

    def forward(self, images: np.ndarray) -> chainer.Variable:
        """Return the scores of the ten digits."""
        return self.last(functions.relu(self.second(functions.relu(self.first(images)))))


def draw(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return ``count`` noisy 28 x 28 images of digits and their labels."""
    glyphs = np.array(
        [[[int(bit) for bit in row] for row in FONT[digit].split()] for digit in range(10)]
    )
    large = glyphs.repeat(4, axis=1).repeat(4, axis=2)
    labels = random.integers(0, 10, count).astype("int32")
    images = np.zeros((count, 1, 28, 28), dtype="float32")
    for image, label, (down, right) in zip(
        images, labels, random.integers(0, 8, (count, 2)), strict=True
    ):
        image[0, down : down + 20, right : right + 12] = large[label]
    return images + 0.2 * random.standard_normal(images.shape).astype("float32"), labels


def has_gpu() -> bool:
    """Return whether CuPy is whole and sees a GPU; without a driver it says so by an error."""
    try:
        return cuda.available and cuda.cupy.cuda.runtime.getDeviceCount() > 0
    except cuda.cupy.cuda.runtime.CUDARuntimeError:
        return False


np.random.seed(1)  # noqa: NPY002  (Chainer draws its weights from there)
random = np.random.default_rng(1)
device = chainer.get_device("@cupy:0" if has_gpu() else "@numpy")
device.use()
model = links.Classifier(Network())
model.to_device(device)
optimizer = chainer.optimizers.Adam(0.002)
optimizer.setup(model)
digits = chainer.datasets.TupleDataset(*draw(60 * 64, random))
updater = training.updaters.StandardUpdater(
    chainer.iterators.SerialIterator(digits, 64), optimizer, device=device
)
with tempfile.TemporaryDirectory() as folder:
    trainer = training.Trainer(updater, (1, "epoch"), out=folder)
    trainer.extend(training.extensions.LogReport(trigger=(10, "iteration")))
    trainer.run()
    log = trainer.get_extension("LogReport").log

images, labels = draw(256, random)
with chainer.using_config("train", False), chainer.no_backprop_mode():
    answers = model.predictor(device.send(images)).array.argmax(axis=1)
right = float((chainer.get_device("@numpy").send(answers) == labels).mean())
print(
    f"loss {log[0]['main/loss']:.2f} to {log[-1]['main/loss']:.2f}, {right:.0%} of new digits right, on {device}"
)
if not right > 0.5:
    sys.exit("the network did not learn to tell the digits apart")
