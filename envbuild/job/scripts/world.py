# run by every rank before the command: with an MPI that does not fit the host's, each would be alone

import sys

try:
    from mpi4py import MPI
except ImportError:
    print("envbuild: the image has no mpi4py, so the number of ranks was not tested")
    sys.exit()
found, wanted = MPI.COMM_WORLD.allreduce(1), int(sys.argv[1])
if found != wanted:
    sys.exit("envbuild: a world of %d ranks instead of %d" % (found, wanted))
if MPI.COMM_WORLD.rank == 0:
    print("envbuild: %d ranks found each other" % found, flush=True)
