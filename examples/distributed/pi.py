"""The area below 4/(1+x^2), each rank its share of the strips, by MPI (mpi4py)."""

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size, strips = world.Get_rank(), world.Get_size(), 1_000_000
mine = sum(4 / (1 + ((i + 0.5) / strips) ** 2) for i in range(rank, strips, size)) / strips
nodes = world.gather(MPI.Get_processor_name(), root=0)
pi = world.reduce(mine, op=MPI.SUM, root=0)
if rank == 0:
    print(f"pi {pi:.9f} of {size} ranks on {' '.join(sorted(set(nodes)))}")
