package jobs

import (
	"io/fs"
	"time"
)

// Types of entries.
const (
	TypeFile      = "file"
	TypeDirectory = "directory"
	TypeSymlink   = "symlink"
	TypeOther     = "other" // a socket, a device or a pipe
)

// FileInfo is a file or directory inside; a symbolic link is not followed,
// except where a file is opened.
type FileInfo struct {
	Path   string // absolute; in a listing relative to the directory listed
	Type   string // one of the constants
	Mode   fs.FileMode
	Size   int64 // bytes
	Time   time.Time
	Target string // of a symbolic link
}

// FileContent says what of a file was read or written.
type FileContent struct {
	File  FileInfo
	Bytes int64 // read or written
	// More says that the file goes on behind what was read.
	More bool
}

// WriteOptions are how a file is written.
type WriteOptions struct {
	// Mode is the permission bits; 0 keeps those of the file that is there, or
	// is 0644 for a new one.
	Mode fs.FileMode
	// Parents makes missing directories above the file.
	Parents bool
}

// ListOptions say what of a directory is listed.
type ListOptions struct {
	Depth int    // 0 and 1 are the directory itself
	Glob  string // picks by the last name, as find -name does; "" is all
	Limit int    // of entries; 0 is 1,000
}

// FileListing is what a directory holds, sorted by path. Times are in seconds, and
// targets of links are left out.
type FileListing struct {
	Path    string // of the directory
	Entries []FileInfo
	More    bool // there are more
	Notes   []string
}

// FileQuery says what to search for.
type FileQuery struct {
	Pattern    string // an expression of grep -E for a part of a line
	Literal    bool   // Pattern is a text
	IgnoreCase bool
	Glob       string // picks files by the last name, as find -name does; "" is all
	Limit      int    // of matches; 0 is 200
}

// FileMatch is a line that was found.
type FileMatch struct {
	Path string // relative to the directory searched; of a file, its name
	Line int    // from 1
	Text string // without its end, at most 500 bytes
}

// FilesFound is what a search has found, sorted by path and line. Binary files
// (where grep knows -I), files of 8 MiB and more and .git are not looked into.
type FilesFound struct {
	Path    string // that was searched
	Matches []FileMatch
	More    bool // there are more
	Notes   []string
}

// FileEdit replaces a text in a file.
type FileEdit struct {
	Old, New string
	// All replaces every place; else there must be exactly one.
	All bool
}

// Copied says what was copied.
type Copied struct {
	Path    string // of the file or directory that was made
	Entries int64  // files, directories and links
	Bytes   int64  // in files
	// Incomplete says that something could not be read, see Notes.
	Incomplete bool
	Notes      []string
}
