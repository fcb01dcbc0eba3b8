#!/bin/bash
# berth job 00000000: everything
# backend singularity (containment: fs), attempt 00000000
# image /images/py.sif
# profile site: slurm 24.11, apptainer 1.4.5
#SBATCH --job-name=berth-everything-000000000000
#SBATCH --comment=berth:00000000-0000-7000-8000-000000000000
#SBATCH --chdir=/shared/alice/berth/jobs/00/00000000-0000-7000-8000-000000000000/attempts/0001
#SBATCH --output=/shared/alice/berth/jobs/00/00000000-0000-7000-8000-000000000000/attempts/0001/scheduler.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --dependency=singleton
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --export=NIL
#SBATCH --nodes=2
#SBATCH --cpus-per-task=4
#SBATCH --mem=3072M
# --tmp is not sent: the profile forbids it
#SBATCH --time=1-12:00:00
#SBATCH --gres=gpu:a100:2
#SBATCH --partition=gpu
#SBATCH --account=physics
#SBATCH --qos=long
#SBATCH --constraint=ib

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

# The profile's modules. "module" is a shell function; a batch shell may lack it.
if ! type module >/dev/null 2>&1; then
  for init in /etc/profile.d/00-modulepath.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/lmod.sh \
    /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash \
    /usr/share/Modules/init/bash; do
    # shellcheck source=/dev/null
    if [ -r "$init" ]; then . "$init"; fi
    if type module >/dev/null 2>&1; then break; fi
  done
fi
# Else a file of another name may define it; one that ends its shell or hangs is not read.
if ! type module >/dev/null 2>&1; then
  for init in /etc/profile.d/*.sh /etc/profile; do
    if [ -r "$init" ] && timeout 3 bash -c '. "$1"; type module' bash "$init" </dev/null >/dev/null 2>&1; then
      # shellcheck source=/dev/null
      . "$init"
      # shellcheck disable=SC2034
      module_init=$init
      break
    fi
  done
fi
type module >/dev/null 2>&1 || {
  echo "berth: on $HOSTNAME no file defines \"module\": looked at /etc/profile, /etc/profile.d/*.sh and the init/bash of Lmod and Modules in /usr/share;" \
    "module_init in the profile names another" >&2
  exit 78
}
module load apptainer/1.4 || { echo "berth: on $HOSTNAME this module does not load:" apptainer/1.4 >&2; exit 78; }
module load cuda || { echo "berth: on $HOSTNAME this module does not load:" cuda >&2; exit 78; }

# What a site sets here would add binds and flags to the container or change the shells in it.
unset BASH_ENV ENV CDPATH PROMPT_COMMAND SLURM_EXIT_ERROR "${!APPTAINER@}" "${!SINGULARITY@}"

# What stands in braces is known on the node; the runner fills it in and changes nothing else.
exec /shared/alice/berth/bin/berth-node runner \
  --attempt /shared/alice/berth/jobs/00/00000000-0000-7000-8000-000000000000/attempts/0001 \
  --follow /shared/alice/berth/bin/berth-node \
  -- apptainer exec --containall --no-home --cleanenv --no-eval --cwd /tmp --workdir {scratch} \
  --overlay {overlay} --nv --mount 'type=bind,source={node},destination=/.berth/node,readonly' \
  --mount type=bind,source=/data/in,destination=/data/in,readonly \
  --mount type=bind,source=/data/out,destination=/data/out \
  --mount 'type=bind,source={empty},destination=/.singularity.d/env,readonly' \
  --mount 'type=bind,source={keys},destination=/proc/keys,readonly' \
  --mount 'type=bind,source={keys},destination=/proc/key-users,readonly' \
  --mount 'type=bind,source={cgroups},destination=/sys/fs/cgroup,readonly' \
  {image} /.berth/node guest
