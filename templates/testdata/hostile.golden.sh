#!/bin/bash
# $(touch /tmp/pwned) "quotes' \ and %j and #SBATCH --array=1-9
# 日本語

# Every word below stands for itself.
# shellcheck disable=SC1083,SC2016

# A batch job may start with nothing in its environment.
export PATH="${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
export HOME='/home/o'"'"'brien $HOME `x`'
export USER='o'"'"'brien'
export LOGNAME='o'"'"'brien'
export SHELL=/bin/bash
export LANG=C.UTF-8
export A='it'"'"'s $HOME'

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
module load 'weird "module" $(id)' || { echo "berth: on $HOSTNAME this module does not load:" 'weird "module" $(id)' >&2; exit 78; }

# What a site sets here would add binds and flags to the container or change the shells in it.
unset BASH_ENV ENV CDPATH PROMPT_COMMAND "${!APPTAINER@}" "${!SINGULARITY@}"

# What stands in braces is known on the node; the runner fills it in and changes nothing else.
exec '/srv/a b/berth-node' runner --attempt '/srv/it'"'"'s "here" $(id) \ %j #x' \
  -- apptainer exec --mount 'type=bind,"source=/a,b:c ""q""",destination=/x' \
  {image} '{scratch' '{overlay},x' '' '~' '*' '!!' FOO=bar -n 'é 日本' '{a,b}' 'a\nb' '&&' --
