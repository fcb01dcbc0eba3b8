package keeper

import (
	"encoding/json"
	"fmt"
	"io"

	"berth/jobs"
	"berth/jobs/store"
)

// ConnectPrefix begins each line of the reports that `berth-node connect`
// writes to its standard error; the rest of the line is a [Report].
const ConnectPrefix = "berth-connect: "

// maxSpec bounds an environment's record that comes over a connection.
const maxSpec = 1 << 20

// WriteSpec sends an environment's record to `berth-node connect --make`: one
// line of JSON, before anything else.
func WriteSpec(w io.Writer, spec *jobs.EnvSpec) error {
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func readSpec(r io.Reader) (s jobs.EnvSpec, err error) {
	line, err := readLine(r, maxSpec)
	if err == nil {
		err = json.Unmarshal([]byte(line), &s)
	}
	if err == nil && (s.ID == "" || s.Version != jobs.EnvVersion) {
		err = fmt.Errorf("it is of version %d and has the id %q", s.Version, s.ID)
	}
	if err != nil {
		return s, &jobs.Error{Kind: jobs.KindUsage, Msg: "read the environment's record", Err: err}
	}
	return s, store.CheckEnvName(s.Name)
}

// readLine reads a line and not a byte more.
func readLine(r io.Reader, most int) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		if line = append(line, b[0]); len(line) > most {
			return "", fmt.Errorf("the line is longer than %d bytes", most)
		}
	}
}
