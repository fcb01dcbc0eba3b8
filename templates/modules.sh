# The profile's modules. "module" is a shell function; a batch shell may lack it.
{{named}}if ! type module >/dev/null 2>&1; then
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
