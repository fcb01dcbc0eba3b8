package keeper

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"berth/jobs"
	"berth/jobs/store"
)

// ConnectPrefix begins each line of the reports that `berth-node connect`
// writes to its standard error; the rest of the line is a [Report].
const ConnectPrefix = "berth-connect: "

// maxSpec bounds an environment's record that comes over a connection.
const maxSpec = 1 << 20

// WriteSpec sends an environment's record to `berth-node connect --make`:
// before anything else, its length in decimal digits, a line feed, and so many
// bytes of JSON.
func WriteSpec(w io.Writer, spec *jobs.EnvSpec) error {
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	_, err = w.Write(append([]byte(strconv.Itoa(len(b))+"\n"), b...))
	return err
}

func readSpec(r io.Reader) (s jobs.EnvSpec, err error) {
	broken := func(err error) (jobs.EnvSpec, error) {
		return s, &jobs.Error{Kind: jobs.KindUsage, Msg: "read the environment's record", Err: err}
	}
	line, err := readLine(r)
	if err != nil {
		return broken(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || n <= 0 || n > maxSpec {
		return broken(fmt.Errorf("%q is not its length", line))
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return broken(err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return broken(err)
	}
	if s.ID == "" || s.Version != jobs.EnvVersion {
		return broken(fmt.Errorf("it is of version %d and has the id %q", s.Version, s.ID))
	}
	return s, store.CheckEnvName(s.Name)
}

// readLine reads a short line and not a byte more.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < 64; {
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	return string(line), nil
}
