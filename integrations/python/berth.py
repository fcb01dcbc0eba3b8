"""A contained terminal for a program: commands in an environment of berth.

    import berth

    with berth.Environment("work", backend="docker", image="debian:12") as env:
        env.run("cd /srv && export MODE=test")
        print(env.run("echo $MODE in $PWD", timeout=60).stdout)

One process of ``berth exec --batch`` runs the commands of an `Environment`. A
command is a text for the session's shell, or a list: a program and its arguments,
without a shell. Nothing is quoted here.

What fails in the command is in its `Result`. What fails in berth, or in the
environment, is a `BerthError`, with berth's exit code and hint.
"""
from __future__ import annotations

import json
import logging
import os
import re
import secrets
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Type, Union

__all__ = ["BerthError", "CommandFailed", "Environment", "Forward", "Process", "Result", "fresh_name"]

Command = Union[str, Sequence[str]]
"""A text for the session's shell, or a program and its arguments."""

Path = Union[str, "os.PathLike[str]"]

FAILED = 125
"""The exit code of a failure that is berth's or the environment's, where others are the command's."""

_log = logging.getLogger("berth")

# Seconds that a process of berth gets to end what it runs before it is killed.
_GRACE = 10.0

# Variables that change what runs here, and not what runs inside: of berth and its configuration, of Go's runtime and the
# way to a registry, of the loader and the C library, of shells, and of the programs that berth starts. Values of
# start() pass in the variables of a process of berth, so that these names are not for it.
_OUTSIDE = re.compile(
    "(?:BERTH|TERMINAL|HERMES|XDG|LD|LC|DYLD|MALLOC|BASH|GIT|SSH|DOCKER|BUILDKIT|COMPOSE|SLURM|SBATCH|SALLOC|SRUN|SQUEUE|SINFO|SACCT|SCANCEL|SCONTROL|"
    "APPTAINER|APPTAINERENV|SINGULARITY|SINGULARITYENV|MODAL|DAYTONA|DBUS|SYSTEMD|FUSE|SSL_CERT|AWS|CONTAINER|CONTAINERS|CUDA|ROCR)_|KRB5"
    "|(?:PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TZ|TZDIR|LANG|LANGUAGE|TERM|NO_COLOR|ENV|IFS|PS4|SHELLOPTS|BASHOPTS|CDPATH|ZONEINFO|"
    "GODEBUG|GOGC|GOMEMLIMIT|GOMAXPROCS|GOTRACEBACK|GOCOVERDIR|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH|RES_OPTIONS|LOCALDOMAIN|HOSTALIASES|NOTIFY_SOCKET|REGISTRY_AUTH_FILE|"
    "(?i:(?:http|https|all|ftp|no)_proxy))$")

# What fresh_name has chosen and no Environment has taken: with remove each is removed by the one that takes it.
_fresh: Set[str] = set()


