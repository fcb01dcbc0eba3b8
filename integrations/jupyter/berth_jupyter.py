"""Jupyter kernels in an environment of berth.

`BerthProvisioner` starts a kernel inside, by ``berth exec``, and leads its channels
here: by Unix sockets in a private directory where the environment sees one of this
machine's, else by ``berth forward``. `main` is ``berth-jupyter install``, which writes
the kernelspec that names the provisioner.
"""
from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, TypeVar

from jupyter_client.provisioning import KernelProvisionerBase
from jupyter_core.paths import jupyter_data_dir
from traitlets import List as ListTrait
from traitlets import Unicode

import berth

__all__ = ["BerthProvisioner", "main"]

PROVISIONER = "berth-provisioner"
_CHANNELS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
_KERNEL = ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
_T = TypeVar("_T")

# Seconds that a kernel gets to end before berth ends it with all that it has started.
_GRACE = 10.0

# Prints a new private directory inside. It is below the directory of this machine ($1) when that is
# the same one there: it has the token ($2), and the kernel of the operating system is the same ($3).
_PLACE = """umask 077
at=${TMPDIR:-/tmp}
[ "$(cat "$1/token" 2>/dev/null)" = "$2" ] && [ "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)" = "$3" ] && [ -w "$1" ] && at=$1
mktemp -d "$at/berth-kernel-XXXXXXXX"
"""

_WRITE = "umask 077; cat >\"$1\""

# Runs a kernel, whose directory is $0. Standard input ends with the kernel, and with the Jupyter that has started
# it, however that has ended: then the directory, which has the key, is removed, and the kernel is ended, as long as what
# does this is a child of it: a kernel that has ended may have left its number to another process.
_RUN = """echo $$ >"$0/pid"
. "$0/variables"
exec 3<&0 </dev/null
lives() { read -r _ _ _ parent _ </proc/self/stat && [ "$parent" = $$ ]; }
(trap : TERM; cat <&3; rm -rf "$0"; lives && kill -TERM $$ && sleep 5 && lives && kill -KILL $$) >/dev/null 2>&1 &
exec 3<&-
exec "$@"
"""

# Sends the signal $2 to the kernel whose directory is $1, and to what it has started.
_SIGNAL = """pid=$(cat "$1/pid") && { kill -s "$2" -- "-$pid" 2>/dev/null || kill -s "$2" "$pid"; }"""


