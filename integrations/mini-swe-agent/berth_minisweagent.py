"""An environment for mini-swe-agent whose commands run in an environment of berth.

    environment:
      environment_class: berth_minisweagent.BerthEnvironment
      image: docker://python:3.12
"""
from __future__ import annotations

import logging
import os
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Optional

import berth

DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@dataclass
class BerthEnvironmentConfig:
    image: str = ""
    cwd: str = "/"
    """Each command begins there, as in a fresh shell; with "" it begins where the last one ended."""
    env: Dict[str, str] = field(default_factory=dict)
    forward_env: List[str] = field(default_factory=list)
    timeout: int = 30
    executable: str = "berth"
    name: str = ""
    """The environment to use, which stays. Without one it is fresh, and `cleanup` removes it."""
    backend: str = ""
    network: str = ""
    flags: List[str] = field(default_factory=list)
    """Others of `berth exec`."""

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        return asdict(self)


class BerthEnvironment:
    def __init__(self, *, config_class: Any = BerthEnvironmentConfig, logger: Optional[logging.Logger] = None, **kwargs: Any) -> None:
        self.config = config_class(**kwargs)
        self.logger = logger or logging.getLogger("minisweagent.environment")
        c = self.config
        self._machine: Dict[str, str] = {}
        self._env = berth.Environment(
            c.name or berth.fresh_name("mini"), image=c.image or None, backend=c.backend or None, network=c.network or None, flags=c.flags,
            program=c.executable, remove=not c.name, on_note=self.logger.info,
        )

    def execute(self, action: Dict[str, Any], cwd: str = "", *, timeout: Optional[int] = None) -> Dict[str, Any]:
        c = self.config
        limit = c.timeout if timeout is None else timeout
        env = {**{name: os.environ[name] for name in c.forward_env if name in os.environ}, **c.env}
        try:
            r = self._env.run(action["command"], merge=True, timeout=limit, env=env, workdir=cwd or c.cwd or None)
        except berth.BerthError as e:
            return {"output": "", "returncode": -1, "exception_info": f"An error occurred while executing the command: {e}",
                    "extra": {"exception_type": type(e).__name__, "exception": str(e)}}
        if r.timed_out:
            return {"output": r.output, "returncode": -1, "exception_info": f"The command was ended after {limit} seconds.",
                    "extra": {"exception_type": "timeout", "timeout": limit}}
        result = {"output": r.output, "returncode": r.exit_code, "exception_info": r.error}
        self._submit(r)
        return result

    def _submit(self, r: berth.Result) -> None:
        """Raise Submitted when the marker is the last line, or the first one of a command that succeeded."""
        if DONE not in r.output:
            return
        lines = (r.full("output").decode(errors="replace") if r.truncated else r.output).strip().splitlines(keepends=True)
        if lines[-1].strip() == DONE:
            submission = "".join(lines[:-1])
        elif lines[0].strip() == DONE and r.ok:
            submission = "".join(lines[1:])
        else:
            return
        from minisweagent.exceptions import Submitted  # type: ignore[import-not-found]

        raise Submitted({"role": "exit", "content": submission, "extra": {"exit_status": "Submitted", "submission": submission}})

    def get_template_vars(self, **kwargs: Any) -> Dict[str, Any]:
        """The configuration, and the words of the machine inside: system, release, version, machine."""
        if not self._machine:
            r = self._env.run("uname -s; uname -r; uname -v; uname -m")
            self._machine = dict(zip(("system", "release", "version", "machine"), r.stdout.splitlines()))
        return {**self.config.model_dump(), **self._machine, **kwargs}

    def serialize(self) -> Dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": self.config.model_dump(mode="json"), "environment_type": kind}}}

    def cleanup(self) -> None:
        self._env.close()