class BerthError(Exception):
    """berth or the environment failed, and whether a command ran is not known.

    `message` says what failed, `hint` what to do about it (or ""), `exit_code` is
    that of berth (berth help exit-codes).
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = FAILED) -> None:
        super().__init__(message + (f" ({hint})" if hint else ""))
        self.message, self.hint, self.exit_code = message, hint, exit_code


class CommandFailed(BerthError):
    """A command ended with another exit code than 0: raised by `Result.check` alone."""

    def __init__(self, result: Result) -> None:
        last = (result.output or result.stderr or result.stdout).strip().splitlines()[-1:]
        super().__init__(f"the command failed: {result.reason}" + (f": {last[0]}" if last else ""), "", result.exit_code)
        self.result = result


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it has written.

    The texts are what berth shows: of much output its beginning and its end. Then
    `truncated` is true, and `files` has where all of it is, by the stream's name.
    """

    exit_code: int
    """The command's own, or 124 (timeout), 126 and 127 (it did not start), 130 (interrupted), 128+N (signal N)."""
    stdout: str = ""
    stderr: str = ""
    output: str = ""
    """With merge=True both streams as one, in the order in which they were written; else empty."""
    cwd: str = ""
    """The session's directory after it."""
    timed_out: bool = False
    interrupted: bool = False
    shell_ended: bool = False
    """It has ended its shell; the next command has the state from before it."""
    started: bool = True
    signal: int = 0
    error: str = ""
    """Why it did not start."""
    duration: float = 0.0
    """Seconds."""
    truncated: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    notes: Tuple[str, ...] = ()
    environment: str = ""

    @property
    def ok(self) -> bool:
        """It has exited with 0."""
        return self.exit_code == 0

    @property
    def reason(self) -> str:
        """How it ended, in a few words."""
        if self.timed_out:
            return "it was ended by its timeout"
        if self.interrupted:
            return "it was interrupted"
        if self.error:
            return self.error
        if self.signal:
            return f"signal {self.signal} ended it"
        return f"exit code {self.exit_code}"

    def check(self) -> Result:
        """Return this result, or raise `CommandFailed` when its exit code is not 0."""
        if not self.ok:
            raise CommandFailed(self)
        return self

    def full(self, stream: str = "stdout") -> bytes:
        """All that it has written to stdout, stderr or (merged) output, as far as berth keeps it: for a week."""
        path = self.files.get(stream)
        if path is None:
            return str(getattr(self, stream)).encode()
        with open(path, "rb") as f:
            return f.read()


def _result(answer: Mapping[str, Any]) -> Result:
    how = answer.get("exit") or {}
    streams = {name: answer[name] for name in ("stdout", "stderr", "output") if name in answer}
    return Result(
        exit_code=answer["exit_code"], cwd=answer.get("cwd", ""), timed_out=answer.get("timed_out", False),
        interrupted=answer.get("interrupted", False), shell_ended=answer.get("shell_ended", False),
        started=how.get("started", True), signal=how.get("signal", 0), error=how.get("error", ""),
        duration=answer.get("duration_ms", 0) / 1000, truncated=any(s["truncated"] for s in streams.values()),
        files={name: s["file"] for name, s in streams.items() if s.get("file")}, notes=tuple(answer.get("notes") or ()),
        environment=answer.get("environment", ""), **{name: s["text"] for name, s in streams.items()},
    )


def fresh_name(prefix: str = "py") -> str:
    """A name that no environment has: the prefix, as far as a name may have it, and a random end."""
    name = (re.sub("[^a-z0-9-]+", "-", prefix.lower()).strip("-")[:24] or "py") + "-" + secrets.token_hex(4)
    _fresh.add(name)
    return name


def _time(seconds: float) -> str:
    """A duration as berth's flags have it; 0 is never."""
    if not 0 <= seconds < 1e9:
        raise ValueError(f"a time must be seconds, 0 or more, found {seconds!r}")
    return "0" if seconds == 0 else f"{max(1, round(seconds * 1000))}ms"


