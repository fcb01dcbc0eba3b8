"""Tests with Jupyter's own client and ipykernel, in environments of the backends local (sockets) and bwrap (ports)."""
import contextlib
import glob
import io
import json
import logging
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from jupyter_client import provisioning
from jupyter_client.manager import KernelManager

import berth
import berth_jupyter


class Point:
    """The entry point that pip makes of pyproject.toml."""

    name = berth_jupyter.PROVISIONER

    @staticmethod
    def load():
        return berth_jupyter.BerthProvisioner


def arguments():
    """The command lines of all processes."""
    found = []
    for name in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(pathlib.Path(name).read_bytes())
    return b"\n".join(found)


class KernelTest(unittest.TestCase):
    backend, transport = "local", "ipc"

    @classmethod
    def setUpClass(cls):
        d = tempfile.TemporaryDirectory()
        cls.addClassCleanup(d.cleanup)
        cls.dir = d.name
        variables = unittest.mock.patch.dict(os.environ, {"JUPYTER_DATA_DIR": d.name + "/data", "JUPYTER_RUNTIME_DIR": d.name + "/run",
                                                          "IPYTHONDIR": d.name + "/ipython", "JUPYTER_ALLOW_INSECURE_WRITES": ""})
        variables.start()
        cls.addClassCleanup(variables.stop)
        factory = provisioning.KernelProvisionerFactory.instance()
        factory.provisioners[Point.name] = Point
        cls.environment = berth.Environment(berth.fresh_name("jupyter"), backend=cls.backend, flags=["--lifetime=60s"])
        cls.addClassCleanup(cls.environment.remove)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = berth_jupyter.main(["install", "--env", cls.environment.name, "--name", "k", "--workdir", "/usr", "--",
                                       "/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"])
        assert code == 0
        cls.spec = os.path.join(said.getvalue().strip(), "kernel.json")
        spec = json.loads(pathlib.Path(cls.spec).read_text())
        spec["env"] = {"LD_LIBRARY_PATH": "/it's", "MODE": "${HOME_OF}/x"}
        pathlib.Path(cls.spec).write_text(json.dumps(spec))

    def setUp(self):
        with unittest.mock.patch.dict(os.environ, {"HOME_OF": "there", "NOT_PASSED": "1"}):
            self.km = KernelManager(kernel_name="k")
            self.said = tempfile.TemporaryFile()
            self.addCleanup(self.said.close)
            self.km.start_kernel(stdout=self.said, stderr=self.said)
        self.addCleanup(lambda: self.km.shutdown_kernel(now=True) if self.km.has_kernel else None)
        self.client = self.km.client()
        self.client.start_channels()
        self.addCleanup(self.client.stop_channels)
        try:
            self.client.wait_for_ready(timeout=40)
        except RuntimeError:
            self.said.seek(0)
            self.fail(self.said.read().decode())

    def run_code(self, code):
        """What a cell prints, and the name of its error."""
        out = []
        # What comes at once after an error is aborted by ipykernel.
        while True:
            answer = self.client.execute_interactive(code, timeout=120, output_hook=lambda m: out.append(m["content"].get("text", "")))
            if answer["content"]["status"] != "aborted":
                break
        return "".join(out), answer["content"].get("ename", "")

    def inside(self):
        """The kernel's directory inside."""
        return self.km.provisioner._inside

    def wait(self, done, what):
        until = time.monotonic() + 60
        while not done():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.05)

    def test_runs(self):
        code = "import os, sys; print(os.getcwd(), os.environ['LD_LIBRARY_PATH'], os.environ['MODE'], 'NOT_PASSED' in os.environ)"
        self.assertEqual(("/usr /it's there/x False\n", ""), self.run_code(code))
        self.assertEqual(self.transport, self.km.transport)
        # Interrupted, it goes on with its state.
        self.run_code("state = 1")
        started = self.client.execute("import time; print('begun', flush=True)\nwhile True: time.sleep(0.1)")
        self.wait(lambda: self.client.get_iopub_msg(timeout=60)["content"].get("text", "").startswith("begun"), "it runs")  # the line's end may come by itself
        self.km.interrupt_kernel()
        while (answer := self.client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != started:
            pass
        self.assertEqual("KeyboardInterrupt", answer["content"]["ename"])
        self.assertEqual(("1\n", ""), self.run_code("print(state)"))
        # The key is on no command line, and in files that others cannot read.
        key = self.km.session.key
        self.assertGreater(len(key), 16)
        self.assertNotIn(key, arguments())
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.km.connection_file).st_mode))
        modes = self.environment.run(["stat", "-c", "%a", self.inside(), self.inside() + "/connection.json"])
        self.assertEqual("700\n600\n", modes.stdout.removeprefix("1"))  # ipykernel sets the sticky bit
        inside, shared = [self.inside()], self.km.provisioner._shared
        # Started again, the same client goes on with a fresh kernel.
        self.km.restart_kernel()
        self.client.wait_for_ready(timeout=40)
        self.assertEqual(("", "NameError"), self.run_code("print(state)"))
        # Shut down, it leaves nothing.
        inside.append(self.inside())
        self.km.shutdown_kernel()
        self.assertFalse(self.km.has_kernel)
        self.wait(lambda: all(d.encode() not in arguments() for d in inside), "its processes end")
        self.assertEqual("", self.environment.run(["ls", "-d", *inside]).stdout)
        self.assertFalse(os.path.exists(shared))

    def test_killed(self):
        """Its directory is removed also where all that could do so inside was killed with it."""
        inside = self.inside()
        self.environment.run(["sh", "-c", 'for p in $(grep -alF "$1" /proc/[0-9]*/cmdline); do p=${p#/proc/}; [ "${p%/*}" = $$ ] || kill -KILL "${p%/*}"; done', "sh", inside])
        self.wait(lambda: inside.encode() not in arguments(), "its processes end")
        self.assertEqual(inside + "\n", self.environment.run(["ls", "-d", inside]).stdout)
        self.km.shutdown_kernel(now=True)
        self.assertFalse(self.km.has_kernel)
        self.assertEqual("", self.environment.run(["ls", "-d", inside]).stdout)

    def test_death(self):
        with self.assertLogs(self.km.provisioner.log, logging.WARNING) as said:
            self.client.execute("import os; os.kill(os.getpid(), 9)")
            self.wait(lambda: not self.km.is_alive(), "it is noticed")
        self.assertIn("has ended: signal 9", said.output[0])
        self.assertIn(self.environment.name, said.output[0])


