// Command agentloop measures commands as a program sees them that drives a warm
// environment, for scripts/bench: through `berth exec --batch`, and beside it by a
// command line of another program, in turns. Each sample is a line "KEY VALUE" on
// stdout, times in milliseconds. Of berth's commands there is KEY_over, too: what they
// took beside their own time, as the place itself has measured that.
//
//	agentloop N NAME WORDS
//
// The environment is called bench-NAME; WORDS and a text for the shell make the
// other command line, such as docker exec X bash -c.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// work is what an agent does that fixes a bug: 30 commands. A number says which
// exit code is right, where that is not 0.
var work = []struct {
	text string
	code int
}{
	{"mkdir -p src tests && git init -q . && git config user.email a@example.org && git config user.name A", 0},
	{"cat >src/words.py <<'EOF'\ndef count(text):\n    \"\"\"Count words.\"\"\"\n    return len(text.split(' '))\nEOF", 0},
	{"cat >tests/test_words.py <<'EOF'\nimport sys, unittest\nsys.path.insert(0, 'src')\nfrom words import count\n\n\nclass Test(unittest.TestCase):\n    def test_count(self):\n" +
		"        self.assertEqual(count('a  b'), 2)\nEOF", 0},
	{"printf '__pycache__/\\n' >.gitignore", 0},
	{"git add -A && git commit -qm first", 0},
	{"ls -la", 0},
	{"git status --short", 0},
	{"git log --oneline -5", 0},
	{"grep -rn 'def ' src", 0},
	{"cat src/words.py", 0},
	{"find . -name '*.py' -not -path './.git/*'", 0},
	{"wc -l src/*.py tests/*.py", 0},
	{"python3 -m unittest -q tests/test_words.py", 1},
	{"sed -n 1,20p tests/test_words.py", 0},
	{"grep -n split src/words.py", 0},
	{"sed -i \"s/split(' ')/split()/\" src/words.py", 0},
	{"git diff", 0},
	{"python3 -m unittest -q tests/test_words.py", 0},
	{"head -n 2 src/words.py; echo $?", 0},
	{"cat >>tests/test_words.py <<'EOF'\n\n    def test_empty(self):\n        self.assertEqual(count(''), 0)\nEOF", 0},
	{"python3 -m unittest -q tests/test_words.py", 0},
	{"git add -A", 0},
	{"git diff --cached --stat", 0},
	{"git commit -qm 'count: any white space parts words'", 0},
	{"git show --stat HEAD", 0},
	{"grep -c . src/words.py", 0},
	{"test -e nothing", 1},
	{"env | sort | head -n 3", 0},
	{"cat >notes.md <<'EOF'\n# What was done\nsplit() takes \"any\" white space.\nEOF", 0},
	{"rm notes.md; git status --short | wc -l", 0},
}

func main() {
	if err := measure(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agentloop:", err)
		os.Exit(1)
	}
}

// runner runs a text and returns its exit code, and its own time where that is known.
type runner func(text string) (code int, own time.Duration, err error)

func measure(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: agentloop N NAME WORDS")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	name, words := args[1], args[2:]
	berth, end, err := batch("bench-" + name)
	if err != nil {
		return err
	}
	defer end()
	dir := fmt.Sprintf("/tmp/berth-bench-agent-%d", os.Getpid())
	// The other one has no session: each of its commands goes to its directory.
	beside := func(text string) (int, time.Duration, error) { return once(words, "cd "+dir+" && "+text) }
	sides := []struct {
		key string
		run runner
	}{{name + "_batch", berth}, {name + "_beside", beside}}
	time1 := func(key string, run runner, text string, want int) error {
		begun := time.Now()
		code, own, err := run(text)
		took := time.Since(begun)
		if err == nil && code != want {
			err = fmt.Errorf("%s: %q exited with %d", key, text, code)
		}
		fmt.Printf("%s %.4f\n", key, float64(took.Microseconds())/1000)
		if own > 0 {
			fmt.Printf("%s_over %.4f\n", key, float64((took-own).Microseconds())/1000)
		}
		return err
	}
	for range max(1, n/len(work)) {
		for _, s := range sides {
			start := "rm -rf " + dir + " && mkdir " + dir
			if code, _, err := once(words, start); err != nil || code != 0 {
				return fmt.Errorf("make the directory: exit %d, %w", code, err)
			}
			if code, _, err := berth(start + " && cd " + dir); err != nil || code != 0 {
				return fmt.Errorf("make the directory: exit %d, %w", code, err)
			}
			for _, w := range work {
				if err := time1(s.key+"_work", s.run, w.text, w.code); err != nil {
					return err
				}
			}
		}
	}
	for range n {
		for _, s := range sides {
			if err := time1(s.key+"_true", s.run, "true", 0); err != nil {
				return err
			}
		}
	}
	_, _, _ = once(words, "rm -rf "+dir)
	_, _, err = berth("cd /; rm -rf " + dir)
	return err
}

// batch starts the one process that runs the commands of an environment.
func batch(env string) (run runner, end func(), err error) {
	cmd := exec.Command("berth", "exec", "--env", env, "--session", "agent", "--batch")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	requests, answers := json.NewEncoder(in), bufio.NewReader(out)
	run = func(text string) (int, time.Duration, error) {
		if err := requests.Encode(map[string]any{"command": text}); err != nil {
			return 0, 0, err
		}
		line, err := answers.ReadBytes('\n')
		if err != nil {
			return 0, 0, err
		}
		var a struct {
			Code  int     `json:"exit_code"`
			Own   float64 `json:"duration_ms"`
			Error *struct{ Message string }
		}
		if err := json.Unmarshal(line, &a); err != nil {
			return 0, 0, err
		}
		if a.Error != nil {
			return 0, 0, errors.New(a.Error.Message)
		}
		return a.Code, time.Duration(a.Own * float64(time.Millisecond)), nil
	}
	return run, func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}, nil
}

// once runs a text by a process of its own.
func once(words []string, text string) (int, time.Duration, error) {
	cmd := exec.Command(words[0], append(words[1:len(words):len(words)], text)...)
	if _, err := cmd.Output(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode(), 0, nil
		}
		return 0, 0, err
	}
	return 0, 0, nil
}
