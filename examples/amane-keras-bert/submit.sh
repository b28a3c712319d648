#!/bin/bash
envbuild submit keras-bert --on amane --gpus tesla:1 --walltime 4h --input data --each params.csv --array 1-3%2 -- \
  python train.py --data data/texts.csv --rate "{rate}" --epochs "{epochs}"
