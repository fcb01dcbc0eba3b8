//go:build conformance

package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/backends/external"
	"berth/engine"
	"berth/jobs"
)

var clientFaults = []fault{
	{name: "a client killed in a command", run: func(f *faulty) {
		f.want("X=state", 0, "")
		before := f.opened()
		b := f.start("while :; do echo tick; sleep 0.1; done")
		c := f.client("main", "exec", strings.ReplaceAll(stubborn, "WORD", f.word))
		f.there(f.word + "-double")
		c.kill()
		f.gone(f.word + "-")
		f.want("echo $X", 0, "state\n")
		if !f.opened().Equal(before) {
			f.t.Error("it was opened again")
		}
		long := len(f.log(b.ID))
		f.eventually("the background process goes on", wait, func() bool { return len(f.log(b.ID)) > long })
	}},
	{name: "a client killed while it waits", run: func(f *faulty) {
		holds := f.client("main", "exec", "sh -c 'while :; do sleep 0.2; done' "+f.word+"-holds")
		f.there(f.word + "-holds")
		waits := f.client("main", "exec", "touch ~/"+f.word+"/never")
		waits.says("waiting")
		waits.kill()
		holds.kill()
		f.gone(f.word + "-holds")
		f.want("ls ~/"+f.word, 0, "kept\n")
	}},
	{name: "a client killed while it writes a file", run: func(f *faulty) {
		c := f.client("main", "put", "~/"+f.word+"/kept")
		c.says("writing")
		c.kill()
		f.eventually("what was begun is removed", wait, func() bool { return f.sh("ls -A ~/"+f.word).Stdout.Text == "kept\n" })
		f.want("cat ~/"+f.word+"/kept", 0, "kept\n")
	}},
}

func (f *faulty) opened() time.Time {
	f.t.Helper()
	st, err := f.v.State(f.ctx())
	if err != nil {
		f.t.Fatal(explain(err))
	}
	return st.Opened
}

func (f *faulty) keeper() int {
	f.t.Helper()
	st, err := f.v.State(f.ctx())
	if err != nil {
		f.t.Fatal(explain(err))
	}
	return st.PID
}

// busy starts a background process and a command of every unkind sort, and
// remembers all their processes.
func (f *faulty) busy() (engine.Background, <-chan error) {
	f.t.Helper()
	b := f.start(strings.ReplaceAll(stubborn, "WORD", f.word+"-bg"))
	ended := f.running(strings.ReplaceAll(stubborn, "WORD", f.word+"-fg"))
	f.there(f.word + "-bg-double")
	f.there(f.word + "-fg-double")
	f.eventually("the background process has said that it started", wait, func() bool { return f.log(b.ID) != "" })
	f.note()
	return b, ended
}

// lost checks that a background process is known to have ended unseen.
func (f *faulty) lost(b engine.Background) {
	f.t.Helper()
	list, err := f.v.Backgrounds(f.ctx())
	if err != nil || len(list) != 1 || list[0].ID != b.ID || list[0].Running || list[0].Lost == "" || list[0].Exit != nil {
		f.t.Errorf("background processes: %+v, %v", list, err)
	}
	if l := f.log(b.ID); !strings.HasPrefix(l, "started\n") {
		f.t.Errorf("its log: %q", l)
	}
}

