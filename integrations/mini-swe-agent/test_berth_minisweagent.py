"""Tests with a stand-in for the package minisweagent, and the backend local."""
import os
import sys
import types
import unittest


class Submitted(Exception):
    """As minisweagent.exceptions has it: it carries messages."""

    def __init__(self, *messages):
        super().__init__(*messages)
        self.messages = messages


package, exceptions = types.ModuleType("minisweagent"), types.ModuleType("minisweagent.exceptions")
exceptions.Submitted = Submitted
package.exceptions = exceptions
sys.modules.update({"minisweagent": package, "minisweagent.exceptions": exceptions})

from berth_minisweagent import DONE, BerthEnvironment  # noqa: E402


class MiniTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["MINI_HOST"] = "forwarded"
        cls.env = BerthEnvironment(backend="local", env={"A": "1"}, forward_env=["MINI_HOST", "NOT_SET"], timeout=20, cwd="/usr")
        cls.addClassCleanup(cls.env.cleanup)

    def execute(self, command, *args, **kwargs):
        return self.env.execute({"command": command}, *args, **kwargs)

    def test_execute(self):
        r = self.execute("echo $A $MINI_HOST $PWD; echo err >&2; false")
        self.assertEqual({"output": "1 forwarded /usr\nerr\n", "returncode": 1, "exception_info": ""}, r)
        self.execute("cd /tmp; KEPT=yes")
        self.assertEqual("/usr yes\n", self.execute("echo $PWD $KEPT")["output"])
        self.assertEqual("/\n", self.execute("pwd", "/")["output"])
        self.assertEqual(127, self.execute("no-such-program")["returncode"])

    def test_timeout(self):
        r = self.execute("echo some; sleep 60", timeout=3)
        self.assertEqual(("some\n", -1, {"exception_type": "timeout", "timeout": 3}), (r["output"], r["returncode"], r["extra"]))
        self.assertIn("after 3 seconds", r["exception_info"])

    def test_error(self):
        r = self.execute("  ")
        self.assertEqual((-1, "BerthError"), (r["returncode"], r["extra"]["exception_type"]))
        self.assertIn("a request needs a command", r["exception_info"])

    def test_submit(self):
        for command in (f"printf 'the\\npatch\\n'; echo {DONE}", f"echo {DONE}; printf 'the\\npatch\\n'"):
            with self.assertRaises(Submitted) as e:
                self.execute(command)
            self.assertEqual("exit", e.exception.messages[0]["role"])
            self.assertEqual("the\npatch", e.exception.messages[0]["content"].strip())
            self.assertEqual("Submitted", e.exception.messages[0]["extra"]["exit_status"])
        with self.assertRaises(Submitted) as e:
            self.execute(f"seq 1 50000; echo {DONE}")
        self.assertEqual(50000, len(e.exception.messages[0]["content"].splitlines()), "not what is shown of it")
        self.assertEqual(3, self.execute(f"echo {DONE}; echo more; (exit 3)")["returncode"])
        self.assertEqual("x " + DONE + " y\n", self.execute(f"echo x {DONE} y")["output"])

    def test_words(self):
        v = self.env.get_template_vars(task="t")
        self.assertEqual(("t", os.uname().machine, "/usr"), (v["task"], v["machine"], v["cwd"]))
        config = self.env.serialize()["info"]["config"]
        self.assertEqual("berth_minisweagent.BerthEnvironment", config["environment_type"])
        self.assertEqual("local", config["environment"]["backend"])


if __name__ == "__main__":
    unittest.main()
