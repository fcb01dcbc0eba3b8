package doctor

import (
	"errors"
	"os"

	boxes "berth/apptainer/examine"
	"berth/overlay"
)

// tempPrefix begins the names of what a check makes.
const tempPrefix = "berth-doctor-"

// boxMachine is this machine for the checks of the container program.
func (l *look) boxMachine() boxes.Machine {
	return boxes.Machine{
		On: l.On, Getenv: l.Getenv, Look: l.look, Path: l.path, Said: explain, User: l.user, Guest: l.Program,
		Ask: l.ask, Temp: l.temp, TempKept: l.tempKept, Prefix: tempPrefix,
		Modules: func() []string {
			m, err := l.mods()
			if err != nil {
				return nil
			}
			return m.boxes
		},
	}
}

// temp makes a scratch directory for something to be tried in.
func (l *look) temp() (string, error) {
	base, err := scratchBase(l.Where)
	if err != nil && l.submits() { // the profile's is of the nodes
		w := l.Where
		w.Profile.Scratch = ""
		base, err = scratchBase(w)
	}
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(base, tempPrefix+"*")
}

// tempKept makes one in the state directory, where the layers of environments are.
func (l *look) tempKept() (string, error) {
	if !overlay.TakesDirectories(l.State) {
		return "", errors.New("the state directory takes no directories as layers")
	}
	return os.MkdirTemp(l.State, "."+tempPrefix+"*")
}
