//go:build !embednode

package nodebin

// embedded has nothing: a plain `go build` uses the program itself.
func embedded(string) (compressed []byte, sum string) { return nil, "" }
