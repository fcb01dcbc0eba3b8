"""Tests of the module, with the berth on PATH and the backend local."""
import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import unittest.mock

import berth


class EnvironmentTest(unittest.TestCase):
    def when_runs(self, then):
        """A command that sleeps, and what then does from another thread when it has begun."""
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)
        marker = os.path.join(d.name, "begun")

        def wait():
            until = time.monotonic() + 60
            while not os.path.exists(marker) and time.monotonic() < until:
                time.sleep(0.02)
            then()

        t = threading.Thread(target=wait)
        t.start()
        self.addCleanup(t.join)
        return f"echo some; : > {marker}; sleep 60"

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
        r = self.env.run("echo before; sleep 60", timeout=3)
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
        begun = time.monotonic()
        with self.assertRaises(berth.BerthError) as e:
            self.env.run(self.when_runs(proc.kill))
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
            def meanwhile():
                found["free"] = other.run("echo free").stdout
                self.env.interrupt()

            r = self.env.run(self.when_runs(meanwhile))
            self.assertEqual((130, True, "some\n"), (r.exit_code, r.interrupted, r.stdout))
            self.assertEqual("free\n", found["free"])
        self.assertEqual("next\n", self.env.run("echo next").stdout)

    def test_interrupted_result(self):
        r = self.env.run(self.when_runs(self.env.interrupt))
        self.assertEqual((130, True, "some\n"), (r.exit_code, r.interrupted, r.stdout))
        self.env.interrupt()
        self.assertEqual("next\n", self.env.run("echo next").stdout, "no command runs: nothing to interrupt")

    def test_interrupted_before_it_began(self):
        start, proc = self.env._start, self.env._proc

        def replaced():  # as it is while another process begins
            self.env._end()
            self.env.interrupt()
            return start()

        self.env._start = replaced
        r = self.env.run("echo run")
        self.assertEqual((130, True, False, ""), (r.exit_code, r.interrupted, r.started, r.stdout))
        self.env._start = start
        self.assertEqual("next\n", self.env.run("echo next").stdout)
        self.assertIsNot(proc, self.env._proc)
        answer = self.env._answer

        def signalled(proc, request):  # the signal comes before the request
            self.env.interrupt()
            self.env.interrupt()
            proc.wait()
            return answer(proc, request)

        self.env._answer = signalled
        r = self.env.run("echo run")
        self.assertEqual((130, True, False, ""), (r.exit_code, r.interrupted, r.started, r.stdout))
        self.env._answer = answer
        self.assertEqual("next\n", self.env.run("echo next").stdout)

    def test_closed_by_another_thread(self):
        begun = time.monotonic()
        self.assertTrue(self.env.run(self.when_runs(self.env.close)).interrupted)
        self.assertLess(time.monotonic() - begun, 40)
        with self.assertRaises(berth.BerthError):
            self.env.run("true")

    def test_on_note_fails(self):
        def fails(note):
            raise RuntimeError("a caller's mistake")

        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        with berth.Environment(backend="local", remove=True, on_note=fails) as env:
            env.run("export KEPT=1")
            proc = env._proc
            self.assertEqual("1\n", env.run("echo $KEPT").stdout)
            self.assertTrue(env._reader.is_alive(), "it still reads what berth says")
            self.assertIs(proc, env._proc)

    def test_forward_fails(self):
        begun = []
        popen = subprocess.Popen

        def kept(*args, **kwargs):
            begun.append(popen(*args, **kwargs))
            return begun[-1]

        with unittest.mock.patch("subprocess.Popen", kept), unittest.mock.patch("threading.Thread", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                self.env.forward(1)
        self.assertEqual([-signal.SIGKILL], [p.poll() for p in begun])

    @unittest.skipUnless(threading.current_thread() is threading.main_thread(), "signals come to the main thread")
    def test_ctrl_c(self):
        with self.assertRaises(KeyboardInterrupt):
            self.env.run(self.when_runs(lambda: os.kill(os.getpid(), signal.SIGINT)) + "; echo late")
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

    def test_links(self):
        """What runs inside makes the links: none of them is followed on this side."""
        with tempfile.TemporaryDirectory() as d:
            with open(os.path.join(d, "secret"), "w") as f:
                f.write("of this machine")
            link = os.path.join(d, "link")
            os.symlink("secret", link)
            self.assertEqual(b"of this machine", self.env.read_file(link), "inside it leads to a file")
            with unittest.mock.patch.object(self.env, "_real", return_value=link), self.assertRaises(berth.BerthError) as e:
                self.env.read_file(link)
            self.assertEqual((f"{link} is a symbolic link", 3), (e.exception.message, e.exception.exit_code))
            self.assertTrue(e.exception.hint)

            def changes(source, name):  # it is another one at each look
                os.symlink(os.path.join(d, "secret"), name)

            with unittest.mock.patch.object(self.env, "download", changes), self.assertRaises(berth.BerthError) as e:
                self.env.read_file(link)
            self.assertIn("is a symbolic link", e.exception.message)
            with unittest.mock.patch.object(self.env, "download", lambda source, name: os.mkfifo(name)), self.assertRaises(berth.BerthError) as e:
                self.env.read_file("pipe")
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
        for name in ("BERTH_HOME", "XDG_CONFIG_HOME", "LD_PRELOAD", "GIT_SSH_COMMAND", "SSH_AUTH_SOCK", "SLURM_CONF", "APPTAINER_TMPDIR", "DOCKER_HOST",
                     "GODEBUG", "https_proxy", "NO_PROXY", "SSL_CERT_FILE", "BASH_ENV", "TZ", "MODAL_TOKEN_ID"):
            with unittest.mock.patch.dict(os.environ), self.assertRaises(ValueError, msg=name):
                os.environ.pop(name, None)
                self.env.start("true", env={name: "/x"})
        for name in ("PYTHONPATHS", "ENVIRON", "HOMEPAGE", "MY_PATH"):
            self.assertEqual(0, self.env.start(f'[ "${name}" = /x ]', env={name: "/x"}).wait())
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

    def test_removes_what_it_made(self):
        name = berth.fresh_name()
        with self.assertRaisesRegex(ValueError, "may have been there before"):
            berth.Environment(self.whole.name, backend="local", remove=True, flags=["--no-such-flag"])
        self.env._berth("env", "show", self.whole.name)
        env = berth.Environment(name, backend="local", remove=True)
        self.addCleanup(env.close)
        with self.assertRaises(ValueError):
            berth.Environment(name, remove=True)
        with self.assertRaises(berth.BerthError):
            berth.Environment(name, backend="docker")
        self.env._berth("env", "show", name)
        with unittest.mock.patch.object(env, "_berth", side_effect=berth.BerthError("busy")):
            with self.assertRaises(berth.BerthError):
                env.close()
        with self.assertRaises(berth.BerthError):
            env.run("true")
        env.close()
        with self.assertRaises(berth.BerthError) as e:
            self.env._berth("env", "show", name)
        self.assertEqual(3, e.exception.exit_code)

    def test_failed_open_removes_a_fresh_one(self):
        made = []

        class Failing(berth.Environment):
            def run(self, *args, **kwargs):
                made.append(super().run(*args, **kwargs).environment)
                raise berth.BerthError("after it was made")

        with self.assertRaisesRegex(berth.BerthError, "after it was made"):
            Failing(backend="local", remove=True)
        with self.assertRaises(berth.BerthError) as e:
            self.env._berth("env", "show", made[0])
        self.assertEqual(3, e.exception.exit_code)


if __name__ == "__main__":
    unittest.main()
