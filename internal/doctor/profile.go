package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	boxes "berth/apptainer/examine"
	"berth/jobs"
	"berth/jobs/finding"
	"berth/overlay"
)

// Profile writes a profile of the site from what was found: here, where jobs
// are submitted, and on a node, or nil. Each key says why it stands there;
// what the site is known to need and berth cannot decide stands as a remark.
func Profile(name string, here, node *Place) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	from := here
	where, looked := "this machine", ", without a look at a node: --on-node gives one"
	if node != nil {
		from, where = node, "node "+node.Host
		looked = ", with a look at " + remark(where)
	}
	line("# Profile %s, written by berth doctor on %s (%s)%s.", remark(name), remark(here.Host), here.Time.Format("2006-01-02"), looked)
	for _, p := range []*Place{here, node} {
		if p == nil || p.OK() {
			continue
		}
		for _, f := range p.Findings {
			if f.Status == Fail && f.Configured {
				line("# NOT WORKING on %s when this was written: %s: %s.", remark(p.Host), remark(f.Subject), remark(f.Why))
			}
		}
	}
	line("# Change it as you like; berth help profiles lists all keys.")
	line("")
	scheduler := here.data(IDScheduler, "name")
	slurm := scheduler == jobs.SchedulerSlurm
	if scheduler != "" {
		line("# What decides when jobs start.")
		line("scheduler = %s", quote(scheduler))
		line("")
	}
	if found := from.data("modules", "containers"); from.data(boxes.IDProgram, "version") == "" && found != "" {
		all := strings.Split(found, ",")
		line("# The container program is not on PATH of %s; this module has it. There are: %s.", remark(where), remark(strings.Join(all, ", ")))
		line("modules = [%s]", quote(all[len(all)-1]))
		if init := or(from.data("modules", "init"), here.data("modules", "init")); init != "" {
			line("# It defines \"module\", and is none of the files that are looked at first.")
			line("module_init = %s", quote(init))
		}
		line("")
	}
	profileOverlay(line, from, where, slurm && node == nil)
	forbid := node.all(IDNode, "forbid")
	if len(forbid) > 0 {
		words := make([]string, len(forbid))
		for i, o := range forbid {
			words[i] = quote(o)
		}
		line("# Tried: Slurm refused a job with --%s and took the same one without.", remark(strings.Join(forbid, ", --")))
		line("forbid = [%s]", strings.Join(words, ", "))
		line("")
	}
	profileScratch(line, from, where)
	profileGPUs(line, here, from)
	profileProxy(line, from, where)
	profileWay(line, from, where)
	if slurm {
		profileSlurm(line, here, forbid, node.data(IDNode, "account"))
	}
	profileVersions(line, here, from, slurm)
	if here.data("state", "noexec") == "yes" || from.data("state", "noexec") == "yes" {
		line("# Programs cannot be run from the state directory. No key changes that: set BERTH_HOME to a")
		line("# private directory without noexec that all nodes see (examples/profiles/noexec-home.toml).")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// profileOverlay names the driver of jobs' layers that was found right, the one
// that starts fastest first. Of the nodes nothing is known before one was
// looked at; then jobs have theirs by default, which works without the image
// unpacked there.
func profileOverlay(line func(string, ...any), from *Place, where string, unseen bool) {
	works := func(driver string) bool { return from.data("overlay."+driver, "works") == "yes" }
	switch {
	case works(jobs.DriverKernel) && unseen:
		line("# The layer that starts fastest is right on this machine. Have a node looked at (--on-node), or say so:")
		line("# overlay = %s", quote(jobs.DriverKernel))
	case works(jobs.DriverKernel):
		line("# Tried on %s: an overlay of the kernel over the unpacked image is right there, and starts fastest.", remark(where))
		line("# Unpacking takes %s of memory, once on a node; tasks that ask for less get another one.", overlay.UnpackMemory)
		line("overlay = %s", quote(jobs.DriverKernel))
	case from.data("overlay.fuse", "works") == "no" && works(jobs.DriverExt3):
		line("# Tried on %s: a directory cannot be a writable layer there, an ext3 image can.", remark(where))
		line("overlay = %s", quote(jobs.DriverExt3))
	default:
		return
	}
	line("")
}

func profileScratch(line func(string, ...any), from *Place, where string) {
	f := from.Find("scratch")
	switch {
	case f.Status == OK && f.Data["tmpdir"] != "" && f.Data["tmpdir"] == f.Data["dir"]:
		line("# Scratch is the site's $TMPDIR, %s on %s; that is what is used without a key:", remark(f.Data["dir"]), remark(where))
		line("# scratch = \"$TMPDIR\"")
		line("")
	case f.Status == Warn || f.Status == Fail:
		line("# Scratch on %s is not good: %s.", remark(where), remark(f.Why))
		line("# Name a directory on the node's own disk; variables are expanded there:")
		line("# scratch = \"/local/$USER\"")
		line("")
	}
}

func profileGPUs(line func(string, ...any), here, from *Place) {
	if kind := from.data("gpus", "kind"); kind != "" {
		line("# Seen on that machine.")
		line("gpu = %s", quote(kind))
		line("")
	}
	switch types := here.data("slurm.gpus", "types"); {
	case types != "" && !strings.Contains(types, ","):
		line("# All GPUs of the cluster are of this type; sites that demand one are content.")
		line("gpu_type = %s", quote(types))
		line("")
	case types != "":
		line("# Where the site demands a type, for tasks that name none. There are: %s.", remark(types))
		line("# gpu_type = %s", quote(strings.Split(types, ",")[0]))
		line("")
	}
}

func profileProxy(line func(string, ...any), from *Place, where string) {
	http, https, no := from.data("network", "http_proxy"), from.data("network", "https_proxy"), from.data("network", "no_proxy")
	if http == "" && https == "" {
		return
	}
	if from.data("network", "route") == "yes" {
		line("# Proxies are set in the environment of %s, which has a default route too. Without", remark(where))
		line("# this jobs do not get them.")
	} else {
		line("# %s has no default route: other hosts are reached by these proxies of its environment.", remark(where))
	}
	line("[proxy]")
	for _, v := range [][2]string{{"http", http}, {"https", https}, {"no", strings.ReplaceAll(no, " ", "")}} {
		if v[1] != "" {
			line("%s = %s", v[0], quote(v[1]))
		}
	}
	line("")
}

func profileWay(line func(string, ...any), from *Place, where string) {
	if via := from.data("way", "via"); via != "" && via != jobs.ViaNode {
		line("# Tried on %s: where a task's network is a list of names, its connections leave in this way alone.", remark(where))
		line("[network]")
		line("via = %s", quote(via))
		line("")
	}
}

func profileSlurm(line func(string, ...any), here *Place, forbid []string, demanded string) {
	parts, def := here.data("slurm.partitions", "partitions"), here.data("slurm.partitions", "default")
	accounts := here.data("slurm.account", "accounts")
	line("[slurm]")
	switch {
	case def != "":
		line("# Without this, jobs go to the default, %s. There are: %s.", remark(def), remark(parts))
		line("# partition = %s", quote(def))
	case parts != "":
		line("# No partition is the default, so one must be named. There are: %s.", remark(parts))
		line("partition = %s", quote(strings.Split(parts, ",")[0]))
	}
	switch {
	case demanded != "":
		line("# Tried: Slurm refused a job that names no account. This one is your only one.")
		line("account = %s", quote(demanded))
	case accounts != "":
		all := strings.Split(accounts, ",")
		switch enforced := here.data("slurm.account", "enforced") == "yes"; {
		case enforced && len(all) == 1:
			line("# Your only account; the site demands one.")
			line("account = %s", quote(all[0]))
		case enforced:
			line("# The site demands an account, and takes your default one where none is named. You have: %s.", remark(strings.Join(all, ", ")))
			line("# account = %s", quote(all[0]))
		default:
			line("# Accounts are not demanded. You have: %s.", remark(strings.Join(all, ", ")))
		}
	}
	if here.data("slurm.partitions", "whole_nodes") == "yes" {
		line("# Jobs get whole nodes here; said aloud, it holds in every partition.")
		line("extra = [\"--exclusive\"]")
	}
	if here.data("slurm.memory", "counted") == "no" && !slices.Contains(forbid, "mem") {
		line("# Slurm does not hand out memory here. Should it refuse --mem, put this above all tables:")
		line("# forbid = [\"mem\"]")
	}
	line("")
}

func profileVersions(line func(string, ...any), here, from *Place, slurm bool) {
	sv, av := "", short(from.data(boxes.IDProgram, "version"))
	if slurm {
		sv = short(or(here.data("slurm.programs", "version"), here.data("slurm.controller", "version")))
	}
	if sv == "" && av == "" {
		return
	}
	line("# What runs there: with these, newer options are used.")
	line("[versions]")
	if sv != "" {
		line("slurm = %s", quote(sv))
	}
	if av != "" {
		line("%s = %s", boxes.ProfileVersion, quote(av))
	}
	line("")
}

// short is a version as a profile takes it: numbers and dots.
func short(v string) string {
	n, ok := finding.Numbers(v)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d.%s.%d", n[0], minor(v), n[2])
}

// minor keeps the second number as it is written: 23.02 is not 23.2.
func minor(v string) string {
	parts := strings.SplitN(v, ".", 3)
	return strings.TrimRightFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' })
}

// quote writes a string of TOML; what it quotes are words of a site.
func quote(s string) string { return strconv.Quote(strings.ToValidUTF8(s, "")) }

// remark keeps what others wrote within its line of remarks.
func remark(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
