#!/bin/bash
envbuild submit chainer-mnist --on tsubame4 --account my-group --gpus 1 --walltime 1h --input mnist.npz -- \
  python train.py --epochs 5
