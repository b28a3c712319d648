"""Train a tiny BERT for five steps on made-up sentences: its loss must fall."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras_bert
import numpy as np
import tensorflow as tf

TOKENS, LENGTH, ROWS, STEPS = 30, 12, 32, 5

tf.keras.utils.set_random_seed(1)
model = keras_bert.get_model(
    token_num=TOKENS,
    head_num=2,
    transformer_num=2,
    embed_dim=16,
    feed_forward_dim=32,
    seq_len=LENGTH,
    pos_num=LENGTH,
    dropout_rate=0.0,
)
model.compile(optimizer=tf.keras.optimizers.Adam(0.003), loss="sparse_categorical_crossentropy")

random = np.random.default_rng(1)
tokens = random.integers(1, TOKENS, (ROWS, LENGTH))
segments = np.repeat([[0] * (LENGTH // 2) + [1] * (LENGTH // 2)], ROWS, axis=0)
masked = np.ones((ROWS, LENGTH), dtype=int)
next_sentence = (tokens[:, 0] > TOKENS // 2).astype(int)

losses = []
for _ in range(STEPS):
    result = model.train_on_batch([tokens, segments, masked], [tokens[..., None], next_sentence])
    losses.append(float(result[0]))

devices = [device.name for device in tf.config.list_logical_devices("GPU")] or ["CPU"]
print("loss", " ".join(f"{loss:.3f}" for loss in losses), "on", ", ".join(devices))
if not (np.isfinite(losses).all() and losses[-1] < losses[0]):
    sys.exit("the loss did not fall in five steps")
