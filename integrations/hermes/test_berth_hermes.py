"""Tests of what Hermes asks of a terminal environment, on the backend local."""
import tempfile
import time
import unittest
import unittest.mock

import berth
from berth_hermes import BerthEnvironment


class HermesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stop_at = None
        cls.env = BerthEnvironment(backend="local", cwd="/usr", timeout=20, env={"A": "1"},
                                   interrupted=lambda: cls.stop_at is not None and time.monotonic() > cls.stop_at)
        cls.addClassCleanup(cls.env.cleanup)

    def test_execute(self):
        self.assertEqual({"output": "/usr 1\nerr\n", "returncode": 3}, self.env.execute("echo $PWD $A; echo err >&2; (exit 3)"))
        self.assertEqual({"output": "in", "returncode": 0}, self.env.execute("cat", stdin_data="in"))
        self.env.execute("cd /; export KEPT=yes")
        self.assertEqual(("/ yes\n", "/"), (self.env.execute("echo $PWD $KEPT")["output"], self.env.cwd))
        self.assertEqual("/usr\n", self.env.execute("pwd", "/usr")["output"])
        self.assertEqual(126, self.env.execute("pwd", "/nowhere")["returncode"])
        self.assertEqual(50000, len(self.env.execute("seq 1 50000")["output"].splitlines()))

    def test_ends(self):
        self.assertEqual({"output": "some\n[Command timed out after 3s]", "returncode": 124}, self.env.execute("echo some; sleep 60", timeout=3))
        type(self).stop_at = time.monotonic() + 3
        self.assertEqual({"output": "some\n[Command interrupted]", "returncode": 130}, self.env.execute("echo some; sleep 60"))
        type(self).stop_at = None
        self.assertEqual("next\n", self.env.execute("echo next")["output"])
        self.assertEqual(-1, self.env.execute(" ")["returncode"])
        with self.assertRaises(berth.BerthError):
            BerthEnvironment(backend="local", cwd="/nowhere")

    def test_interrupt_is_said_again(self):
        said, interrupt = [], self.env._env.interrupt

        def lost():  # the first comes before there is a command
            said.append(None)
            if len(said) > 1:
                interrupt()

        type(self).stop_at = 0
        try:
            with unittest.mock.patch.object(self.env._env, "interrupt", lost):
                self.assertEqual(130, self.env.execute("sleep 60", timeout=50)["returncode"])
        finally:
            type(self).stop_at = None

    def test_background(self):
        """As its process registry does it: nohup in the terminal, and files that are read later."""
        with tempfile.TemporaryDirectory() as d:
            r = self.env.execute(f"( nohup bash -lc 'sleep 0.3; echo late' > {d}/log 2>&1; echo $? > {d}/exit ) & echo $! > {d}/pid", timeout=10)
            self.assertEqual(0, r["returncode"])
            self.assertEqual(0, self.env.execute(f"kill -0 $(cat {d}/pid)")["returncode"])
            self.assertEqual("late\n0\n", self.env.execute(f"while [ ! -s {d}/exit ]; do sleep 0.05; done; cat {d}/log {d}/exit")["output"])


if __name__ == "__main__":
    unittest.main()
