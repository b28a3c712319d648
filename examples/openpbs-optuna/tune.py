"""Tune a classifier of digits: every rank of MPI is a worker, and all share one study."""

import argparse

import optuna
from mpi4py import MPI
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import cross_val_score

parser = argparse.ArgumentParser()
parser.add_argument("--trials", type=int, default=10, help="trials of each worker")
given = parser.parse_args()
world = MPI.COMM_WORLD
images, labels = load_digits(return_X_y=True)


def accuracy(trial: optuna.Trial) -> float:
    """Return how many digits a classifier gets right."""
    model = SGDClassifier(alpha=trial.suggest_float("alpha", 1e-6, 1e2, log=True), max_iter=50)
    return float(cross_val_score(model, images / 16, labels, cv=3).mean())


storage = JournalStorage(JournalFileBackend("study.journal"))
if world.rank == 0:
    optuna.create_study(
        storage=storage, study_name="digits", direction="maximize", load_if_exists=True
    )
world.Barrier()
study = optuna.load_study(storage=storage, study_name="digits")
study.optimize(accuracy, n_trials=given.trials)
world.Barrier()
if world.rank == 0:
    print(
        f"{len(study.trials)} trials of {world.size} workers, best {study.best_value:.1%} with {study.best_params}"
    )
