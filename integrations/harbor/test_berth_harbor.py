"""Tests with a stand-in for the package harbor, and the backend local."""
import abc
import asyncio
import logging
import os
import sys
import tempfile
import time
import types
import unittest
import unittest.mock
from dataclasses import dataclass
from pathlib import Path


@dataclass
class ExecResult:
    stdout: str
    stderr: str
    return_code: int


class BaseEnvironment(abc.ABC):
    """What harbor.environments.base declares of an environment."""

    default_user = None

    def __init__(self, environment_dir: Path, environment_name: str, session_id: str, trial_paths, task_env_config, logger=None, override_cpus=None,
                 override_memory_mb=None, override_storage_mb=None, override_gpus=None, suppress_override_warnings=False, persistent_env=None):
        self.environment_dir, self.environment_name, self.session_id = environment_dir, environment_name, session_id
        self.trial_paths, self.task_env_config, self.logger = trial_paths, task_env_config, logger
        self._validate_definition()

    @staticmethod
    @abc.abstractmethod
    def type(): ...

    @property
    @abc.abstractmethod
    def is_mounted(self): ...

    @property
    @abc.abstractmethod
    def supports_gpus(self): ...

    @property
    @abc.abstractmethod
    def can_disable_internet(self): ...

    @abc.abstractmethod
    def _validate_definition(self): ...

    @abc.abstractmethod
    async def start(self, force_build: bool): ...

    @abc.abstractmethod
    async def stop(self, delete: bool): ...

    @abc.abstractmethod
    async def upload_file(self, source_path, target_path): ...

    @abc.abstractmethod
    async def upload_dir(self, source_dir, target_dir): ...

    @abc.abstractmethod
    async def download_file(self, source_path, target_path): ...

    @abc.abstractmethod
    async def download_dir(self, source_dir, target_dir): ...

    @abc.abstractmethod
    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None): ...


