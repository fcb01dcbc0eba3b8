"""Train a small model in all ranks with torch's DistributedDataParallel: all end with the same weights.

Each rank has its own part of the data, y = 3x + 1 with noise; gradients are averaged over the ranks.
With GPUs each rank takes that of its LOCAL_RANK, and NCCL; without, gloo on the CPU.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

local = int(os.environ["LOCAL_RANK"])
gpus = torch.cuda.device_count()
dist.init_process_group("nccl" if gpus else "gloo", init_method="env://")
device = torch.device("cuda", local % gpus) if gpus else torch.device("cpu")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)
x = torch.rand(256, 1, device=device)
y = 3 * x + 1 + 0.01 * torch.randn_like(x)
model = DistributedDataParallel(torch.nn.Linear(1, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(300):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()

mine = torch.cat([p.detach().flatten() for p in model.parameters()])
all_of_them = [torch.empty_like(mine) for _ in range(size)]
dist.all_gather(all_of_them, mine)
if rank == 0:
    same = all(torch.equal(mine, other) for other in all_of_them)
    print(f"{size} ranks, {'the same' if same else 'NOT the same'} weights: {mine[0]:.1f} x + {mine[1]:.1f}, on {device.type}")
dist.destroy_process_group()
