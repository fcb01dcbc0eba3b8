package apptainer

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"berth/internal/images"
	"berth/internal/node/inroom"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// maxDefinition bounds a definition, in bytes.
const maxDefinition = 1 << 20

// BuildMain is "berth-node image-build --home HOME --name REFERENCE", the
// command of a job that builds an image on its node: the definition comes on
// the standard input, and the image goes into the cache of the state directory.
// What happens is said on the standard error.
func BuildMain(args []string, stdin io.Reader, stderr io.Writer) int {
	fs := flag.NewFlagSet(jobs.VerbBuild, flag.ContinueOnError)
	fs.SetOutput(stderr)
	home := fs.String("home", "", "the state directory")
	ref := fs.String("name", "", "the reference of the image")
	dir := fs.String("dir", "", "where relative paths of the definition begin")
	cache := fs.String("images", "", "the cache of images; the usual one of the state directory without it")
	scratch := fs.String("scratch", "", "a profile's scratch directory")
	var network jobs.Network
	fs.Func("network", "what the build reaches, as records have it; all of its node's network without it",
		func(s string) error { return json.Unmarshal([]byte(s), &network) })
	if err := fs.Parse(args); err != nil {
		return jobs.CodeUsage
	}
	if !filepath.IsAbs(*home) || *ref == "" || fs.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "usage: berth-node "+jobs.VerbBuild+" --home DIR --name REFERENCE "+
			"[--dir DIR] [--scratch DIR] [--network JSON] <DEFINITION")
		return jobs.CodeUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	img, err := build(ctx, *home, *cache, *ref, *dir, *scratch, network, stdin, stderr)
	if err != nil {
		if code := failed(stderr, err); !errors.Is(err, images.ErrScript) {
			return code
		}
		return jobs.CodeTaskFailed
	}
	_, _ = fmt.Fprintf(stderr, "berth: %s is %s\n", *ref, img.Path)
	return jobs.CodeOK
}

func build(ctx context.Context, home, cache, ref, dir, scratch string, network jobs.Network, stdin io.Reader, stderr io.Writer) (images.Image, error) {
	text, err := io.ReadAll(io.LimitReader(stdin, maxDefinition+1))
	if err != nil {
		return images.Image{}, err
	}
	if len(text) > maxDefinition {
		return images.Image{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the definition has more than %v", jobs.Bytes(maxDefinition))}
	}
	c := NewCache(home, run.Local{}, func(line string) { _, _ = fmt.Fprintf(stderr, "berth: %s\n", line) })
	if c.Scratch = scratch; cache != "" {
		c.Dir = cache
	}
	program, err := c.Program()
	if err != nil {
		return images.Image{}, err
	}
	d := &images.Definition{Text: text, Dir: dir, Output: stderr, Shell: "/proc/self/exe", Ways: buildWays(program, os.Getenv("USER"), os.Getenv("PATH"))}
	if !network.Open() {
		if d.Ways, err = containedWays(program, d.Ways); err != nil {
			return images.Image{}, err
		}
		d.Contain = contain(home, network, stderr)
	}
	return c.Build(ctx, ref, d)
}

// contain makes the room in which a build has a network of its own. Of a job the record
// stands in its attempt, as that of its commands would.
func contain(home string, n jobs.Network, log io.Writer) func(context.Context, images.Way) (jobs.Starter, func(), error) {
	return func(ctx context.Context, way images.Way) (jobs.Starter, func(), error) {
		s, err := store.At(home)
		if err != nil {
			return nil, nil, err
		}
		job := s.JobDir(os.Getenv("BERTH_JOB_ID"))
		number, err := strconv.Atoi(os.Getenv("BERTH_ATTEMPT_NUMBER"))
		if err != nil {
			return nil, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "a build with a network of its own runs in an attempt of a job", Err: err}
		}
		room, err := inroom.Open(ctx, inroom.Options{Network: n, Phase: jobs.PhaseBuild, Dir: store.AttemptDir(job, number),
			Added: job, OwnIDs: way.OwnIDs, Log: log})
		if err != nil {
			return nil, nil, err
		}
		return room, func() { room.Close() }, nil
	}
}

// containedWays are those of the ways that work in a room. newuidmap does not, as it is of
// another user there: the room is made with these ids, and in it Apptainer is root.
func containedWays(program string, ways []images.Way) ([]images.Way, error) {
	for i, way := range ways {
		switch {
		case filepath.Base(program) == "singularity":
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "network.build: builds by SingularityCE are not contained",
				Hint: "build where there is Apptainer, or with --network open"}
		case os.Geteuid() == 0:
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "network.build: builds by root are not contained",
				Hint: "build as an ordinary user, or with --network open"}
		}
		ways[i].OwnIDs = !way.Alone
	}
	return ways, nil
}

// buildWays are how %post of a definition can be root here, the best first, in
// the order in which Apptainer tries them (its documentation, "Fakeroot
// feature"). It falls through by itself only where a way is not there at all,
// not where it fails; the flags leave out the ones before.
func buildWays(program, user, pathList string) []images.Way {
	if os.Geteuid() == 0 {
		return []images.Way{{Name: "root"}}
	}
	own := hasOwnIDs(user)
	if filepath.Base(program) == "singularity" { // SingularityCE: subordinate ids, or proot
		if own {
			return []images.Way{{Name: "root, other users by /etc/subuid", Flags: []string{"--fakeroot"}}, {Name: "proot", Bare: true}}
		}
		return []images.Way{{Name: "proot", Bare: true}}
	}
	var ways []images.Way
	var not []string
	if own {
		ways = append(ways, images.Way{Name: "root, other users by /etc/subuid"})
		not = []string{"--ignore-subuid"}
	}
	if fakerootCommand(pathList) {
		ways = append(ways, images.Way{Name: "root, other users pretended by fakeroot(1)", Flags: not, Alone: true})
		not = append(not[:len(not):len(not)], "--ignore-fakeroot-command")
	}
	return append(ways, images.Way{Name: "root without other users", Flags: not, Alone: true})
}
