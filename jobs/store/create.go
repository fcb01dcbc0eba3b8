package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"berth/internal/sys/disk"
	"berth/internal/sys/failpoint"
	"berth/jobs"
)

// Names of the ledger's files.
const (
	fileJob        = "job.json"
	fileTask       = "task.md"
	filePrompt     = "prompt.md"
	fileCancel     = "cancel"
	dirAttempts    = "attempts"
	fileAttempt    = "attempt.json"
	fileScript     = "script.sh"
	fileSubmitted  = "submitted.json"
	fileClaim      = "claim.json"
	fileArgv       = "argv.json"
	fileChanges    = "changes.json"
	fileInside     = "inside.json"
	fileReceipt    = "receipt.json"
	fileExit       = "exit.json"
	fileVerdict    = "verdict.json"
	fileDecision   = "decision.json"
	filePromoted   = "promoted.json"
	fileCheckpoint = "checkpoint.json"
	fileTaken      = "taken.json"
	fileUndeliver  = "undelivered.json"
	fileCollected  = "collected.json"
	fileReaper     = "reaper.json"
	fileUnfollow   = "unfollowed.json"
	fileStandby    = "standby.json"
	fileBeat       = "beat"
	fileEnv        = "env"
	fileReserve    = "reserve"

	// FileStdout, FileStderr and FileRuntime are an attempt's logs: the
	// command's two streams, and what the runner and the container program say.
	FileStdout  = "stdout"
	FileStderr  = "stderr"
	FileRuntime = "runtime.log"
	// FileDoneStdout and FileDoneStderr are what the done commands wrote.
	FileDoneStdout = "done.stdout"
	FileDoneStderr = "done.stderr"
	// FileEvents is what happened, one JSON object a line, by the runner.
	FileEvents = "events.jsonl"
	// FileTranscript is what the agent said of its work, by the runner, see package agents.
	FileTranscript = "transcript.jsonl"
)

// New is a job about to be recorded, with its first attempt.
type New struct {
	Spec    jobs.Spec
	Attempt jobs.AttemptInfo
	Task    []byte   // the task file, may be nil
	Prompt  []byte   // may be nil
	Secrets []string // NAME=VALUE, kept 0600 until the runner takes them
	// Script renders the job script for the directory that the attempt will have.
	Script func(attemptDir string) (string, error)
}

// Create records the intent to run a job. When it returns, the record survives
// a crash of this machine. After an error, or when this process is killed in
// between, there is no record.
func (s *Store) Create(n New) (*jobs.Record, error) {
	if !jobs.ValidID(n.Spec.ID) {
		return nil, fmt.Errorf("record the job: %q is not a job id", n.Spec.ID)
	}
	n.Spec.Version = n.Spec.Needs()
	dir := s.JobDir(n.Spec.ID)
	shard := filepath.Dir(dir)
	adir := AttemptDir(dir, 1)
	script, err := n.Script(adir)
	if err != nil {
		return nil, err
	}
	job, err := encode(n.Spec)
	if err != nil {
		return nil, err
	}
	info, err := encode(n.Attempt)
	if err != nil {
		return nil, err
	}
	fail := func(err error) error {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the job", Err: err, Hint: "is there space left? df -h " + s.home + "; df -i " + s.home}
	}
	if err := makeDir(shard); err != nil {
		return nil, fail(err)
	}
	// Its own name each time: one who was killed may have left a part of the same
	// job, whose id an idempotency key remembers.
	tmp, err := os.MkdirTemp(shard, prefixNew+n.Spec.ID+"-*")
	if err != nil {
		return nil, fail(err)
	}
	tdir := AttemptDir(tmp, 1)
	if err := os.MkdirAll(tdir, 0o700); err != nil {
		_ = disk.RemoveTree(tmp)
		return nil, fail(err)
	}
	failpoint.Hit("create.made")
	files := map[string][]byte{
		filepath.Join(tmp, fileJob):      job,
		filepath.Join(tdir, fileAttempt): info,
		filepath.Join(tdir, fileScript):  []byte(script),
	}
	if n.Task != nil {
		files[filepath.Join(tmp, fileTask)] = n.Task
	}
	if n.Prompt != nil {
		files[filepath.Join(tmp, filePrompt)] = n.Prompt
	}
	if len(n.Secrets) > 0 {
		files[filepath.Join(tdir, fileEnv)] = Values(n.Secrets)
	}
	// A file system commits concurrent syncs together: one wait instead of
	// one for each file.
	err = each(files, func(path string, data []byte) error { return writeSynced(path, data, 0o600) })
	failpoint.Hit("create.written")
	if err == nil {
		err = each(map[string][]byte{tmp: nil, tdir: nil, filepath.Dir(tdir): nil}, func(path string, _ []byte) error { return disk.SyncDir(path) })
	}
	failpoint.Hit("create.synced")
	if err == nil {
		err = CheckLinks(filepath.Join(tmp, fileJob))
		if jobs.KindOf(err) == jobs.KindConfig {
			_ = disk.RemoveTree(tmp)
			return nil, err
		}
	}
	if err == nil {
		err = moveDir(tmp, dir)
	}
	failpoint.Hit("create.renamed")
	if err != nil {
		_ = disk.RemoveTree(tmp)
		return nil, fail(err)
	}
	if err := disk.SyncDir(shard); err != nil {
		_ = disk.RemoveTree(dir)
		return nil, fail(err)
	}
	return &jobs.Record{Dir: dir, Spec: n.Spec, Attempts: []jobs.Attempt{{N: 1, Dir: adir, Info: n.Attempt}}}, nil
}

// moveDir renames a directory to a name that nothing has. On a network file
// system a lost reply makes a rename that was done look like a failure.
func moveDir(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Stat(to); serr == nil {
			return nil
		}
	}
	return err
}

// each does something with all files at once and returns one of the errors.
func each(files map[string][]byte, do func(string, []byte) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(files))
	for path, data := range files {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := do(path, data); err != nil {
				errs <- err
			}
		}()
	}
	wg.Wait()
	close(errs)
	return <-errs
}
