package command

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// RepeatName is the parameter that every task has: its place among equal rows, from 0.
const RepeatName = "repeat"

// MaxText bounds the text of one value; the kernel takes 128 KiB in one word.
const MaxText = 64 << 10

// CheckText tells what is wrong with the text of a value, or of a word of a command.
func CheckText(text string) error {
	switch {
	case len(text) > MaxText:
		return fmt.Errorf("has %d bytes, and may have %d", len(text), MaxText)
	case strings.ContainsRune(text, 0):
		return errors.New("holds a NUL byte")
	}
	return nil
}

// Param is a parameter of a task, as text.
type Param struct{ Name, Text string }

// Find is the text of a parameter.
func Find(row []Param, name string) (string, bool) {
	for _, p := range row {
		if p.Name == name {
			return p.Text, true
		}
	}
	return "", false
}

// ID is the id of a task: of its content, its parameters and its ordinal among
// equal rows.
type ID [16]byte

// String is it in 32 digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Task is a task of a sweep.
type Task struct {
	Number int // its place in the sweep, from 1
	ID     ID
	Params []Param
	Repeat int // its ordinal among equal rows, from 0
}

func (t Task) value(name string) (string, bool) {
	if name == RepeatName {
		return strconv.Itoa(t.Repeat), true
	}
	return Find(t.Params, name)
}

// Env is what a task finds in its environment of its parameters.
func (t Task) Env() []string {
	env := make([]string, 0, len(t.Params)+3)
	for _, p := range t.Params {
		env = append(env, "BERTH_PARAM_"+p.Name+"="+p.Text)
	}
	return append(env, "BERTH_PARAM_"+RepeatName+"="+strconv.Itoa(t.Repeat), "BERTH_TASK="+t.ID.String(), "BERTH_TASK_NUMBER="+strconv.Itoa(t.Number))
}