var keeperFaults = []fault{
	{name: "the keeper killed", run: func(f *faulty) {
		b, ended := f.busy()
		f.mustHost(fmt.Sprint("kill -KILL ", f.keeper()))
		f.broke(ended, wait)
		f.allEnd(wait)
		f.goesOn("its keeper was killed")
		f.lost(b)
		if list := f.orphans(); len(list) > 0 {
			f.t.Errorf("gc finds %+v", list)
		}
	}},
	{name: "the keeper killed, and opened at once", run: func(f *faulty) {
		b, ended := f.busy()
		f.mustHost(fmt.Sprint("kill -KILL ", f.keeper()))
		f.broke(ended, wait)
		f.goesOn("its keeper was killed")
		f.lost(b)
		f.allEnd(soon) // before anything runs again
	}},
	{name: "keeper and guest killed at once", only: contained, run: func(f *faulty) {
		b, ended := f.busy()
		f.killGuest(f.keeper())
		f.broke(ended, wait)
		f.allEnd(wait)
		f.goesOn("its keeper was killed")
		f.lost(b)
	}},
	{name: "the keeper killed while it opens", run: func(f *faulty) {
		start := f.keepLine()
		if err := f.v.Stop(f.ctx()); err != nil {
			f.t.Fatal(explain(err))
		}
		for _, after := range []string{"0.02", "0.1", "0.2", "0.4", "0.8"} {
			f.mustHost(start + " >/dev/null 2>&1 </dev/null & sleep " + after + "; kill -KILL $!; wait 2>/dev/null; true")
		}
		f.want("cat ~/"+f.word+"/kept", 0, "kept\n")
	}},
	{name: "the keeper stopped", run: func(f *faulty) {
		_, ended := f.busy()
		pid := fmt.Sprint(f.keeper())
		f.halt(pid)
		// Who comes now is told what to do.
		other, err := newEngine(f.t, f.e.Store.Home()).FindEnvironment(f.v.Spec.Name)
		if err != nil {
			f.t.Fatal(err)
		}
		if _, err := other.Open(f.ctx()); err == nil || !strings.Contains(jobs.HintOf(err), pid) {
			f.t.Errorf("a client meanwhile: %v", explain(err))
		}
		f.allEnd(wait, pid)
		f.broke(ended, wait, "does not answer")
		f.mustHost("kill -KILL " + pid)
		f.goesOn("its keeper was killed")
	}},
	{name: "the keeper stopped for a minute", run: func(f *faulty) {
		_, ended := f.busy()
		pid := fmt.Sprint(f.keeper())
		f.halt(pid)
		f.allEnd(wait, pid)
		f.mustHost("kill -CONT " + pid)
		// The client is told after a minute; the guest ends the command after two.
		if err := <-ended; errors.Is(err, errMadeUp) || err == nil || !strings.Contains(err.Error(), "its keeper does not answer any more") {
			f.t.Errorf("the command in flight: %v", err)
		}
		f.goesOn("guest in it is gone")
	}},
	{name: "two keepers at once", run: func(f *faulty) {
		start := f.keepLine()
		if err := f.v.Stop(f.ctx()); err != nil {
			f.t.Fatal(explain(err))
		}
		dir := f.mustHost("mktemp -d")
		defer f.mustHost("rm -r " + dir)
		for _, n := range []string{"1", "2"} {
			f.mustHost(start + " >" + dir + "/" + n + " 2>&1 </dev/null &")
		}
		f.eventually("both say that it is open", wait, func() bool {
			return f.mustHost("grep -l '\"ready\":true' "+dir+"/* | wc -l") == "2"
		})
		one := f.opened()
		// Another one, while that keeps it.
		f.mustHost(start + " >" + dir + "/3 2>&1 </dev/null")
		if said := f.mustHost("cat " + dir + "/3"); !strings.Contains(said, `"ready":true`) {
			f.t.Errorf("the third says %q", said)
		}
		f.want("echo on", 0, "on\n")
		if !f.opened().Equal(one) {
			f.t.Error("it was opened again")
		}
		if n := f.mustHost("pgrep -fc '[k]eep --env " + f.directory() + "$'"); n != "1" {
			f.t.Errorf("%s keepers", n)
		}
	}},
}

// halt stops a process. Its other threads go on until one of them has been given
// the signal.
func (f *faulty) halt(pid string) {
	f.t.Helper()
	f.mustHost("kill -STOP " + pid + " && for i in $(seq 500); do cat /proc/" + pid + "/task/*/stat | grep -qv ') [Tt] ' || exit 0; sleep 0.1; done; echo process " + pid + " does not stop; exit 1")
}

