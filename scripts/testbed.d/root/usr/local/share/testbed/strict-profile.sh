# Helpful to people, harmful to containers that are meant to be closed.
export SINGULARITY_BIND=/opt/site
