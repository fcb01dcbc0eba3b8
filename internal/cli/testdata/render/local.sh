#!/bin/bash
# berth job 00000000: printf
# backend local (containment: none), attempt 00000000
# no profile: only flags that every supported version of Slurm and Apptainer knows
# run on this machine by berth's own queue

# Every word below stands for itself.
# shellcheck disable=SC1083,SC2016

# A batch job may start with nothing in its environment.
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
export HOME=/home/alice
export USER=alice
export LOGNAME=alice
export SHELL=/bin/bash
export LANG=C.UTF-8

# What a site sets here would add binds and flags to the container or change the shells in it.
unset BASH_ENV ENV CDPATH PROMPT_COMMAND "${!APPTAINER@}" "${!SINGULARITY@}"

exec /home/alice/.local/state/berth/bin/berth-node runner \
  --attempt /home/alice/.local/state/berth/jobs/00/00000000-0000-7000-8000-000000000000/attempts/0001 \
  --follow /home/alice/.local/state/berth/bin/berth-node \
  -- '{node}' guest