class ForwardTest(KernelTest):
    backend, transport = "bwrap", "tcp"

    def test_ports_of_this_machine(self):
        self.assertEqual("127.0.0.1", self.km.ip)
        self.assertNotEqual(self.km.shell_port, self.km.provisioner._inner["shell_port"])


class OrphanTest(unittest.TestCase):
    def test_kernel_ends_with_jupyter(self):
        """A Jupyter that is killed leaves no kernel and no key behind."""
        with tempfile.TemporaryDirectory() as d, berth.Environment(backend="local", remove=True) as env:
            program = f"""if True:
                import time, test_berth_jupyter as t
                t.provisioning.KernelProvisionerFactory.instance().provisioners[t.Point.name] = t.Point
                t.berth_jupyter.main(["install", "--env", {env.name!r}, "--name", "k", "--", "sh", "-c", "sleep 1000; :", "{{connection_file}}"])
                km = t.KernelManager(kernel_name="k")
                km.start_kernel()
                print(km.provisioner._inside, flush=True)
                time.sleep(1000)"""
            variables = {**os.environ, "JUPYTER_DATA_DIR": d, "JUPYTER_RUNTIME_DIR": d}
            with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=variables, text=True) as jupyter:
                jupyter.stdout.readline()
                inside = jupyter.stdout.readline().strip()
                until = time.monotonic() + 60
                while not os.path.exists(inside + "/pid") and time.monotonic() < until:
                    time.sleep(0.05)
                pid = int(pathlib.Path(inside, "pid").read_text())
                os.kill(pid, 0)
                jupyter.send_signal(signal.SIGKILL)
            while (os.path.exists(f"/proc/{pid}") or os.path.exists(inside)) and time.monotonic() < until:
                time.sleep(0.05)
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "the kernel runs")
            self.assertFalse(os.path.exists(inside), "the key is left")
            shutil.rmtree(os.path.dirname(inside))  # which Jupyter would have removed; it has no key


