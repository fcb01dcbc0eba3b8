#!/bin/bash
# berth job 456789ab: fix the parser
# attempt 1, submitted by alice on login
#SBATCH --job-name=x
# --mem is not sent: the profile forbids it

# Every word below stands for itself.
# shellcheck disable=SC1083,SC2016

# A batch job may start with nothing in its environment.
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
export HOME=/home/alice
export USER=alice
export LOGNAME=alice
export SHELL=/bin/zsh
export LANG=C.UTF-8
export SLURM_EXPORT_ENV=ALL

# What a site sets here would add binds and flags to the container or change the shells in it.
unset BASH_ENV ENV CDPATH PROMPT_COMMAND SLURM_EXIT_ERROR "${!APPTAINER@}" "${!SINGULARITY@}"

# What stands in braces is known on the node; the runner fills it in and changes nothing else.
exec /home/alice/.local/state/berth/bin/0f0f/berth-node runner \
  --attempt /home/alice/.local/state/berth/jobs/01/a/attempts/0001 \
  -- apptainer exec --containall --no-home --cleanenv --no-eval --pwd /tmp --workdir {scratch} \
  --overlay {overlay} \
  --mount type=bind,source=/home/alice/.local/state/berth/bin/0f0f/berth-node,destination=/.berth/node,readonly \
  {image} /.berth/node guest --json
