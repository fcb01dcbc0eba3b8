#!/bin/bash
# berth job 00000000: pytest
# backend singularity (containment: fs), attempt 00000000
# image /images/py.sif
# no profile: only flags that every supported version of Slurm and Apptainer knows
#SBATCH --job-name=berth-pytest-000000000000
#SBATCH --comment=berth:00000000-0000-7000-8000-000000000000
#SBATCH --chdir=/shared/alice/berth/jobs/00/00000000-0000-7000-8000-000000000000/attempts/0001
#SBATCH --output=/shared/alice/berth/jobs/00/00000000-0000-7000-8000-000000000000/attempts/0001/scheduler.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --dependency=singleton
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --export=NIL

# Every word below stands for itself.
# shellcheck disable=SC1083,SC2016

# A batch job may start with nothing in its environment.
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
export HOME=/home/alice
export USER=alice
export LOGNAME=alice
export SHELL=/bin/bash
export LANG=C.UTF-8
export SLURM_EXPORT_ENV=ALL

# What a site sets here would add binds and flags to the container or change the shells in it.
unset BASH_ENV ENV CDPATH PROMPT_COMMAND SLURM_EXIT_ERROR "${!APPTAINER@}" "${!SINGULARITY@}"

# What stands in braces is known on the node; the runner fills it in and changes nothing else.
exec /shared/alice/berth/bin/berth-node runner \
  --attempt /shared/alice/berth/jobs/00/00000000-0000-7000-8000-000000000000/attempts/0001 \
  --follow /shared/alice/berth/bin/berth-node \
  -- apptainer exec --containall --no-home --cleanenv --no-eval --pwd /tmp --workdir {scratch} \
  --overlay {overlay} --mount 'type=bind,source={node},destination=/.berth/node,readonly' \
  --mount 'type=bind,source={empty},destination=/.singularity.d/env,readonly' \
  --mount 'type=bind,source={keys},destination=/proc/keys,readonly' \
  --mount 'type=bind,source={keys},destination=/proc/key-users,readonly' \
  --mount 'type=bind,source={cgroups},destination=/sys/fs/cgroup,readonly' \
  {image} /.berth/node guest
