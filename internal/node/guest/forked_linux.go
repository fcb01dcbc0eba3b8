package guest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/internal/link/wire"
	"berth/jobs"
)

// program makes a program of a request that gets a process of its own.
func (c *command) program() (*program, *jobs.Exit) {
	if c.msg.Own != nil {
		return c.inOwn()
	}
	if c.msg.Session == "" && len(c.msg.Shell) >= jobs.MaxArgument {
		// No argument can be so long: the shell reads it from memory.
		if dir, err := os.Getwd(); err == nil && c.msg.Dir == "" {
			c.msg.Dir = wire.Text(dir)
		}
		return c.copyOf(nil)
	}
	m := c.msg
	if m.Session == "" && (m.Shell != "" || len(m.Argv) > 0) {
		prog, no := c.s.place.resolve(m)
		if no == nil && m.TTY != nil {
			prog.env = withTerm(prog.env)
		}
		return prog, no
	}
	var state *dump
	if m.Session != "" {
		var no *jobs.Exit
		if state, no = c.stateOf(c.s.sessionOf(m.Session)); no != nil {
			return nil, no
		}
	}
	return c.copyOf(state)
}

// sessionOf is session for who has not locked the server.
func (s *server) sessionOf(name string) *shell {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session(name)
}

// stateOf returns the state that a shell has, or makes it its first one.
func (c *command) stateOf(sh *shell) (*dump, *jobs.Exit) {
	turn := sh.enqueue()
	defer sh.leave(turn)
	select {
	case <-sh.first:
	case <-c.stop:
	case <-turn:
		if sh.seen() == nil {
			if no := sh.ready(c.setMain); no != nil {
				return nil, no
			}
		}
	}
	if d := sh.seen(); d != nil {
		return d, nil
	}
	return nil, notStarted(codeCannot, "%v", errStopped)
}

// copyOf makes a program that evaluates the command in a copy of a state; nil
// is none. State and command pass in memory: they may hold secrets.
func (c *command) copyOf(state *dump) (*program, *jobs.Exit) {
	place, m := &c.s.place, c.msg
	talk := place.dialect()
	interactive := m.Shell == "" && len(m.Argv) == 0
	env := place.env
	dir := place.startDir()
	if state != nil {
		dir = state.dir
		if err := usableDir(dir); err != nil && m.Dir == "" {
			dir, c.note = place.besides(dir, err)
			moved := *state
			moved.dir = dir
			state = &moved
		}
		if !interactive { // what a person's ~/.bashrc needs, it finds
			env = nil
		}
	}
	if m.Dir != "" {
		d := string(m.Dir)
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		dir = d
	}
	if err := usableDir(dir); err != nil {
		return nil, notStarted(codeCannot, "working directory %s: %v", dir, reason(err))
	}
	own := wire.Strings(m.Env)
	if _, err := addEnv(nil, own); err != nil {
		return nil, notStarted(codeCannot, "%v", err)
	}
	p := &program{path: place.shell, env: setEnv(env, "PWD", dir), dir: dir, memoFD: memoFD}
	if !talk.bash {
		p.memoFD = shDumpFD
	}
	var text strings.Builder
	if state != nil {
		text.WriteString(state.restore(talk, interactive))
	}
	if m.Dir != "" {
		text.WriteString(talk.builtin + "cd -- " + quote(dir) + "\n")
	}
	if m.TTY != nil {
		// The client says what its terminal is, if it knows.
		own = withTerm(own)
	}
	for i, e := range own {
		name, value, _ := strings.Cut(e, "=")
		if !isName(name) {
			return nil, notStarted(codeCannot, "variable %d of the environment has a name that a shell does not know", i+1)
		}
		text.WriteString("export " + name + "=" + quote(value) + "\n")
	}
	if interactive {
		p.interactive(talk, text.String())
	} else if no := p.evaluate(talk, text.String(), m, state); no != nil {
		return nil, no
	}
	return p, p.fill(talk)
}

// evaluate makes the program one that evaluates a command after some text.
func (p *program) evaluate(talk *dialect, before string, m wire.StartMessage, state *dump) *jobs.Exit {
	o := order{text: string(m.Shell)}
	if o.text == "" {
		if m.Argv[0] == "" {
			return notStarted(codeNotFound, "no program is named")
		}
		o.text = quoteWords(wire.Strings(m.Argv))
	}
	if strings.ContainsRune(o.text, 0) {
		return notStarted(codeCannot, "an argument holds a NUL byte")
	}
	if state != nil {
		o.options = state.options
	}
	fd := strconv.Itoa(p.memoFD)
	if talk.bash {
		p.argv = []string{filepath.Base(p.path), "--norc", "--noprofile", "-c", `\builtin read -r -u` + fd + ` -d "" __berth; \builtin eval "$__berth"`}
		before = `\builtin unset -v __berth; \exec ` + fd + "<&-\n\\builtin shopt -s expand_aliases\n" + before
	} else {
		p.argv = []string{filepath.Base(p.path), "-c", ". /dev/fd/" + fd}
		before = "exec " + fd + "<&-\n" + before
	}
	p.text = "{ " + before + "} >/dev/null 2>&1\n" + talk.eval + quote(talk.prefix(o)+o.text)
	return nil
}

// interactive makes the program a shell for a person, who has their own
// ~/.bashrc first.
func (p *program) interactive(talk *dialect, state string) {
	fd := strconv.Itoa(p.memoFD)
	rc := "/dev/fd/" + fd
	p.text = "[ -r ~/.bashrc ] && . ~/.bashrc\n{ " + state + "} 2>/dev/null\n" +
		`[ -n "$PS1" ] && [ "$PS1" != '\s-\v\$ ' ] || PS1='\w\$ '` + "\n"
	if talk.bash {
		p.argv = []string{filepath.Base(p.path), "--noprofile", "--rcfile", rc, "-i"}
	} else {
		p.text = "{ " + state + "} 2>/dev/null\n"
		p.argv = []string{filepath.Base(p.path), "-i"}
		p.env = setEnv(p.env, "ENV", rc)
	}
	p.text += "exec " + fd + "<&-\n"
}

// fill writes what the program reads.
func (p *program) fill(talk *dialect) *jobs.Exit {
	var err error
	if p.memo, err = memory("berth-command"); err == nil {
		end := "\n"
		if talk.bash && len(p.argv) > 3 && p.argv[3] == "-c" {
			end = "\n#\x00"
		}
		if _, err = p.memo.WriteString(p.text + end); err == nil {
			_, err = p.memo.Seek(0, 0)
		}
	}
	if err != nil {
		p.close()
		return notStarted(codeCannot, "%v", err)
	}
	return nil
}
