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
