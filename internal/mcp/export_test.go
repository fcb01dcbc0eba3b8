package mcp

import "berth/internal/config/task"

// Takes reports whether a task file takes something of the user's, see [takes].
func Takes(text string) (bool, error) {
	t, err := task.Parse("/task", []byte(text))
	return takes(&t), err
}
