// Package doctor looks at a machine, its scheduler and its backends, and says
// what works, what does not, why, and what to do.
//
// Every check is bounded by a time of its own, and all run side by side: a
// scheduler that hangs or a dead file server costs its own findings and no others.
// Nothing is changed but temporary files, which each check removes. Only the
// site's own programs are asked; no other host is contacted unless one is
// configured.
//
// The package is part of berth-node, so that the same checks run on compute
// nodes and on hosts reached by ssh: it must not bring in net/http or templates.
package doctor
