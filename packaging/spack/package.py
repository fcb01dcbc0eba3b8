# A recipe of Spack for a release of berth. Only its form was checked: Spack has not run it.
from spack.package import *

# The address of the directory that has the release's files, file:///... for local ones.
RELEASE = "file:///srv/berth"


class Berth(Package):
    """Runs tasks and coding agents in containers, as Slurm jobs."""

    homepage = RELEASE
    url = f"{RELEASE}/berth-@VERSION@-linux-@ARCH@.tar.gz"

    license("Apache-2.0")

    version("@VERSION@", sha256="@SHA256@")

    def install(self, spec, prefix):
        install_tree("bin", prefix.bin)
        install_tree("share", prefix.share)
