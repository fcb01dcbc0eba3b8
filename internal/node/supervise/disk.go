package supervise

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"berth/internal/node/container"
	"berth/internal/sys/lease"
	"berth/internal/sys/localcopy"
	"berth/jobs"
)

// Disk is what a supervisor needs of the node's own disk.
type Disk struct {
	Who     string // the kind of supervisor, for people
	Tail    string // what tells the supervisor's directory from others, see [container.NewScratch]
	For     string // the directory of the attempt or environment
	Profile string // the scratch directory that the profile names, or ""
	Guest   string // the program to run inside, or "" for this one
	Log     *slog.Logger
	Note    func(text string) // takes what people should know
}

// Prepare removes what killed processes have left there, makes the supervisor's
// scratch directory, and makes the supervisor and its guest independent of the file
// system that their program was started from: the guest is started from a copy, and
// this process has pages of its own. guest is the program to run inside. With an
// error, scratch may still be there, and is then to be removed. No other process
// works with that tail.
func (d Disk) Prepare(ctx context.Context) (scratch *container.Scratch, guest string, err error) {
	base, err := container.ScratchBase(d.Profile, os.Getenv)
	if err != nil {
		return nil, "", err
	}
	self := lease.Self()
	for _, dir := range append(container.SweepScratch(ctx, base, self), container.SweepUnfinished(base, d.Tail)...) {
		d.Log.Info("removed what a killed process had left", "dir", dir)
	}
	if scratch, err = container.NewScratch(base, d.Tail, self, d.For); err != nil {
		return nil, "", err
	}
	if guest = d.Guest; guest == "" {
		var why string
		if guest, why, err = localcopy.Copy(scratch.Dir, "node"); err != nil {
			return scratch, "", &jobs.Error{Kind: jobs.KindInfra, Msg: "copy the program for the nodes to the node's own disk", Err: err,
				Hint: "is there space left on " + filepath.Dir(scratch.Dir) + "?"}
		}
		if why != "" {
			d.Note("the guest runs from " + guest + ", and ends when that file system goes away: " + why)
		}
	}
	if err := localcopy.Pages(scratch.Dir); err != nil {
		d.Note("the " + d.Who + " runs from the file system of its program, and ends when that goes away: " + err.Error())
	}
	return scratch, guest, nil
}

// GiveBack ends what a container has left of its file system and gives back what
// it was made of, by give, then the scratch directory; nil is none.
func GiveBack(scratch *container.Scratch, give func() error, note func(text string)) {
	container.EndFuse()
	if err := give(); err != nil {
		note(err.Error())
	}
	if scratch != nil {
		if err := scratch.Remove(); err != nil {
			note("the scratch directory was not removed: " + err.Error())
		}
	}
}
