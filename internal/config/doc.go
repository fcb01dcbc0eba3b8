// Package config reads what people set once: the user's config.toml, a
// project's berth.toml, the variables TERMINAL_* and BERTH_*, and the targets
// and profiles that these name. One table ([Keys]) says of every key what it
// is called, what it may hold, which variable and flag stand for it, where it
// counts and what a project may do with it; reading, checking, showing,
// editing, importing and the user's page all follow from that table.
//
// A project's file comes with a cloned repository and is anybody's. It may
// choose what stays inside the containment that the user has; whatever opens
// this machine further is refused by name, unless the user's own file allows
// it to that directory (guard.go).
package config
