#!/bin/bash
envbuild submit torch-multigpu --on neuron:gpu1 --launcher torchrun --gpus 4 --cpus 4 --walltime 2h -- \
  python train.py --steps 1000