for name in ("harbor", "harbor.environments", "harbor.environments.base"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["harbor.environments.base"].BaseEnvironment = BaseEnvironment
sys.modules["harbor.environments.base"].ExecResult = ExecResult

import berth  # noqa: E402
from berth_harbor import BerthEnvironment  # noqa: E402

BACKEND, IMAGE = os.environ.get("BERTH_TRY_BACKEND", "local"), os.environ.get("BERTH_TRY_IMAGE", "")


@dataclass
class Config:
    docker_image: str = IMAGE
    cpus: int = 1
    memory_mb: int = 512
    storage_mb: int = 0
    gpus: int = 0
    allow_internet: bool = True
    env: dict = None


def made(config, **kwargs):
    return BerthEnvironment(environment_dir=Path("."), environment_name="Hello World", session_id="s1", trial_paths=None, task_env_config=config,
                            logger=logging.getLogger("test"), **kwargs)


class HarborTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.env = made(Config(env={"A": "task", "B": "task"}), backend=BACKEND, limits=BACKEND != "bwrap")
        await self.env.start(force_build=False)
        self.name = self.env._first.name

    async def asyncTearDown(self):
        await self.env.stop(delete=True)
        self.assertIsNone(self.env._first)
        with self.assertRaises(berth.BerthError):
            await self.env.exec("true")

    async def test_exec(self):
        self.assertRegex(self.name, "^harbor-hello-world-[0-9a-f]{8}$")
        r = await self.env.exec("echo $A $B $PWD; echo err >&2; exit 3", cwd="/usr", env={"B": "call"})
        self.assertEqual(("task call /usr\n", "err\n", 3), (r.stdout, r.stderr, r.return_code))
        await self.env.exec("set -e; cd /; export KEPT=1")
        self.assertEqual(f"{self.env._home}\n", (await self.env.exec("echo $PWD $KEPT")).stdout, "each is a shell of its own")
        r = await self.env.exec("echo some; sleep 60", timeout_sec=3)
        self.assertEqual(("some\n", 124), (r.stdout, r.return_code))
        self.assertIn("after 3 seconds", r.stderr)
        self.assertEqual(20_000, len((await self.env.exec("seq 1 20000")).stdout.splitlines()))
        self.assertEqual("long\n", (await self.env.exec("#" + "x" * 200_000 + "\necho long")).stdout)
        begun = time.monotonic()
        rs = await asyncio.gather(*(self.env.exec(f"sleep 1; echo {n}") for n in range(4)))
        self.assertEqual(["0\n", "1\n", "2\n", "3\n"], [r.stdout for r in rs])
        self.assertLess(len(self.env._idle), 6)
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(self.env.exec("sleep 3000"), 0.5)
        self.assertLess(time.monotonic() - begun, 60, "a call that is taken back ends its command")
        with self.assertRaises(berth.BerthError):
            await self.env.exec("true", user="agent")
        self.assertEqual(0, (await self.env.exec("true", user="root")).return_code)

    async def test_files(self):
        there = (await self.env.exec("mktemp -d")).stdout.strip()
        try:
            with tempfile.TemporaryDirectory() as d:
                here = Path(d)
                (here / "tree" / "sub").mkdir(parents=True)
                (here / "tree" / "sub" / "f").write_text("text")
                await self.env.upload_dir(here / "tree", there + "/x/tree")
                await self.env.upload_dir(here / "tree", there + "/x/tree")
                await self.env.upload_file(here / "tree" / "sub" / "f", there + "/y/g")
                self.assertTrue(await self.env.is_file(there + "/y/g"))
                self.assertTrue(await self.env.is_dir(there + "/x/tree/sub"))
                self.assertFalse(await self.env.is_dir(there + "/x/tree/tree"))
                (here / "back").mkdir()
                (here / "back" / "mine").symlink_to("/usr")
                await self.env.download_dir(there + "/x", here / "back")
                self.assertTrue((here / "back" / "mine").is_symlink(), "it was there before")
                self.assertEqual("text", (here / "back" / "tree" / "sub" / "f").read_text())
                await self.env.download_file(there + "/y/g", here / "new" / "h")
                self.assertEqual("text", (here / "new" / "h").read_text())
                await self.no_link_leads_out(there, here)
        finally:
            await self.env.exec('rm -rf "$D"', env={"D": there})

    async def no_link_leads_out(self, there, here):
        (here / "secret").write_text("of this machine")
        links = f"mkdir -p bad/shut && cd bad && echo x > in && ln -s in good && ln -s {here}/secret reward && ln -s ../secret up && ln -s up again"
        links += f" && ln -s {here} dir && ln -s /nowhere gone && ln -s {here}/secret shut/deep && chmod 111 shut"
        self.assertEqual(0, (await self.env.exec(links, cwd=there)).return_code)
        with self.assertLogs("test", "WARNING") as said:
            await self.env.download_dir(there + "/bad", here / "got")
        self.assertEqual(["good", "in", "shut"], sorted(os.listdir(here / "got")))
        self.assertEqual([], os.listdir(here / "got" / "shut"))
        self.assertEqual("x\n", (here / "got" / "good").read_text())
        self.assertIn("reward", said.output[0])
        with self.assertRaisesRegex(berth.BerthError, "reward is a symbolic link"):
            await self.env.download_file(there + "/bad/reward", here / "got2" / "reward")
        self.assertEqual([], os.listdir(here / "got2"))
        self.assertEqual("of this machine", (here / "secret").read_text())

    async def test_stop_again(self):
        with unittest.mock.patch.object(self.env._first, "_berth", side_effect=berth.BerthError("busy")), self.assertRaises(berth.BerthError):
            await self.env.stop(delete=True)
        self.assertEqual(self.name, self.env._ended.name)
        await self.env.stop(delete=True)
        self.assertIsNone(self.env._ended)

    async def test_definition(self):
        with self.assertRaisesRegex(ValueError, "names no docker_image"):
            made(Config(docker_image=""), backend="docker")
        self.assertEqual("docker://debian:12", made(Config(docker_image="debian:12"))._image_of())
        self.assertEqual("./py.sif", made(Config(), image="./py.sif")._image_of())
        self.assertFalse(self.env.is_mounted)
        self.assertEqual("berth", self.env.type())


if __name__ == "__main__":
    unittest.main()
