package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"berth/internal/sys/disk"
	"berth/jobs"
)

const mainUsage = "usage: examine --json [--request FILE|-] [--answer FILE]"

// maxRequest bounds a request.
const maxRequest = 1 << 20

// Main is the verb examine of berth-node: it looks at the machine that it runs
// on, as a request says ([Where] as JSON), and writes a [Place] as JSON to its
// standard output, or to a file that appears whole. Its exit code is 0 when it
// could look, whatever it has found.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	syscall.Umask(0o077)
	var request, answer string
	asJSON := false
	for len(args) > 0 {
		switch {
		case args[0] == "--json":
			asJSON, args = true, args[1:]
			continue
		case args[0] == "--request" && len(args) > 1:
			request = args[1]
		case args[0] == "--answer" && len(args) > 1:
			answer = args[1]
		default:
			_, _ = fmt.Fprintln(stderr, mainUsage)
			return jobs.CodeUsage
		}
		args = args[2:]
	}
	if !asJSON {
		_, _ = fmt.Fprintln(stderr, mainUsage)
		return jobs.CodeUsage
	}
	if err := answerTo(request, answer, stdin, stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, "examine:", err)
		return jobs.CodeOf(err)
	}
	return jobs.CodeOK
}

func answerTo(request, answer string, stdin io.Reader, stdout io.Writer) error {
	w, err := readRequest(request, stdin)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "read the request", Err: err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := json.Marshal(Run(ctx, w))
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if ctx.Err() != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "it was ended before it had looked at everything"}
	}
	if answer == "" {
		_, err = stdout.Write(b)
		return err
	}
	return disk.Replace(answer, b, 0o600)
}

func readRequest(name string, stdin io.Reader) (Where, error) {
	var w Where
	var b []byte
	var err error
	switch name {
	case "":
		return w, nil
	case "-":
		b, err = io.ReadAll(io.LimitReader(stdin, maxRequest))
	default:
		b, err = os.ReadFile(name)
	}
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	if err == nil && w.Version != Version {
		err = fmt.Errorf("version %d of it is not known, but %d", w.Version, Version)
	}
	return w, err
}

// ReadAnswer reads what [Main] has written.
func ReadAnswer(b []byte) (*Place, error) {
	var p Place
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, err
	}
	if p.Version != Version {
		return nil, errors.New("the program there is another version of berth")
	}
	return &p, nil
}