// pause stops all of the environment's docker container. Where runc freezes a cgroup
// of version 1 that makes processes meanwhile, or waits for a disk, it gives up at
// times, and thaws what it has frozen: then it is asked again.
func (f *faulty) pause() {
	f.t.Helper()
	f.mustHost("for i in $(seq 20); do said=$(docker pause " + f.container() + " 2>&1) && exit 0; case $said in *'unable to freeze'*) sleep 0.5;; *) break;; esac; done; echo \"$said\" >&2; exit 1")
}

// keepLine is the command line of the environment's keeper.
func (f *faulty) keepLine() string {
	f.t.Helper()
	return f.mustHost(fmt.Sprintf("tr '\\0' ' ' </proc/%d/cmdline", f.keeper()))
}

// directory is the environment's, where its keeper runs.
func (f *faulty) directory() string {
	f.t.Helper()
	words := strings.Fields(f.keepLine())
	return words[len(words)-1]
}

// killGuest kills the guest, and other processes beside it.
func (f *faulty) killGuest(others ...int) {
	f.t.Helper()
	// The guest first: when its keeper has ended it may end before it is killed.
	line := "kill -KILL " + f.guest()
	for _, o := range others {
		line += fmt.Sprint(" ", o)
	}
	f.mustHost(line)
}

// guest is its process number on the keeper's machine.
func (f *faulty) guest() string {
	f.t.Helper()
	if backend() == jobs.BackendDocker {
		return f.mustHost("docker inspect -f '{{.State.Pid}}' " + f.container())
	}
	if inCloud() {
		return f.sandboxGuest()
	}
	for _, l := range f.look("tree", fmt.Sprint(f.keeper())) {
		id, _, _ := strings.Cut(l, " ")
		pid, _, _ := strings.Cut(id, ":")
		line := f.look("alive", id)
		if len(line) == 1 && strings.HasSuffix(line[0], " guest") && !strings.Contains(line[0], " exec ") && !strings.Contains(line[0], " --unshare-") {
			return pid
		}
	}
	f.t.Fatal("no guest was found")
	return ""
}

// inCloud tells whether the guest is in a sandbox of a service, whose stand-in is
// this process: then it is nowhere below the keeper.
func inCloud() bool { return standIn != "" }

// standIn is the directory of that stand-in's sandboxes; "" is that there is none.
// Another run of these tests may have another one on the same machine.
var standIn string

// sandboxGuest is the process number of the guest in the environment's sandbox:
// its program lies below the sandbox's directory there.
func (f *faulty) sandboxGuest() string {
	f.t.Helper()
	made, err := external.Load(f.e.Store.EnvDir(f.v.Spec.Name))
	if err != nil || made == nil {
		f.t.Fatalf("no sandbox is recorded: %v", err)
	}
	id, _, _ := strings.Cut(made.Ref, "@") // with daytona its address follows
	for pid := range processes() {
		program, args, _ := strings.Cut(commandLine(pid), " ")
		of := strings.Contains(program, "/"+made.Name+"/") || strings.Contains(program, "/"+id+"/")
		if of && strings.HasPrefix(program, standIn+"/") && (args == "guest" || strings.HasPrefix(args, "guest ")) {
			return fmt.Sprint(pid)
		}
	}
	f.t.Fatal("no guest was found in the sandbox " + made.Ref)
	return ""
}

