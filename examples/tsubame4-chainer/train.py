"""Train a small network on MNIST, from a file that --fetch brought where there is a network."""

import argparse
import urllib.request
from pathlib import Path

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import training
from chainer.training import extensions

FILE = Path("mnist.npz")
URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"

parser = argparse.ArgumentParser()
parser.add_argument("--fetch", action="store_true")
parser.add_argument("--epochs", type=int, default=1)
given = parser.parse_args()
if given.fetch:
    urllib.request.urlretrieve(URL, FILE)
    raise SystemExit

with np.load(FILE) as arrays:
    images = (arrays["x_train"].reshape(-1, 784) / 255).astype(np.float32)
    labels = arrays["y_train"].astype(np.int32)
model = L.Classifier(chainer.Sequential(L.Linear(784, 100), F.relu, L.Linear(100, 10)))
device = chainer.get_device("@cupy:0")
device.use()
model.to_device(device)
optimizer = chainer.optimizers.Adam().setup(model)
rows = chainer.iterators.SerialIterator(chainer.datasets.TupleDataset(images, labels), 100)
trainer = training.Trainer(
    training.updaters.StandardUpdater(rows, optimizer, device=device),
    (given.epochs, "epoch"),
    out="result",
)
trainer.extend(extensions.LogReport())
trainer.extend(extensions.PrintReport(["epoch", "main/loss", "main/accuracy", "elapsed_time"]))
trainer.run()
