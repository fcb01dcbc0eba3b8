package doctor

import (
	"slices"
	"strconv"
	"strings"

	boxes "berth/apptainer/examine"
	"berth/jobs"
)

func itoa(n int) string { return strconv.Itoa(n) }

// conclude adds what follows from the findings for what berth would choose
// here, first, and marks those findings that this needs.
func conclude(p *Place, w Where) {
	scheduler := Finding{ID: IDScheduler, Scope: Scheduler, Subject: "scheduler"}
	name, by := w.Scheduler, "configured"
	if name == "" {
		name, by = w.Profile.Scheduler, "the profile's"
	}
	slurm := p.Find("slurm.programs")
	if name == "" {
		name, by = jobs.SchedulerLocal, "chosen: there is no Slurm here"
		if slurm.Status != Skip && slurm.Status != "" {
			name, by = jobs.SchedulerSlurm, "chosen: Slurm is here"
		}
	}
	need := []string{"state", "image", IDConfiguration}
	if w.OnNode() {
		name = jobs.SchedulerSlurm
	} else {
		scheduler.Status, scheduler.Why = OK, name+" ("+by+")"
		if name == jobs.SchedulerSlurm {
			needed := []string{"slurm.programs", "slurm.controller", "slurm.account", "slurm.partitions", "slurm.clock", "slurm.gpus"}
			need = append(need, needed...)
			bad := failed(p, needed)
			if slurm.Status == Skip {
				bad = append(bad, "Slurm's commands are not on PATH")
			}
			if len(bad) > 0 {
				scheduler.Status, scheduler.Configured = Fail, true
				scheduler.Why += " cannot be used: " + strings.Join(bad, "; ")
				scheduler.Do = or(firstDo(p, needed), "see the lines about Slurm; without it: --scheduler local")
			}
		}
		scheduler = with(scheduler, "name", name)
	}
	backend := concludeBackend(p, w, name, &need)
	for i := range p.Findings {
		f := &p.Findings[i]
		if slices.Contains(need, f.ID) && f.Status == Fail {
			f.Configured = true
		}
		if f.Status != Fail {
			f.Configured = false
		}
	}
	var first []Finding
	if scheduler.Status != "" {
		first = append(first, scheduler)
	}
	p.Findings = append(append(first, backend), p.Findings...)
}

// concludeBackend says which backend is used here and whether it can be.
func concludeBackend(p *Place, w Where, scheduler string, need *[]string) Finding {
	f := Finding{ID: IDBackend, Scope: Backend, Subject: "backend"}
	box, boxBad := boxes.Works(p.Findings)
	dockerBad := ""
	docker := p.Find("docker.daemon")
	switch docker.Status {
	case OK, Warn:
	case "":
		dockerBad = "docker was not looked at"
	default:
		dockerBad = docker.Why
	}
	name := w.Backend
	if name == "auto" {
		name = ""
	}
	by := "configured"
	submits := scheduler == jobs.SchedulerSlurm && !w.OnNode()
	if name == "" {
		switch {
		case scheduler == jobs.SchedulerSlurm:
			name, by = jobs.BackendOfClusters, "what jobs of Slurm use"
		case boxBad == "":
			name, by = jobs.BackendOfClusters, "chosen: it works here"
		case dockerBad == "":
			name, by = jobs.BackendDocker, "chosen: singularity does not work here ("+boxBad+")"
		default:
			f.Status, f.Configured = Fail, true
			f.Why = "nothing that contains a task works here: singularity: " + boxBad + "; docker: " + dockerBad
			f.Do = boxes.HintInstall
			*need = append(*need, boxes.IDProgram, "docker.daemon")
			return f
		}
	}
	f.Why = name + " (" + by + ")"
	f = with(f, "name", name)
	f.Status = OK
	bad, do := "", ""
	switch can := jobs.CapabilitiesOf(name); {
	case can.Layers:
		*need = append(*need, boxes.IDProgram, boxes.IDConf, "scratch")
		bad, do = boxBad, or(box.Do, "see the lines about singularity and its layers")
		if bad != "" && submits && box.Status == Skip {
			// Login nodes often have none; the nodes decide.
			f.Status, f.Why, f.Do = Warn, f.Why+": not on this machine, which need not have it to submit", "look at a node: berth doctor --on-node"
			return f
		}
		if why := w.Profile.Overlay; bad == "" && why != "" && p.Find(boxes.Layers+why).Status == Warn {
			bad, do = "the profile's overlay "+why+" does not work: "+p.Find(boxes.Layers+why).Why, `change overlay = "..." in the profile`
		} else if bad == "" && why == "" && scheduler == jobs.SchedulerSlurm && p.Find("overlay.fuse").Status == Warn {
			if submits {
				f.Status = Warn
				f.Why += ": a directory cannot be a layer on this machine, which is what jobs use"
				f.Do = "look at a node, and have a profile with what works there: berth doctor --on-node --write-profile NAME"
				return f
			}
			bad = boxes.NoDirectories + ", which is what jobs use: " + p.Find("overlay.fuse").Why
			do = `overlay = "` + firstWorking(p) + `" in a profile`
		}
		if bad != "" && submits {
			f.Status, f.Why, f.Do = Warn, f.Why+" does not work on this machine: "+bad, "the nodes may differ: berth doctor --on-node. Here: "+do
			for i := range *need { // what fails here is no failure of jobs
				if (*need)[i] == boxes.IDProgram || (*need)[i] == boxes.IDConf || (*need)[i] == "scratch" {
					(*need)[i] = ""
				}
			}
			return f
		}
	case can.Daemon:
		*need = append(*need, "docker.daemon")
		bad, do = dockerBad, or(docker.Do, "install docker or podman")
	case can.NoImage:
		*need = append(*need, "bwrap.program")
		if b := p.Find("bwrap.program"); b.Status != OK {
			bad, do = b.Why, or(b.Do, "install the package bubblewrap")
		}
	case can.NeedsHost:
		*need = append(*need, "ssh.program", "ssh.host")
		if s := p.Find("ssh.program"); s.Status == Skip || s.Status == Fail {
			bad, do = s.Why, s.Do
		} else if h := p.Find("ssh.host"); h.Status == Fail {
			bad, do = h.Why, h.Do
		}
	case can.Bare:
		f.Status, f.Why, f.Do = Warn, f.Why+": no containment; a command has all your rights", "name another backend, unless that is what you want"
	default:
		bad, do = "berth has no such backend", "there are singularity, docker, bwrap, ssh and local, and programs: berth help backend-protocol"
		for _, f := range p.Findings {
			if f.Subject == subjectOf(name) {
				if bad, do = "", ""; f.Status == Fail {
					bad, do = f.Why, f.Do
				}
			}
		}
	}
	if bad != "" {
		f.Status, f.Configured, f.Why, f.Do = Fail, true, f.Why+" does not work: "+bad, do
	}
	return f
}

// firstWorking is the driver that was found right, or ext3.
func firstWorking(p *Place) string {
	if p.Find(boxes.Layers+jobs.DriverKernel).Status == OK {
		return jobs.DriverKernel
	}
	return jobs.DriverExt3
}

// failed returns what the failed findings among some checks say.
func failed(p *Place, ids []string) []string {
	var out []string
	for _, f := range p.Findings {
		if f.Status == Fail && slices.Contains(ids, f.ID) {
			out = append(out, f.Why)
		}
	}
	return out
}

func firstDo(p *Place, ids []string) string {
	for _, f := range p.Findings {
		if f.Status == Fail && f.Do != "" && slices.Contains(ids, f.ID) {
			return f.Do
		}
	}
	return ""
}