var insideFaults = []fault{
	{name: "the guest killed", run: func(f *faulty) {
		b, ended := f.busy()
		f.killGuest()
		f.broke(ended, wait, "guest in it is gone")
		f.goesOn("guest in it is gone")
		f.lost(b)
		f.allEnd(soon)
	}},
	{name: "the guest killed by a command", run: func(f *faulty) {
		if backend() == jobs.BackendDocker { // it is the namespace's first process
			f.want("kill -KILL $PPID; echo on", 0, "on\n")
			return
		}
		f.broke(f.running("kill -KILL $PPID; sleep 300"), wait, "guest in it is gone")
		f.goesOn("guest in it is gone")
	}},
	{name: "the guest stopped", run: func(f *faulty) {
		b, ended := f.busy()
		if backend() == jobs.BackendDocker {
			f.pause()
		} else {
			f.halt(f.guest())
		}
		f.broke(ended, wait, "not answer")
		f.goesOn("did not answer")
		f.lost(b)
		f.allEnd(soon)
	}},
	{name: "the overlay's file system killed", only: []string{jobs.BackendSingularity}, change: withFuse, run: func(f *faulty) { f.killHelper("fuse-overlayfs") }},
	{name: "the image's file system killed", only: []string{jobs.BackendSingularity}, change: withFuse, run: func(f *faulty) { f.killHelper("squashfuse") }},
	{name: "the container removed", only: []string{jobs.BackendDocker}, run: func(f *faulty) {
		_, ended := f.busy()
		f.mustHost("docker rm -f " + f.container())
		f.broke(ended, wait, "guest in it is gone")
		if res := f.sh("ls ~/" + f.word); res.Code == 0 || !strings.Contains(strings.Join(res.Notes, " "), "its files are gone") {
			f.t.Errorf("exit %d, %q", res.Code, res.Notes)
		}
		f.allEnd(soon)
	}},
}

func withFuse(o *jobs.EnvOptions) { o.Overlay.Driver = jobs.DriverFuse }

// killHelper kills a FUSE helper of the container.
func (f *faulty) killHelper(name string) {
	f.t.Helper()
	b, ended := f.busy()
	killed := false
	for _, l := range f.look("tree", fmt.Sprint(f.keeper())) {
		id, comm, _ := strings.Cut(l, " ")
		pid, _, _ := strings.Cut(id, ":")
		if strings.HasPrefix(comm, name) {
			killed = true
			f.mustHost("kill -KILL " + pid)
		}
	}
	if !killed {
		f.t.Fatalf("no %s in %q", name, f.look("tree", fmt.Sprint(f.keeper())))
	}
	f.broke(ended, wait, "file system died ("+name)
	f.goesOn("file system died (" + name)
	f.lost(b)
	f.allEnd(soon)
}

var linkFaults = []fault{
	{name: "the ssh server's session killed", only: onlySSH, change: ownConnection, run: func(f *faulty) { f.cutLink("sshd", "link") }},
	{name: "the far end of the link killed", only: onlySSH, run: func(f *faulty) { f.cutLink("connect") }},
}

// ownConnection keeps the environment's link off the connection that it would
// share with others on the same host.
func ownConnection(o *jobs.EnvOptions) {
	var host jobs.SSHSpec
	if o.SSH != nil {
		host = *o.SSH
	}
	host.Options = []string{"ServerAliveInterval=14"}
	o.SSH = &host
}

// cutLink kills a process between client and keeper on the host, under a
// command; the environment goes on.
func (f *faulty) cutLink(which string, words ...string) {
	f.t.Helper()
	before := f.opened()
	f.want("X=state", 0, "")
	b := f.start("while :; do echo tick; sleep 0.1; done")
	ended := f.running(strings.ReplaceAll(stubborn, "WORD", f.word+"-fg"))
	f.there(f.word + "-fg-double")
	// Those of commands before may be about to end, so all of them are killed.
	pids := f.mustHost("pgrep -f '[c]onnect --env " + f.directory() + "' | tr '\\n' ' '")
	if which == "sshd" {
		// Up to the session's own sshd, of which the user owns the last one.
		pids = f.mustHost("for p in " + pids + "; do while :; do p=$(ps -o ppid= -p $p | tr -d ' '); case $(ps -o comm= -p ${p:-1}) in sshd*) echo $p; break;; '') break;; esac; done; done | sort -u | tr '\\n' ' '")
	}
	f.mustHost("kill -KILL " + pids)
	f.broke(ended, wait, words...)
	f.gone(f.word + "-fg")
	f.want("echo $X; pwd | grep -c "+f.word, 0, "state\n1\n")
	if !f.opened().Equal(before) {
		f.t.Error("it was opened again")
	}
	long := len(f.log(b.ID))
	f.eventually("the background process goes on", wait, func() bool { return len(f.log(b.ID)) > long })
}
