"""A terminal environment for Hermes Agent: its commands run in an environment of berth."""
from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Optional, Sequence

import berth


class BerthEnvironment:
    """One session of an environment: directory, variables and functions stay.

    Without a name the environment is fresh, and `cleanup` removes it; a named one
    stays. `interrupted` is asked while a command runs, and ends it when it is true:
    Hermes' own is `tools.interrupt.is_interrupted`.
    """

    def __init__(
        self, image: str = "", cwd: str = "", timeout: int = 180, *, name: str = "", backend: str = "", network: str = "",
        env: Optional[Dict[str, str]] = None, forward_env: Sequence[str] = (), flags: Sequence[str] = (), program: str = "berth",
        interrupted: Optional[Callable[[], bool]] = None,
    ) -> None:
        self.timeout, self._interrupted = timeout, interrupted
        self._env = berth.Environment(
            name or berth.fresh_name("hermes"), image=image or None, backend=backend or None, network=network or None, env=env,
            forward=forward_env, flags=flags, program=program, remove=not name,
        )
        if cwd:
            r = self._env.run(":", workdir=cwd)
            if not r.ok:
                self.cleanup()
                raise berth.BerthError(r.error, "", r.exit_code)
        self.cwd = self._env.cwd

    def execute(self, command: str, cwd: str = "", *, timeout: Optional[int] = None, stdin_data: Optional[str] = None) -> Dict[str, Any]:
        """Run a command: its output (stdout and stderr as one) and its exit code, 124 after a timeout and 130 when interrupted."""
        limit = self.timeout if timeout is None else timeout
        done = threading.Event()
        watch = None
        if self._interrupted is not None:
            watch = threading.Thread(target=self._watch, args=(self._interrupted, done), daemon=True)
            watch.start()
        try:
            # Its callers look through whole files by it: what is too long for a model is cut by Hermes.
            r = self._env.run(command, merge=True, timeout=limit, stdin=stdin_data, workdir=cwd or None)
            output = r.full("output").decode(errors="replace") if r.truncated else r.output
        except berth.BerthError as e:
            return {"output": str(e), "returncode": -1}
        finally:
            done.set()
            if watch is not None:
                watch.join()
        self.cwd = r.cwd or self.cwd
        said = r.error
        if r.timed_out:
            said = f"[Command timed out after {limit}s]"
        elif r.interrupted:
            said = "[Command interrupted]"
        if said:
            output = output.rstrip("\n") + "\n" + said if output else said
        return {"output": output, "returncode": r.exit_code}

    def _watch(self, interrupted: Callable[[], bool], done: threading.Event) -> None:
        while not done.wait(0.2):
            if interrupted():
                self._env.interrupt()  # until its end: one that comes before the command is there ends nothing

    def cleanup(self) -> None:
        self._env.close()
