"""Tests of the module, with the berth on PATH and the backend local."""
import os
import signal
import tempfile
import threading
import time
import unittest

import berth


class EnvironmentTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.notes = []
        cls.whole = berth.Environment(backend="local", remove=True, on_note=cls.notes.append)
        cls.addClassCleanup(cls.whole.close)

    def setUp(self):
        self.env = self.whole.session()
        self.addCleanup(self.env.close)

    def test_state_and_streams(self):
        self.env.run("cd /usr && export MODE='a b'")
        r = self.env.run("echo $MODE in $PWD; echo no >&2; exit 3")
        self.assertEqual(("a b in /usr\n", "no\n", 3, "/usr", False), (r.stdout, r.stderr, r.exit_code, r.cwd, r.ok))
        self.assertTrue(r.shell_ended)
        self.assertEqual("a b\n", self.env.run("echo $MODE").stdout, "the state from before it")
        self.assertEqual("1\n2\n3\n", self.env.run("echo 1; echo 2 >&2; echo 3", merge=True).output)
        self.assertEqual("$MODE *;\n", self.env.run(["printf", "%s\\n", "$MODE *;"]).stdout, "words are not for a shell")
        self.assertEqual("/", self.env.run("true", workdir="/").cwd)
        self.assertEqual("in\nv", self.env.run('cat; printf "$V"', stdin="in\n", env={"V": "v"}).stdout)
        self.assertIn("no containment", self.notes[0])

    def test_failures(self):
        r = self.env.run("echo before; sleep 60", timeout=0.3)
        self.assertEqual((124, True, "before\n"), (r.exit_code, r.timed_out, r.stdout))
        with self.assertRaises(berth.CommandFailed) as e:
            self.env.run("echo why >&2; false", check=True)
        self.assertEqual((1, "the command failed: exit code 1: why"), (e.exception.exit_code, str(e.exception)))
        r = self.env.run(["/nowhere/program"])
        self.assertEqual(127, r.exit_code)
        self.assertEqual(15, self.env.run("kill -TERM $$").signal)
        with self.assertRaises(berth.BerthError) as e:
            self.env.run("true", env={"a b": "c"})
        self.assertEqual((125, 'env: "a b" names no variable'), (e.exception.exit_code, e.exception.message))
        with self.assertRaises(berth.BerthError) as e:
            berth.Environment(self.env.name, backend="docker")
        self.assertIn("made with another backend", e.exception.message)
        self.assertIn("--env NAME", e.exception.hint)
        with self.assertRaises(berth.BerthError) as e:
            berth.Environment(program="/nowhere/berth")
        self.assertIn("could not be started", e.exception.message)
        with self.assertRaises(ValueError):
            self.env.run("true", timeout=-1)
        self.assertEqual("served\n", self.env.run("echo served").stdout)

    def test_much_output(self):
        r = self.env.run("seq 1 100000", show_bytes=100)
        self.assertTrue(r.truncated)
        self.assertLess(len(r.stdout), 400)
        self.assertEqual("".join(f"{i}\n" for i in range(1, 100001)).encode(), r.full())
        self.assertEqual(b"x", self.env.run("printf x").full())
        self.assertEqual(100_000, len(self.env.run("cat", stdin="y" * 100_000, show_bytes=1 << 20).stdout))

    def test_killed(self):
        self.env.run("export KEPT=1")
        proc = self.env._proc
        killer = threading.Timer(0.5, proc.kill)
        killer.start()
        begun = time.monotonic()
        with self.assertRaises(berth.BerthError) as e:
            self.env.run("sleep 60")
        self.assertLess(time.monotonic() - begun, 20)
        self.assertEqual((125, "berth exec: signal 9 ended it"), (e.exception.exit_code, e.exception.message))
        self.assertIn("is not known", e.exception.hint)
        self.assertEqual("1\n", self.env.run("echo $KEPT").stdout, "the session goes on by another process")
        self.env._proc.kill()
        self.env._proc.wait()
        self.assertEqual("1\n", self.env.run("echo $KEPT").stdout, "killed between two commands")

    def test_threads_and_sessions(self):
        found = {}

        def work(n):
            found[n] = self.env.run(f"sleep 0.02; echo {n}").stdout

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual({n: f"{n}\n" for n in range(8)}, found)
        with self.env.session() as other:
            long = threading.Thread(target=self.env.run, args=("sleep 60",))
            long.start()
            self.assertEqual("free\n", other.run("echo free").stdout)
            while True:  # until the command runs, there is nothing to interrupt
                if other.run("pgrep -f '^sleep 60$'").ok:
                    break
            self.env.interrupt()
            long.join(20)
            self.assertFalse(long.is_alive())
        self.assertEqual("next\n", self.env.run("echo next").stdout)

    def test_interrupted_result(self):
        threading.Timer(0.5, self.env.interrupt).start()
        r = self.env.run("echo some; sleep 60")
        self.assertEqual((130, True, "some\n"), (r.exit_code, r.interrupted, r.stdout))

    def test_closed_by_another_thread(self):
        threading.Timer(0.5, self.env.close).start()
        begun = time.monotonic()
        self.assertTrue(self.env.run("sleep 60").interrupted)
        self.assertLess(time.monotonic() - begun, 20)
        with self.assertRaises(berth.BerthError):
            self.env.run("true")

    @unittest.skipUnless(threading.current_thread() is threading.main_thread(), "signals come to the main thread")
    def test_ctrl_c(self):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            self.env.run("sleep 60; echo late")
        self.assertEqual("next\n", self.env.run("echo next").stdout, "no answer of the one before")

    def test_files(self):
        with tempfile.TemporaryDirectory() as here:
            there = os.path.join(here, "there")
            os.mkdir(there)
            self.env.run(["true"], workdir=there)
            content = bytes(range(256)) * 1000
            self.env.write_file("data:1.bin", content)
            self.assertEqual(content, self.env.read_file(there + "/data:1.bin"))
            tree = os.path.join(here, "a:tree")
            os.makedirs(os.path.join(tree, "sub"))
            with open(os.path.join(tree, "sub", "f"), "w") as f:
                f.write("text")
            self.env.upload(tree, ".")
            self.env.upload(tree + "/.", there + "/flat")
            self.assertEqual(b"text", self.env.read_file("a:tree/sub/f"))
            self.env.download("flat", os.path.join(here, "back"))
            with open(os.path.join(here, "back", "sub", "f")) as f:
                self.assertEqual("text", f.read())
            with self.assertRaises(berth.BerthError) as e:
                self.env.read_file("/nowhere/file")
            self.assertEqual(3, e.exception.exit_code)
            with self.assertRaises(berth.BerthError) as e:
                self.env.read_file("flat")
            self.assertIn("no file", e.exception.message)

    def test_background(self):
        p = self.env.start('read line; echo "got $line $KEY"; exit 4', env={"KEY": "s3cret"})
        self.assertTrue(p.running)
        self.assertIsNone(p.wait(0.1))
        p.write("it\n", close=True)
        self.assertEqual(4, p.wait())
        self.assertEqual(b"got it s3cret\n", p.log())
        self.assertEqual(b"ret\n", p.log(tail=4))
        long = self.env.start(["sleep", "60"])
        self.assertEqual([p.id, long.id], [x.id for x in self.whole.processes()])
        long.kill()
        self.assertFalse(long.running)
        self.assertEqual(143, long.wait())
        with self.assertRaises(ValueError):
            self.env.start("true", env={"PATH": "/x"})
        with self.assertRaises(ValueError):
            self.env.start(["a program"])
        with self.assertRaises(berth.BerthError) as e:
            berth.Process(self.env, "bg-99").kill()
        self.assertEqual(3, e.exception.exit_code)

    def test_reuse_and_close(self):
        env = berth.Environment(backend="local", remove=True)
        self.addCleanup(env.close)
        env.run("export A=1")
        with berth.Environment(env.name) as same:
            self.assertEqual("1\n", same.run("echo $A").stdout)
        with self.assertRaises(berth.BerthError):
            same.run("true")
        self.assertEqual("1\n", env.run("echo $A").stdout)
        env.stop()
        self.assertEqual("\n", env.run("echo $A").stdout, "sessions end with what runs")
        env.close()
        env.close()
        with self.assertRaises(berth.BerthError) as e:
            berth.Environment(env.name, flags=["--no-such-flag"])
        self.assertIn("unknown flag", e.exception.message)
        with self.assertRaises(berth.BerthError) as e:
            self.env._berth("env", "show", env.name)
        self.assertEqual(3, e.exception.exit_code)


if __name__ == "__main__":
    unittest.main()