class RunTest(unittest.TestCase):
    def run_kernel(self, top, *words):
        """Start a kernel by the script, which writes down what it would kill; the pipe ends with all of it."""
        pathlib.Path(top, "k").mkdir()
        pathlib.Path(top, "k", "variables").write_text(":\n")
        ends, held = os.pipe()
        self.addCleanup(os.close, ends)
        kernel = subprocess.Popen(["sh", "-c", 'kill() { echo "$*" >>"$0.log"; }; sleep() { :; }\n' + berth_jupyter._RUN, top + "/k", *words],
                                  stdin=subprocess.PIPE, pass_fds=(held,))
        self.addCleanup(kernel.kill)
        os.close(held)
        return kernel, ends

    def test_lives(self):
        with tempfile.TemporaryDirectory() as d:
            kernel, _ = self.run_kernel(d, "tail", "-f", "/dev/null")
            kernel.stdin.close()
            log, want, until = pathlib.Path(d, "k.log"), f"-TERM {kernel.pid}\n-KILL {kernel.pid}\n", time.monotonic() + 60
            while not (log.exists() and log.read_text() == want) and time.monotonic() < until:
                time.sleep(0.02)
            self.assertEqual(want, log.read_text())
            self.assertFalse(os.path.exists(d + "/k"), "the key is left")
            kernel.kill()
            kernel.wait()

    def test_number_of_another(self):
        """A kernel that has ended is not killed: its number may be that of another process."""
        with tempfile.TemporaryDirectory() as d:
            kernel, ends = self.run_kernel(d, "true")
            self.assertEqual(0, kernel.wait(60))
            kernel.stdin.close()
            self.assertEqual(b"", os.read(ends, 1))
            self.assertEqual([], os.listdir(d))


class InstallTest(unittest.TestCase):
    def install(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            return berth_jupyter.main(["install", *words]), out.getvalue().strip(), err.getvalue()

    def test_kernelspec(self):
        with tempfile.TemporaryDirectory() as d:
            code, at, _ = self.install("--env", "work", "--prefix", d, "--flag=--image=py.sif", "--flag=--target=cluster")
            self.assertEqual((0, d + "/share/jupyter/kernels/berth-work"), (code, at))
            spec = json.loads(pathlib.Path(at, "kernel.json").read_text())
            self.assertEqual({"provisioner_name": "berth-provisioner", "config": {"environment": "work", "flags": ["--image=py.sif", "--target=cluster"],
                                                                                  "program": "berth"}}, spec["metadata"]["kernel_provisioner"])
            self.assertEqual(["kernel.json"], os.listdir(at))
            self.assertEqual(0, self.install("--env", "work", "--prefix", d)[0], "its own is written again")
            pathlib.Path(at, "kernel.json").write_text("{}")
            for words, why in ((("--env", "work"), "is another kernel's"), (("--env", "../x"), "is no name of an environment"),
                               (("--env", "a", "--name", "a/b"), "is no name of a kernel"), (("--env", "a", "--display-name", "a\x1b[2J"), "not printable"),
                               (("--env", "a", "--", "R"), "has no {connection_file}")):
                code, out, said = self.install("--prefix", d, *words)
                self.assertEqual((2, ""), (code, out))
                self.assertIn(why, said)
            self.assertEqual(["berth-work"], os.listdir(d + "/share/jupyter/kernels"))
