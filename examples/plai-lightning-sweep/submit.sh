#!/bin/bash
envbuild submit lightning-sweep --on plai --launcher lightning --gpus 1 --walltime 2h --stage data --each points.csv --array 1-4%2 -- \
  python train.py --data data/points.csv --width "{width}" --rate "{rate}"