class BerthProvisioner(KernelProvisionerBase):  # type: ignore[misc]
    """Starts kernels in an environment of berth, which is made when the first one starts."""

    environment: str = Unicode("", config=True, help="Name of the environment; empty is berth's default.")
    flags: List[str] = ListTrait(Unicode(), config=True, help="Flags of berth exec that describe it, such as --image=py.sif.")
    workdir: str = Unicode("", config=True, help="Directory inside in which the kernel starts; empty is that of a fresh session.")
    program: str = Unicode("berth", config=True, help="The program berth.")

    _env: Optional[berth.Environment] = None  # a session for what is done beside the kernel
    _kernel: Optional[subprocess.Popen[bytes]] = None
    _forward: Optional[berth.Forward] = None
    _shared = ""  # a private directory of this machine
    _inside = ""  # the kernel's directory inside
    _inner: Dict[str, Any] = {}  # transport, ip and ports as the kernel has them
    _ending = False

    @property
    def has_process(self) -> bool:
        return self._kernel is not None

    async def poll(self) -> Optional[int]:
        if self._kernel is None:
            return 0
        code = self._kernel.poll()
        if code is not None and not self._ending:
            self._ending = True
            how = "berth or the environment failed" if code == berth.FAILED else f"signal {code - 128}" if code > 128 else f"exit code {code}"
            self.log.warning("the kernel in the environment %s has ended: %s", self.environment or "default", how)
        return code

    async def wait(self) -> Optional[int]:
        while (code := await self.poll()) is None:
            await asyncio.sleep(0.05)
        if self._kernel is not None and self._kernel.stdin is not None:
            self._kernel.stdin.close()
        self._kernel = None
        return code

    async def send_signal(self, signum: int) -> None:
        if signum == 0 or self._kernel is None or self._kernel.poll() is not None:
            return
        try:
            await _aside(lambda: self._run(_SIGNAL, self._inside, signal.Signals(signum).name[3:]))
        except berth.BerthError as e:
            if self._kernel.poll() is None:  # else it has ended meanwhile
                self.log.warning("the kernel in the environment %s was not sent signal %d: %s", self.environment or "default", signum, e)
                raise

    async def terminate(self, restart: bool = False) -> None:
        self._ending = True
        await self.send_signal(signal.SIGTERM)

    async def kill(self, restart: bool = False) -> None:
        self._ending = True
        kernel = self._kernel
        try:
            await self.send_signal(signal.SIGKILL)
        except berth.BerthError:
            pass
        if kernel is None:
            return
        try:
            await _aside(lambda: kernel.wait(1))
        except subprocess.TimeoutExpired:
            kernel.terminate()  # berth ends all that it has started inside
            try:
                await _aside(lambda: kernel.wait(_GRACE))
            except subprocess.TimeoutExpired:
                kernel.kill()
        try:
            # What would do it inside may have been ended with the kernel, before it had done so.
            await _aside(lambda: self._run('rm -rf "$1"', self._inside))
        except berth.BerthError as e:
            self.log.warning("the directory %s with the key of the kernel may be left in the environment %s: %s",
                             self._inside, self.environment or "default", e)

    async def shutdown_requested(self, restart: bool = False) -> None:
        self._ending = True

    async def pre_launch(self, **kwargs: Any) -> Dict[str, Any]:
        kwargs = await super().pre_launch(cmd=[*self.kernel_spec.argv, *kwargs.pop("extra_arguments", [])], **kwargs)
        try:
            await _aside(lambda: self._prepare(kwargs["env"]))
        except BaseException:
            await self.cleanup()
            raise
        return kwargs

    def _prepare(self, variables: Dict[str, str]) -> None:
        """Open the environment and the way to it, and write there what the kernel reads."""
        km = self.parent
        if self._env is None:
            self._env = berth.Environment(self.environment or None, session=berth.fresh_name("jupyter"), flags=self.flags, program=self.program,
                                          on_note=self.log.info)
        if not self._shared:
            self._shared = tempfile.mkdtemp(prefix="berth-")
            token = secrets.token_hex(16)
            with open(os.path.join(self._shared, "token"), "x", encoding="ascii") as f:
                f.write(token)
            self._places = [self._shared, token, _boot()]
        self._inside = self._run(_PLACE, *self._places).stdout.rstrip("\n")
        by_socket = _mine(self._inside, self._shared)
        if not by_socket and self._inside.startswith(self._shared):  # it belongs to another user there
            self._places = ["/nonexistent", "", ""]
            self._inside = self._run(_PLACE, *self._places).stdout.rstrip("\n")
        if not self._inner or not km.shell_port:  # at a restart the clients keep their addresses, unless others are asked for
            self._open(by_socket)
        km.transport, km.ip = ("ipc", self._inner["ip"]) if by_socket else ("tcp", "127.0.0.1")
        for channel, port in zip(_CHANNELS, self._forward.ports if self._forward is not None else range(1, 6)):
            setattr(km, channel, port)
        km.write_connection_file()
        self.connection_info = km.get_connection_info()
        info = {**self.connection_info, **self._inner}
        info["key"] = info["key"].decode() if isinstance(info["key"], bytes) else info["key"]
        self._run(_WRITE, self._inside + "/connection.json", stdin=json.dumps(info))
        for name in self.kernel_spec.env:
            if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"{name!r} of the kernelspec's env is no name of a variable")
        lines = [f"export {name}={shlex.quote(variables[name])}\n" for name in self.kernel_spec.env]
        self._run(_WRITE, self._inside + "/variables", stdin="".join(lines) or ":\n")

    def _open(self, by_socket: bool) -> None:
        assert self._env is not None
        if by_socket:
            self._inner = {"transport": "ipc", "ip": os.path.join(self._shared, "socket"), **dict(zip(_CHANNELS, range(1, 6)))}
            return
        if self._forward is not None:
            self._forward.close()
            self._forward = None
        # Below the ports that a system gives to clients. One that is taken ends the kernel, and Jupyter asks for others.
        inside = [20000 + n for n in secrets.SystemRandom().sample(range(12000), len(_CHANNELS))]
        self._forward = self._env.forward(*inside)
        self._inner = {"transport": "tcp", "ip": "127.0.0.1", **dict(zip(_CHANNELS, inside))}

    def _run(self, script: str, *args: str, stdin: Optional[str] = None) -> berth.Result:
        assert self._env is not None
        return self._env.run(["sh", "-c", script, "sh", *args], stdin=stdin, timeout=60, check=True)

    async def launch_kernel(self, cmd: List[str], **kwargs: Any) -> Dict[str, Any]:
        assert self._env is not None
        self._ending = False
        values = {"connection_file": self._inside + "/connection.json", "resource_dir": self.kernel_spec.resource_dir}
        words = [re.sub(r"\{(connection_file|resource_dir)\}", lambda m: values[m[1]], word) for word in cmd]
        # Its stdin stays open for as long as this program is there: see _RUN. Ctrl-C at a terminal is Jupyter's.
        line = [self.program, "exec", f"--env={self._env.name}", "--session=" + berth.fresh_name("kernel"), "--timeout=0", "--stdin",
                *([f"--workdir={self.workdir}"] if self.workdir else []), "--", "sh", "-c", _RUN, self._inside, *words]
        self._kernel = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=kwargs.get("stdout"), stderr=kwargs.get("stderr"), start_new_session=True)
        return dict(self.connection_info)

    async def cleanup(self, restart: bool = False) -> None:
        if restart:
            return
        if self._kernel is not None:
            await self.kill()
            await self.wait()
        await _aside(self._close)

    def _close(self) -> None:
        if self._forward is not None:
            self._forward.close()
        if self._env is not None:
            self._env.close()
        if self._shared:
            shutil.rmtree(self._shared, ignore_errors=True)
        self._forward, self._env, self._shared, self._inner = None, None, "", {}

    async def get_provisioner_info(self) -> Dict[str, Any]:
        """What a Jupyter that restarts would need; the kernel ends with the one that has started it."""
        return dict(await super().get_provisioner_info())


