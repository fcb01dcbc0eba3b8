"""Sum a number of each rank at rank 0, over plain TCP: that ranks reach each other."""

import os
import socket
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    total = 1
    with socket.create_server(("", address[1])) as server:
        for _ in range(size - 1):
            with server.accept()[0] as conn:
                total += int(conn.makefile().readline())
    print(f"sum {total} of {size} ranks on {address[0]}")
else:
    for _ in range(100):  # rank 0 may begin later
        try:
            conn = socket.create_connection(address, timeout=10)
            break
        except OSError:
            time.sleep(0.1)
    with conn:
        conn.sendall(f"{rank + 1}\n".encode())