class Environment:
    """An environment of berth and a session in it: a directory, variables, functions.

    It is opened here: made, or used again where `name` is recorded. Values that
    describe it count when it is made; later, other values are refused. Without a
    name berth chooses as `berth exec` does.

    `flags` are any others of `berth exec`. `env` holds variables for every command,
    and `forward` names of variables of this process; their values are on no command
    line and no disk. `timeout` is the seconds of a command (180; 0 is never).

    `close` leaves the environment as it is: it stays warm for `lifetime` seconds.
    With `remove` it is removed by `close`, and without a name it gets a fresh one.
    `remove` takes no other name than one of `fresh_name`, each once: an environment
    that was there before is removed by the method `remove` alone.

    Threads may share it: their commands run one after the other. What runs at the
    same time takes a `session` for each.
    """

    def __init__(
        self, name: Optional[str] = None, *, backend: Optional[str] = None, image: Optional[str] = None,
        network: Optional[str] = None, allow: Sequence[str] = (), cpus: Optional[float] = None, memory: Optional[str] = None,
        gpus: Optional[str] = None, binds: Sequence[str] = (), target: Optional[str] = None, session: Optional[str] = None,
        lifetime: Optional[float] = None, timeout: Optional[float] = None, env: Optional[Mapping[str, str]] = None,
        forward: Sequence[str] = (), flags: Sequence[str] = (), program: Path = "berth", remove: bool = False,
        on_note: Optional[Callable[[str], None]] = None,
    ) -> None:
        words: List[str] = []
        for flag, value in (("backend", backend), ("image", image), ("network", network), ("cpus", cpus), ("memory", memory),
                            ("gpus", gpus), ("target", target)):
            if value is not None:
                words.append(f"--{flag}={value}")
        for flag, values in (("allow", allow), ("bind", binds), ("forward", forward)):
            if isinstance(values, str):
                raise TypeError(f"{flag} must be a list")
            words += [f"--{flag}={v}" for v in values]
        if lifetime is not None:
            words.append("--lifetime=" + _time(lifetime))
        if remove:
            name = fresh_name() if name is None else name
            if name not in _fresh:
                raise ValueError(f"remove=True would remove {name!r}, which may have been there before: leave the name out, take one of fresh_name(), "
                                 "or call remove() when it is to go")
            _fresh.discard(name)
        self.name = name or ""
        self.timeout = timeout
        self.env: Dict[str, str] = dict(env or {})
        self._session, self._program, self._flags, self._remove = session, os.fspath(program), [*words, *flags], remove
        self._on_note = on_note or _log.info
        self._one_at_a_time = threading.RLock()
        self._state = threading.RLock()  # of the next three: the thread of a signal handler may have it already
        self._busy = False  # a command is on its way
        self._asked: Optional[subprocess.Popen[bytes]] = None  # it has got that command
        self._interrupted = False  # that command was interrupted before a process had it
        self._proc: Optional[subprocess.Popen[bytes]] = None
        self._signalled: Optional[subprocess.Popen[bytes]] = None  # it answers what it runs, and ends
        self._said: deque[str] = deque(maxlen=20)
        self._reader: Optional[threading.Thread] = None
        self._number = 0
        self._closed = self._removed = False
        self.cwd = ""
        try:
            opened = self.run(":", timeout=0)
        except BaseException:
            self._removed = self._reader is None  # no berth was started, so there is nothing to remove
            try:
                self.close()
            except BerthError as e:  # the first error counts, and there may be nothing to remove
                if e.exit_code != 3:
                    _log.warning("the environment %s was not opened, and could not be removed: %s", self.name, e)
            raise
        self.name = opened.environment or self.name
        for note in opened.notes:
            self._tell(note)

    # Commands

    def run(
        self, command: Command, *, timeout: Optional[float] = None, merge: bool = False, stdin: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None, workdir: Optional[str] = None, show_bytes: Optional[int] = None, check: bool = False,
    ) -> Result:
        """Run a command and wait for its end.

        It is ended, with all that it has started, after `timeout` seconds (0 is
        never), and then its output is there all the same. `workdir` is the session's
        directory from then on. `show_bytes` is how much of each stream is shown.
        With `check` another exit code than 0 is a `CommandFailed`.
        """
        request: Dict[str, Any] = {"command": command if isinstance(command, str) else list(command)}
        if timeout is None:
            timeout = self.timeout
        if timeout is not None:
            _time(timeout)
            request["timeout"] = timeout
        both = {**self.env, **(env or {})}
        for key, value in (("merge", merge or None), ("stdin", stdin), ("env", both or None), ("workdir", workdir), ("show_bytes", show_bytes)):
            if value is not None:
                request[key] = value
        with self._one_at_a_time:
            result = _result(self._ask(request))
            self.cwd = result.cwd
        return result.check() if check else result

    def interrupt(self) -> None:
        """End the command that another thread waits for, if there is one. Its result says `interrupted`."""
        with self._state:
            proc = self._asked
            if not self._busy:
                return
            if proc is None:
                self._interrupted = True
            elif proc is not self._signalled and proc.poll() is None:  # a second signal would end it before it answers
                self._signalled = proc
                proc.send_signal(signal.SIGINT)

    def session(self, name: Optional[str] = None) -> Environment:
        """Another session in this environment, which runs at the same time: its own directory and variables.

        Without a name it has one that nothing else has. Closing it closes the
        session's process alone.
        """
        return Environment(self.name, session=name or fresh_name("session"), timeout=self.timeout, env=self.env, program=self._program,
                           on_note=self._on_note)

    # Files

    def upload(self, source: Path, destination: str) -> None:
        """Copy a file or directory of this machine into the environment, as `berth cp` does it.

        Where the destination is a directory the source goes into it; `SOURCE/.` are
        the contents of a directory. A relative destination is in the session's directory.
        """
        self._berth("cp", *self._place(True), _here(source), ":" + destination)

    def download(self, source: str, destination: Path) -> None:
        """Copy a file or directory of the environment to this machine.

        Symbolic links are copied as links. What has run inside chose where they lead:
        open none of them here where that is not trusted.
        """
        self._berth("cp", *self._place(True), ":" + source, _here(destination))

    def write_file(self, path: str, content: Union[str, bytes]) -> None:
        """Write a file in the environment (text as UTF-8). Its directory must be there."""
        with tempfile.TemporaryDirectory(prefix="berth-") as d:
            # In a directory of that name this would become a file of the directory.
            name = os.path.join(d, os.path.basename(path) or "file")
            with open(name, "wb") as f:
                f.write(content.encode() if isinstance(content, str) else content)
            os.chmod(name, 0o644)
            self.upload(name, path)

    def read_file(self, path: str) -> bytes:
        """The content of a file in the environment. A symbolic link is followed there, and never here."""
        source = path
        with tempfile.TemporaryDirectory(prefix="berth-") as d:
            name = os.path.join(d, "file")
            self.download(source, name)
            if os.path.islink(name):
                os.unlink(name)
                source = self._real(path)
                self.download(source, name)
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:  # a socket, a pipe or a device is not copied
                raise BerthError(f"{path} is no file", "", 3) from None
            except OSError as e:
                if os.path.islink(name):
                    raise BerthError(f"{path} is a symbolic link", "read what it leads to by that path", 3) from None
                raise BerthError(f"{path} could not be read: {e.strerror}") from e
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise BerthError(f"{path} is no file", "", 3)
                with open(fd, "rb", closefd=False) as f:
                    return f.read()
            finally:
                os.close(fd)

    def _real(self, path: str) -> str:
        """Where a path inside leads there; the path itself where that is not known."""
        r = self.run(["readlink", "-f", "--", path])
        real = r.stdout[:-1] if r.stdout.endswith("\n") else ""
        return real if r.ok and real.startswith("/") and not r.truncated else path

    # Background processes and services

    def start(self, command: Command, *, env: Optional[Mapping[str, str]] = None, workdir: Optional[str] = None, timeout: Optional[float] = None) -> Process:
        """Start a process in the background. It goes on when this program has ended, while the environment is there."""
        words = [command] if isinstance(command, str) else list(command)
        if not isinstance(command, str) and len(words) == 1 and not re.fullmatch(r"[A-Za-z0-9_./+-]+", words[0]):
            raise ValueError(f"{words[0]!r} would be a text for the shell: give it an argument, or write it as one")
        # Their values pass in this child's variables, as command lines can be read by others.
        given = {**self.env, **(env or {})}
        for key in given:
            if key in os.environ and os.environ[key] != given[key] or _OUTSIDE.match(key):
                raise ValueError(f"{key} is a variable that berth, or a program it starts, reads itself: export it in the session, by run()")
        args = ["bg", "start", "--json", *self._place(True), *(f"--var={key}" for key in given)]
        if workdir is not None:
            args.append("--workdir=" + workdir)
        if timeout is not None:
            args.append("--timeout=" + _time(timeout))
        answer = json.loads(self._berth(*args, "--", *words, env=given))
        return Process(self, answer["process"]["id"])

    def processes(self) -> List[Process]:
        """The background processes, those that have ended too."""
        return [Process(self, p["id"]) for p in self._processes()]

    def forward(self, port: int, *more: int) -> Forward:
        """Reach what listens at ports inside, each by a port of this machine's loopback that others cannot use."""
        return Forward(self, port, *more)

    # The end

    def stop(self) -> None:
        """End all that runs in it. Its files stay, and the next command starts it again."""
        self._leave()
        self._berth("env", "stop", self.name)

    def remove(self) -> None:
        """Remove the environment and its files, and end what runs there. No command can follow."""
        self._closed = True
        self._leave()
        self._discard()

    def close(self) -> None:
        """End the process of berth here, and the command that another thread waits for; no other can follow.

        The environment and its background processes stay, but for `remove`. Where it
        could not be removed, another call tries it again.
        """
        self._closed = True
        self._leave()
        if self._remove:
            self._discard()

    def __enter__(self) -> Environment:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    # What follows speaks with processes of berth.

    def _discard(self) -> None:
        with self._one_at_a_time:
            if not self._removed:
                self._berth("env", "rm", "--force", self.name)
                self._removed = True

    def _tell(self, note: str) -> None:
        """Hand a note on. What fails in the caller's function does not end what reads berth's words."""
        try:
            self._on_note(note)
        except Exception:
            _log.exception("on_note failed; berth said: %s", note)

    def _place(self, session: bool = False) -> List[str]:
        words = [f"--env={self.name}"] if self.name else []
        if session and self._session:
            words.append(f"--session={self._session}")
        return words

    def _processes(self) -> List[Dict[str, Any]]:
        found: List[Dict[str, Any]] = json.loads(self._berth("bg", "list", "--json", *self._place()))["processes"]
        return found

    def _berth(self, *args: str, stdin: Optional[bytes] = None, env: Optional[Mapping[str, str]] = None, codes: Sequence[int] = (0,)) -> bytes:
        """Run another verb and return its stdout."""
        try:
            done = subprocess.run([self._program, *args], input=stdin if stdin is not None else b"", stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env={**os.environ, **(env or {})}, check=False)
        except OSError as e:
            raise self._missing(e) from e
        if done.returncode not in codes:
            raise _failure(args[0], done.returncode, done.stdout, done.stderr.decode(errors="replace").splitlines())
        return done.stdout

    def _missing(self, e: OSError) -> BerthError:
        return BerthError(f"{self._program} could not be started: {e.strerror}", "install berth on PATH, or name it by program=")

    def _start(self) -> subprocess.Popen[bytes]:
        """The process that runs commands; a new one where the last has ended."""
        if self._closed:
            raise BerthError("the environment was closed here")
        if self._proc is not None and self._proc is not self._signalled and self._proc.poll() is None:
            return self._proc
        self._end()
        try:
            # In a session of its own ctrl-C on the terminal is this program's, which says what it ends.
            proc = subprocess.Popen([self._program, "exec", "--batch", *self._place(True), *self._flags],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        except OSError as e:
            raise self._missing(e) from e
        self._proc = proc
        self._said = deque(maxlen=20)
        self._reader = threading.Thread(target=self._listen, args=(proc, self._said), daemon=True)
        self._reader.start()
        return proc

    def _listen(self, proc: subprocess.Popen[bytes], said: deque[str]) -> None:
        """Hand on what berth says to people, and keep its last lines."""
        assert proc.stderr is not None
        with proc.stderr:
            for line in proc.stderr:
                text = line.decode(errors="replace").rstrip()
                said.append(text)
                self._tell(text[len("berth: "):] if text.startswith("berth: ") else text)

    def _ask(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Send a request and wait for its answer, which comes before all others."""
        with self._state:
            self._busy, self._asked, self._interrupted = True, None, False
        try:
            proc = self._start()
            with self._state:
                if self._interrupted:
                    return self._not_run()
                self._asked = proc
            return self._answer(proc, request)
        finally:
            with self._state:
                self._busy, self._asked = False, None

    def _not_run(self) -> Dict[str, Any]:
        """The answer to a request that was interrupted before berth had it."""
        return {"exit_code": 130, "interrupted": True, "cwd": self.cwd, "environment": self.name,
                "exit": {"started": False, "error": "it was interrupted before it began"}}

    def _answer(self, proc: subprocess.Popen[bytes], request: Dict[str, Any]) -> Dict[str, Any]:
        assert proc.stdin is not None and proc.stdout is not None
        self._number += 1
        request["id"] = self._number
        line = json.dumps(request).encode() + b"\n"
        try:
            try:
                proc.stdin.write(line)
                proc.stdin.flush()
            except BrokenPipeError:
                pass  # what it has said before its end is the better error
            answered = proc.stdout.readline()
        except BaseException:  # ctrl-C: nothing waits for the answer, which would be taken for the next one's
            self._end(signal.SIGINT)
            raise
        try:
            answer: Dict[str, Any] = json.loads(answered)
        except ValueError:
            code = self._end()
            # Where a signal comes before the request, berth ends without an answer. What it has begun it answers.
            if not answered and proc is self._signalled and code in (130, -signal.SIGINT):
                return self._not_run()
            raise _failure("exec", code, b"", list(self._said), "whether the command has run is not known; the next one starts berth again") from None
        if "error" in answer:
            if "id" not in answer:  # it is no answer to a request: berth ends
                self._end()
            raise _error(answer["error"])
        if answer.get("id") != self._number:
            self._end(signal.SIGKILL)
            raise BerthError("berth answered another request than the one that was sent")
        return answer

    def _leave(self) -> None:
        """End the process here. A command for which another thread waits is interrupted."""
        late = time.monotonic() + 3 * _GRACE
        while not self._one_at_a_time.acquire(blocking=False):
            self.interrupt()  # again and again: another thread's command may be the next
            if self._one_at_a_time.acquire(timeout=0.1):
                break
            proc = self._proc
            if time.monotonic() > late + _GRACE:
                raise BerthError("the command that another thread waits for could not be ended")
            if time.monotonic() > late and proc is not None:
                proc.kill()
        try:
            self._end()
        finally:
            self._one_at_a_time.release()

    def _end(self, how: Optional[int] = None) -> int:
        """End the process here, by the end of its input or a signal, and return its exit code."""
        proc, self._proc = self._proc, None
        if proc is None:
            return 0
        assert proc.stdin is not None and proc.stdout is not None
        if how is not None and proc.poll() is None:
            proc.send_signal(how)
        try:
            proc.stdin.close()
        except OSError:
            pass
        # Nothing of what it still answers is read. An answer that does not fit in the pipe fails.
        proc.stdout.close()
        try:
            code = proc.wait(_GRACE)
        except subprocess.TimeoutExpired:
            proc.kill()
            code = proc.wait()
        if self._reader is not None:
            self._reader.join(1)
        return code


def _here(path: Path) -> str:
    """A path of this machine that berth cp cannot take for one inside: an absolute one, with what is said by its end."""
    text = os.fspath(path)
    full = os.path.abspath(text)
    if text.endswith((os.sep + ".", os.sep)) or text == ".":
        full = os.path.join(full, "." if text.endswith(".") else "")
    return full


def _error(fields: Mapping[str, Any]) -> BerthError:
    return BerthError(fields["message"], fields.get("hint", ""), fields.get("exit_code", FAILED))


def _failure(verb: str, code: int, out: bytes, said: Sequence[str], hint: str = "") -> BerthError:
    """The error of a process of berth that has failed: what it says, else how it ended."""
    try:
        return _error(json.loads(out)["error"])
    except (ValueError, LookupError, TypeError):
        pass
    messages = [s[len("berth: error: "):] for s in said if s.startswith("berth: error: ")]
    hints = [s[len("berth: hint: "):] for s in said if s.startswith("berth: hint: ")]
    how = f"signal {-code} ended it" if code < 0 else f"it ended with {code}"
    return BerthError("; ".join(messages) or f"berth {verb}: {how}", "; ".join(hints) or hint, code if code > 0 else FAILED)


class Process:
    """A background process of an environment."""

    def __init__(self, env: Environment, id: str) -> None:
        self._env, self.id = env, id

    def _ask(self, verb: str, *args: str, stdin: Optional[bytes] = None, codes: Sequence[int] = (0,)) -> bytes:
        return self._env._berth("bg", verb, *self._env._place(), *args, self.id, stdin=stdin, codes=codes)

    @property
    def running(self) -> bool:
        return any(p["id"] == self.id and p["running"] for p in self._env._processes())

    def log(self, tail: int = 0) -> bytes:
        """What it has written, stdout and stderr together; of much the last `tail` bytes."""
        return self._ask("log", "--raw", *([f"--tail={tail}"] if tail else []))

    def wait(self, timeout: Optional[float] = None) -> Optional[int]:
        """Wait for its end and return its exit code, or None when it still runs after `timeout` seconds."""
        limit = [] if timeout is None else [f"--timeout={_time(max(timeout, 0.001))}"]
        answer = json.loads(self._ask("wait", "--json", *limit, codes=range(256)))
        if "error" in answer:
            raise _error(answer["error"])
        if answer.get("timed_out"):
            return None
        code: int = answer["process"]["exit"]["code"]
        return code

    def write(self, text: Union[str, bytes], close: bool = False) -> None:
        """Write to its standard input; with `close` it then reads the end of it."""
        self._ask("write", *(["--close"] if close else []), stdin=text.encode() if isinstance(text, str) else text)

    def kill(self, grace: float = 2.0) -> None:
        """End it and all that it has started: SIGTERM, and SIGKILL after `grace` seconds."""
        self._ask("kill", "--grace=" + _time(grace))


class Forward:
    """Ports of this machine at 127.0.0.1, each of which leads to one inside, until `close`.

    `ports` are in the order of those inside; `port` is the first of them.
    """

    def __init__(self, env: Environment, *inside: int) -> None:
        try:
            self._proc = subprocess.Popen([env._program, "forward", *env._place(), *(f"0:{port}" for port in inside)], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        except OSError as e:
            raise env._missing(e) from e
        assert self._proc.stderr is not None
        said: List[str] = []
        self.ports: List[int] = []
        try:
            for line in self._proc.stderr:
                said.append(line.decode(errors="replace").rstrip())
                found = re.match(r"berth: 127\.0\.0\.1:(\d+) leads to port", said[-1])
                if found:
                    self.ports.append(int(found.group(1)))
                if len(self.ports) == len(inside):
                    break
            else:
                raise _failure("forward", self._proc.wait(), b"", said)
            self._reader = threading.Thread(target=self._listen, args=(env._tell,), daemon=True)
            self._reader.start()
        except BaseException:  # ctrl-C, too: no object is left that could close it
            self._proc.kill()
            self._proc.wait()
            self._proc.stderr.close()
            raise
        self.port = self.ports[0]

    def _listen(self, tell: Callable[[str], None]) -> None:
        assert self._proc.stderr is not None
        with self._proc.stderr:
            for line in self._proc.stderr:
                tell(line.decode(errors="replace").rstrip())

    def close(self) -> None:
        """Close the port."""
        self._proc.terminate()
        self._proc.wait()
        self._reader.join(1)

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()