async def _aside(work: Callable[[], _T]) -> _T:
    """Do what waits in another thread: Jupyter's loop serves the other kernels."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return secrets.token_hex(16)  # which nothing has: the sockets of another system are not tried


def _mine(path: str, top: str) -> bool:
    """Whether a directory is below top here, and belongs to this user."""
    try:
        return os.path.dirname(path) == top and os.lstat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _install(args: argparse.Namespace) -> str:
    """Write a kernelspec and return its directory."""
    name = args.name or "berth-" + (args.env or "default")
    for what, value, allowed in (("environment", args.env or "default", "[a-z0-9][a-z0-9-]*"), ("kernel", name, "[A-Za-z0-9][A-Za-z0-9._-]*")):
        if not re.fullmatch(allowed, value):
            raise ValueError(f"{value!r} is no name of {'an environment' if what == 'environment' else 'a kernel'}")
    for word in (args.display_name or "", args.language, args.workdir, args.program, *args.flag, *args.kernel):
        if not word.isprintable():
            raise ValueError(f"{word!r} has a character that is not printable")
    if args.kernel and not any("{connection_file}" in word for word in args.kernel):
        raise ValueError("the kernel's command has no {connection_file}")
    top = os.path.join(args.prefix, "share", "jupyter") if args.prefix else jupyter_data_dir()
    directory = os.path.join(top, "kernels", name)
    file = os.path.join(directory, "kernel.json")
    if os.path.lexists(directory) and _provisioner(file) != PROVISIONER:
        raise ValueError(f"{directory} is another kernel's: choose a name by --name")
    config = {"environment": args.env or "", "flags": args.flag, "workdir": args.workdir, "program": args.program}
    spec = {
        "argv": args.kernel or _KERNEL, "display_name": args.display_name or f"Python 3 in {args.env or 'default'} (berth)", "language": args.language,
        "interrupt_mode": "signal",
        "metadata": {"kernel_provisioner": {"provisioner_name": PROVISIONER, "config": {k: v for k, v in config.items() if v}}},
    }
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=directory)
    try:
        with open(fd, "w", encoding="utf-8") as f:
            json.dump(spec, f, indent=1)
            f.write("\n")
        os.rename(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise
    return directory


def _provisioner(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as f:
            return str(json.load(f)["metadata"]["kernel_provisioner"]["provisioner_name"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def main(words: Optional[List[str]] = None) -> int:
    """berth-jupyter: exit code 0, or 2 for what cannot be done as it was asked for."""
    parser = argparse.ArgumentParser(prog="berth-jupyter", description="Jupyter kernels in an environment of berth.")
    install = parser.add_subparsers(dest="verb", required=True).add_parser("install", help="write a kernelspec")
    install.add_argument("--env", metavar="NAME", help="the environment; without it berth's default")
    install.add_argument("--name", help="the kernel's name (berth-ENV)")
    install.add_argument("--display-name", help="what people see")
    install.add_argument("--language", default="python")
    install.add_argument("--workdir", default="", help="directory inside in which the kernel starts")
    install.add_argument("--flag", action="append", default=[], metavar="FLAG", help="a flag of berth exec, such as --flag=--image=py.sif; may be repeated")
    install.add_argument("--program", default="berth", help="the program berth")
    install.add_argument("--prefix", default="", help="install below PREFIX/share/jupyter")
    install.add_argument("kernel", nargs="*", metavar="-- COMMAND", help="the kernel's command (%s)" % " ".join(_KERNEL).replace("%", "%%"))
    args = parser.parse_args(words)
    try:
        print(_install(args))
    except (ValueError, OSError) as e:
        print(f"berth-jupyter: error: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
