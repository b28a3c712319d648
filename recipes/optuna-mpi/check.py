"""Let two ranks of MPI tune a classifier of digits together: one study, trials of both, better than a guess."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, TRIALS = 2, 6


def tune(folder: Path) -> None:
    """Work on the shared study as one rank, and let rank 0 judge it."""
    import optuna
    from mpi4py import MPI
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from sklearn.datasets import load_digits
    from sklearn.linear_model import SGDClassifier
    from sklearn.model_selection import train_test_split

    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    if world.Get_size() != RANKS:
        sys.exit(
            f"mpirun started {RANKS} processes, but MPI counts {world.Get_size()}: another MPI was linked"
        )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, labels, test_size=0.3, random_state=1)
    train, test, train_labels, test_labels = parts

    def objective(trial: optuna.Trial) -> float:
        alpha = trial.suggest_float("alpha", 1e-6, 1e2, log=True)
        model = SGDClassifier(alpha=alpha, max_iter=40, random_state=1)
        trial.set_user_attr("rank", rank)
        return float(model.fit(train, train_labels).score(test, test_labels))

    storage = JournalStorage(JournalFileBackend(str(folder / "study.log")))
    if rank == 0:
        optuna.create_study(storage=storage, study_name="digits", direction="maximize")
    world.Barrier()
    study = optuna.load_study(
        storage=storage, study_name="digits", sampler=optuna.samplers.RandomSampler(seed=rank)
    )
    study.optimize(objective, n_trials=TRIALS)
    done = world.reduce(TRIALS, op=MPI.SUM, root=0)
    world.Barrier()
    if rank != 0:
        return
    workers = {trial.user_attrs["rank"] for trial in study.trials}
    library = MPI.Get_library_version().split(",")[0]
    print(
        f"{len(study.trials)} trials of {len(workers)} ranks, best {study.best_value:.0%} right, {library}"
    )
    if len(study.trials) != done or workers != set(range(RANKS)):
        sys.exit(
            f"the ranks made {done} trials; the shared study holds {len(study.trials)} of ranks {workers}"
        )
    if not study.best_value > 0.5:
        sys.exit("the best classifier does not know the digits")


if len(sys.argv) == 2:
    tune(Path(sys.argv[1]))
else:
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with tempfile.TemporaryDirectory() as folder:
        mpirun = ["mpirun", "-n", str(RANKS), "--oversubscribe", sys.executable, __file__, folder]
        sys.exit(subprocess.run(mpirun, env=os.environ | allowed, check=False).returncode)
