-- The module file of berth for Lmod (tried with Lmod 8). Put it at MODULEPATH/berth/VERSION.lua. BERTH_PREFIX, where it
-- is set, is the unpacked release itself, the directory with bin/.
local version = "@VERSION@"
local prefix = os.getenv("BERTH_PREFIX") or pathJoin("/opt/berth", "berth-" .. version .. "-linux-@ARCH@")

help([[berth runs tasks and coding agents in containers, as Slurm jobs. Begin with: berth --help]])
whatis("Name: berth")
whatis("Version: " .. version)
whatis("Description: runs tasks and coding agents in containers on a cluster")

conflict("berth")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
append_path("MANPATH", "") -- an empty part stands for the pages of the system
