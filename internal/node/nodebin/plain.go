//go:build !embednode

package nodebin

// There is nothing: a plain `go build` uses the program itself.
var (
	embedded     []byte
	embeddedList string
)
