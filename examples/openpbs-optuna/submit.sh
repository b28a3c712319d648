#!/bin/bash
envbuild submit optuna-mpi --on openpbs-compose --launcher mpi --tasks 4 --cpus 1 --memory 4GiB --walltime 1h -- \
  python tune.py --trials 20
