"""An environment for Harbor: a trial's commands run in an environment of berth.

Each is a shell of its own, as with Harbor's others: state is in files alone.
"""
from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

import berth
from harbor.environments.base import BaseEnvironment, ExecResult  # type: ignore[import-not-found]

# A program's argument has at most 128 KiB.
LONGEST = 100_000


def _links(top: Path, opened: bool = False) -> Dict[str, str]:
    """The symbolic links at and below a path, and what they say. None is followed but the path itself.

    With `opened` directories get modes by which they can be looked through.
    """
    found = [str(top)] if os.path.islink(top) else []
    for directory, below, files in os.walk(top):
        for name in below + files:
            path = os.path.join(directory, name)
            if os.path.islink(path):
                found.append(path)
            elif opened and name in below and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(path, 0o700)
    return {link: os.readlink(link) for link in found}


def _within(path: str, top: str) -> bool:
    """Where a path leads is below a directory, which has no links in its own path."""
    return os.path.commonpath([os.path.realpath(path), top]) == top


class BerthEnvironment(BaseEnvironment):  # type: ignore[misc]
    """Made of the task's image (`docker_image` in its configuration), and removed by stop(delete=True).

    `backend`, `flags` (others of `berth exec`) and `program` say where and how.
    """

    def __init__(self, *args: Any, backend: str = "", image: str = "", flags: Optional[List[str]] = None, program: str = "berth",
                 limits: bool = True, **kwargs: Any) -> None:
        self._backend, self._image, self._flags, self._program = backend, image, flags or [], program
        self._limits = limits and backend not in ("local", "ssh")  # where berth has none
        self._override = {key[len("override_"):]: value for key, value in kwargs.items() if key.startswith("override_")}
        self._first: Optional[berth.Environment] = None
        self._ended: Optional[berth.Environment] = None  # what stop has taken, until it has succeeded
        self._idle: List[berth.Environment] = []
        self._mine = threading.Lock()
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "berth"

    @property
    def is_mounted(self) -> bool:
        return False

    @property
    def supports_gpus(self) -> bool:
        return True

    @property
    def can_disable_internet(self) -> bool:
        return self._backend not in ("local", "ssh")

    def _image_of(self) -> str:
        image = self._image or getattr(self.task_env_config, "docker_image", None) or ""
        return image if not image or "://" in image or image.startswith((".", "/")) else "docker://" + image

    def _validate_definition(self) -> None:
        if not self._image_of() and self._backend not in ("local", "ssh", "bwrap"):
            raise ValueError(f"the task {self.environment_name} names no docker_image, and berth builds none of a Dockerfile: "
                             "build it once, and name it as docker_image or image")

    async def start(self, force_build: bool) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        c = self.task_env_config

        def wanted(key: str) -> Any:
            value = self._override.get(key)
            return value if value is not None else getattr(c, key, None)

        flags = list(self._flags)
        cpus, memory, disk, gpus = map(wanted, ("cpus", "memory_mb", "storage_mb", "gpus"))
        if not self._limits:
            cpus = memory = disk = None
        if disk:
            flags.append(f"--disk={disk}MiB")
        if gpus:
            flags.append("--gpu=nvidia")
        closed = getattr(c, "allow_internet", True) is False
        self._first = berth.Environment(
            berth.fresh_name("harbor-" + self.environment_name), backend=self._backend or None, image=self._image_of() or None, cpus=cpus or None,
            memory=f"{memory}MiB" if memory else None, network="none" if closed else None, flags=flags, program=self._program, remove=True,
        )
        self._home = self._first.cwd

    async def stop(self, delete: bool) -> None:
        await asyncio.to_thread(self._stop, delete)

    def _stop(self, delete: bool) -> None:
        with self._mine:
            self._first, self._ended = None, self._first or self._ended
            first = self._ended
            idle, self._idle = self._idle, []
        try:
            for env in idle:
                try:
                    env.close()
                except berth.BerthError as e:  # the environment's end is theirs
                    self._warn(f"a session could not be closed: {e}")
        finally:
            if first is not None:
                if delete:
                    first.remove()
                else:
                    first.stop()
                self._ended = None

    def _warn(self, text: str) -> None:
        (getattr(self, "logger", None) or logging.getLogger("berth")).warning("berth: %s", text)

    def _running(self) -> berth.Environment:
        if self._first is None:
            raise berth.BerthError("the environment was not started, or was stopped")
        return self._first

    async def exec(
        self, command: str, cwd: Optional[str] = None, env: Optional[Dict[str, str]] = None, timeout_sec: Optional[int] = None,
        user: Union[str, int, None] = None,
    ) -> ExecResult:
        user = user if user is not None else getattr(self, "default_user", None)
        if user not in (None, "root", 0, "0"):
            raise berth.BerthError(f"commands run as the environment's user, and not as {user}", "flags=['--user=UID:GID'] with the backend docker")
        session = await asyncio.to_thread(self._session)
        work = asyncio.ensure_future(asyncio.to_thread(self._exec, session, command, cwd, env, timeout_sec))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            for _ in range(300):  # half a minute; one that comes before the command is there ends nothing
                session.interrupt()
                if (await asyncio.wait([work], timeout=0.1))[0]:
                    if not work.cancelled():
                        work.exception()  # it was looked at
                    break
            raise

    def _session(self) -> berth.Environment:
        """A session that is free: what runs at the same time has one each."""
        first = self._running()
        with self._mine:
            if self._idle:
                return self._idle.pop()
        return first.session()

    def _exec(
        self, session: berth.Environment, command: str, cwd: Optional[str], env: Optional[Dict[str, str]], timeout: Optional[int],
    ) -> ExecResult:
        both = {**(getattr(self.task_env_config, "env", None) or {}), **(env or {})}
        words, stdin = (["bash", "-c", command], None) if len(command.encode()) < LONGEST else (["bash"], command)
        try:
            r = session.run(words, stdin=stdin, env=both, timeout=timeout or 0, workdir=cwd or self._home)
            out, err = (r.full(s).decode(errors="replace") if s in r.files else getattr(r, s) for s in ("stdout", "stderr"))
        finally:
            with self._mine:
                stopped = self._first is None
                if not stopped:
                    self._idle.append(session)
            if stopped:
                session.close()
        said = f"the command was ended after {timeout} seconds" if r.timed_out else r.error
        return ExecResult(stdout=out, stderr=err + (("\n" if err else "") + said if said else ""), return_code=r.exit_code)

    async def upload_file(self, source_path: Union[Path, str], target_path: str) -> None:
        await asyncio.to_thread(self._upload, str(source_path), target_path)

    async def upload_dir(self, source_dir: Union[Path, str], target_dir: str) -> None:
        # Its contents: the target may be there already.
        await asyncio.to_thread(self._upload, os.path.join(source_dir, "."), target_dir)

    def _upload(self, source: str, target: str) -> None:
        env = self._running()
        above = target if source.endswith("/.") else os.path.dirname(target)
        if above:
            env.run(["mkdir", "-p", above], check=True)
        env.upload(source, target)

    async def download_file(self, source_path: str, target_path: Union[Path, str]) -> None:
        await asyncio.to_thread(self._download, source_path, Path(target_path), Path(target_path).parent)

    async def download_dir(self, source_dir: str, target_dir: Union[Path, str]) -> None:
        await asyncio.to_thread(self._download, source_dir.rstrip("/") + "/.", Path(target_dir), Path(target_dir))

    def _download(self, source: str, target: Path, above: Path) -> None:
        above.mkdir(parents=True, exist_ok=True)
        before = _links(target)
        try:
            self._running().download(source, target)
        finally:
            # The task chose where its links lead, and here they would lead to files of this machine.
            here = str(target)
            if os.path.islink(here) and before.get(here) != os.readlink(here):
                os.unlink(here)
                raise berth.BerthError(f"{source} is a symbolic link, which is not followed on this machine", "name what it leads to", 3)
            top = os.path.realpath(here)
            out = [link for link, to in _links(target, True).items() if before.get(link) != to and not _within(link, top)]
            for link in out:
                os.unlink(link)
            if out:
                self._warn(f"left out of {source}, as they lead out of it: the symbolic links {', '.join(map(repr, out))}")

    async def is_dir(self, path: str, user: Union[str, int, None] = None) -> bool:
        return (await self.exec('test -d "$P"', env={"P": path}, user=user)).return_code == 0

    async def is_file(self, path: str, user: Union[str, int, None] = None) -> bool:
        return (await self.exec('test -f "$P"', env={"P": path}, user=user)).return_code == 0

    async def attach(self) -> None:
        """A terminal in it, in the place of this process."""
        os.execvp(self._program, [self._program, "shell", "--env", self._running().name])
