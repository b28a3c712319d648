"""Tell kind texts from unkind ones with a small BERT."""

import argparse
import csv
from pathlib import Path

import numpy as np
from keras_bert import Tokenizer, get_base_dict, get_model
from tensorflow import keras

LENGTH = 16

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--rate", type=float, required=True)
parser.add_argument("--epochs", type=int, required=True)
given = parser.parse_args()

with given.data.open() as file:
    rows = list(csv.DictReader(file))
words = {
    **get_base_dict(),
    **{word: number for number, word in enumerate({w for r in rows for w in r["text"].split()}, 5)},
}
tokenizer = Tokenizer(words)
tokens = np.array([tokenizer.encode(row["text"], max_len=LENGTH)[0] for row in rows])
labels = np.array([int(row["label"]) for row in rows])

bert = get_model(
    len(words),
    head_num=2,
    transformer_num=2,
    embed_dim=32,
    feed_forward_dim=64,
    seq_len=LENGTH,
    training=False,
)
output = keras.layers.Dense(1, "sigmoid")(keras.layers.Lambda(lambda layer: layer[:, 0])(bert[1]))
model = keras.Model(bert[0], output)
model.compile(keras.optimizers.Adam(given.rate), "binary_crossentropy", metrics=["accuracy"])
model.fit([tokens, np.zeros_like(tokens)], labels, epochs=given.epochs, verbose=2)
